"""The scripts of .ci and make's targets for it, with commands in the place of what takes long."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.repository.files import ROOT

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


def test_each_row_of_the_flaky_tests_names_one_that_exists():
    table = (ROOT / "CONTRIBUTING.md").read_text().split("### Flaky tests", 1)[1].split("|---|---|---|---|\n", 1)[1]
    named = [
        re.findall(r"`(test_\w+)(?:\[.*?\])?`", row.split("|")[1]) for row in table.split("\n\n", 1)[0].splitlines()
    ]
    tests = {
        name for path in (ROOT / "tests").rglob("*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    assert [row for row in named if not row or not set(row) <= tests] == []


def test_make_audit_reads_every_locked_environment_and_fails_if_one_does(tmp_path):
    said = tmp_path / "said"
    auditor = command(tmp_path / "auditor", f'echo "$@" >>{said}; case "$*" in *base.txt*) exit 1;; esac')
    made = [".cache/release/.ready", f"PIP_AUDIT={auditor}", "audit"]
    done = subprocess.run(["make", "--old-file", *made], cwd=ROOT, check=False, capture_output=True, text=True)
    audited = [line.rpartition("requirements/")[2] for line in said.read_text().splitlines()]
    assert (done.returncode != 0, sorted([*audited, *OLD_ON_PURPOSE])) == (True, LOCKED), done.stderr
    assert {"base.txt", "dev.txt", "release.txt"} <= set(audited)
