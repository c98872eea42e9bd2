"""The scripts of .ci and make's targets for it, with stubs for what takes long, and files that other programs read."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.repository.files import ROOT
from tests.support.waiting import DEADLINE_S

LOCKED = sorted(path.name for path in (ROOT / "requirements").glob("*.txt"))
OLD_ON_PURPOSE = [name for name in LOCKED if name == "lowest.txt" or name.startswith("spark-")]


def command(path: Path, lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o700)
    return path


def test_incident_the_failures_of_an_earlier_run_made_a_crashed_one_green(tmp_path):
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    command(tmp_path / "bin/make", 'test "$1" = check')  # the tests crash before they write which of them failed
    command(tmp_path / ".venv/bin/python", "exit 0")
    kept = tmp_path / ".pytest_cache/test-fast/v/cache/lastfailed"
    kept.parent.mkdir(parents=True)
    kept.write_text(json.dumps({"tests/test_of_last_week.py::test": True}))
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run([tmp_path / ".ci/run"], env=environment, check=False, capture_output=True, text=True)
    assert done.returncode != 0, done.stdout


def test_make_audit_reads_every_locked_environment_and_fails_if_one_does(tmp_path):
    said = tmp_path / "said"
    auditor = command(tmp_path / "auditor", f'echo "$@" >>{said}; case "$*" in *base.txt*) exit 1;; esac')
    made = [".cache/release/.ready", f"PIP_AUDIT={auditor}", "audit"]
    done = subprocess.run(["make", "--old-file", *made], cwd=ROOT, check=False, capture_output=True, text=True)
    audited = [line.rpartition("requirements/")[2] for line in said.read_text().splitlines()]
    assert (done.returncode != 0, sorted([*audited, *OLD_ON_PURPOSE])) == (True, LOCKED), done.stderr
    assert {"base.txt", "dev.txt", "release.txt"} <= set(audited)


def test_the_image_on_kind_is_that_of_the_page_with_the_script(tmp_path):
    jobs = yaml.safe_load((ROOT / ".github/workflows/kind.yml").read_text())["jobs"]
    (script,) = (step["run"] for step in jobs["report"]["steps"] if "docker build" in step.get("run", ""))
    command(tmp_path / "bin/docker", "exit 0")
    for folder in ("docs", "examples"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-ec", script], cwd=tmp_path, env=environment, check=True)
    lines = (tmp_path / "Dockerfile").read_text().splitlines()
    assert lines[0].startswith("FROM apache/spark:")
    assert lines[-2] == "USER spark"
    _copy, source, target = lines[-1].split()
    assert (ROOT / source).is_file()
    assert f" {target} " in (ROOT / ".github/workflows/kind.yml").read_text()


READ_BY_OTHERS = {
    "github-workflows": [".github/workflows/ci.yml", ".github/workflows/kind.yml", ".github/workflows/release.yml"],
    "github-issue-forms": [".github/ISSUE_TEMPLATE/bug.yml", ".github/ISSUE_TEMPLATE/feature.yml"],
    "github-issue-config": [".github/ISSUE_TEMPLATE/config.yml"],
    "dependabot": [".github/dependabot.yml"],
    "compose-spec": ["docker-compose.yml"],
}


@pytest.mark.parametrize("schema", READ_BY_OTHERS)
def test_a_file_fits_the_schema_of_the_program_that_reads_it(schema):
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        f"vendor.{schema}",
        *READ_BY_OTHERS[schema],
    ]
    checked = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_file_of_github_has_a_schema():
    there = {str(path.relative_to(ROOT)) for path in (ROOT / ".github").rglob("*.yml")}
    assert there == {name for names in READ_BY_OTHERS.values() for name in names if name.startswith(".github/")}
