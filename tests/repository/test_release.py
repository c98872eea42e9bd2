"""What a release consists of: files that anyone can build again, and a workflow that attests them."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.repository.conftest import PROJECT_URL
from tests.repository.files import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
JOBS = WORKFLOW["jobs"]
LONG_AGO = 1_000_000_000


@pytest.fixture
def here(built) -> dict[str, bytes]:
    return built(PROJECT_URL)


def metadata_in(name: str, content: bytes) -> bytes:
    """METADATA of a wheel, or PKG-INFO of an sdist."""
    if name.endswith(".whl"):
        with zipfile.ZipFile(io.BytesIO(content)) as wheel:
            return wheel.read(f"{name.removesuffix('-py3-none-any.whl')}.dist-info/METADATA")
    with tarfile.open(fileobj=io.BytesIO(content)) as sdist:
        member = sdist.extractfile(f"{name.removesuffix('.tar.gz')}/PKG-INFO")
        assert member is not None
        return member.read()


def test_incident_the_publishing_action_did_not_know_the_version_of_the_metadata(here):
    """The action's twine knows versions up to 2.4; hatchling writes the newest one unless it is told another."""
    versions = {metadata_in(name, content).splitlines()[0] for name, content in here.items()}
    assert versions == {b"Metadata-Version: 2.4"}


def test_a_build_of_other_times_and_rights_in_another_folder_is_equal(built, here, tmp_path):
    sources = tmp_path / "sources"
    sources.mkdir()
    # hatchling adds .gitignore, which says what a build leaves out.
    for name in [".gitignore", *PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["only-include"]]:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, sources / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, sources / name)
    for path in sources.rglob("*"):
        os.utime(path, (LONG_AGO, LONG_AGO))
        path.chmod(path.stat().st_mode & 0o700)
    assert built(PROJECT_URL, sources) == here


def test_a_build_from_the_sdist_is_equal(built, here, tmp_path):
    (name,) = (name for name in here if name.endswith(".tar.gz"))
    (tmp_path / name).write_bytes(here[name])
    with tarfile.open(tmp_path / name) as archive:
        archive.extractall(tmp_path, filter="data")
    assert built(PROJECT_URL, tmp_path / name.removesuffix(".tar.gz")) == here


def uses(job: str) -> list[str]:
    return [step["uses"].partition("@")[0] for step in JOBS[job]["steps"] if "uses" in step]


def test_what_was_built_is_attested_before_it_is_published():
    assert "actions/attest-build-provenance" in uses("attest")
    assert JOBS["attest"]["permissions"] == {"id-token": "write", "attestations": "write"}
    assert {"build", "ci"} <= set(JOBS["attest"]["needs"])
    assert "attest" in JOBS["publish"]["needs"]
    assert JOBS["release"]["needs"] == "publish"


def test_the_job_that_runs_other_peoples_code_may_neither_write_nor_sign():
    writing = {name for name, job in JOBS.items() if "write" in job.get("permissions", {}).values()}
    building = {name for name, job in JOBS.items() for step in job.get("steps", []) if "make " in step.get("run", "")}
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert writing == {"attest", "publish", "release"}
    assert building == {"build"}
    assert {name for name in JOBS if "steps" in JOBS[name] and "actions/checkout" in uses(name)} == {"build"}


LOCK = r"""# of a tool
a==1 ; python_full_version < '3.12' \
    --hash=sha256:00
    # via spark-kafka-sink (pyproject.toml)
a==2 ; python_full_version >= '3.12' \
    --hash=sha256:01
    # via
    #   spark-kafka-sink (pyproject.toml)
    #   b
b==3.post0 \
    --hash=sha256:02
    # via spark-kafka-sink (pyproject.toml)
"""


def component(name: str, version: str, **more: str) -> dict[str, str]:
    """As cyclonedx-py writes it."""
    return {"name": name, "version": version, "description": "requirements line 3: ... --hash=sha256:00", **more}


def completed(lock: str, versions: list[tuple[str, str]], path: Path) -> dict[str, Any]:
    packages = [component(*each, purl=f"pkg:pypi/{each[0]}@{each[1]}", **{"bom-ref": "L"}) for each in versions]
    root = component("spark-kafka-sink", "0.2.0") | {"bom-ref": "root-component"}
    path.write_text(json.dumps({"metadata": {"component": root}, "components": packages, "dependencies": []}))
    path.with_suffix(".txt").write_text(lock)
    subprocess.run([sys.executable, ROOT / ".ci/sbom.py", path, path.with_suffix(".txt")], check=True)
    return json.loads(path.read_text())


def test_the_sbom_says_which_package_needs_which(tmp_path):
    sbom = completed(LOCK, [("a", "1"), ("a", "2"), ("b", "3.post0")], tmp_path / "sbom")
    root = "pkg:pypi/spark-kafka-sink@0.2.0"
    assert sbom["metadata"]["component"]["purl"] == sbom["metadata"]["component"]["bom-ref"] == root
    assert sbom["dependencies"] == [
        {"ref": root, "dependsOn": ["pkg:pypi/a@1", "pkg:pypi/a@2", "pkg:pypi/b@3.post0"]},
        {"ref": "pkg:pypi/a@1", "dependsOn": []},
        {"ref": "pkg:pypi/a@2", "dependsOn": []},
        {"ref": "pkg:pypi/b@3.post0", "dependsOn": ["pkg:pypi/a@2"]},
    ]


def test_the_sbom_describes_a_package_by_where_it_is_installed(tmp_path):
    sbom = completed(LOCK, [("a", "1"), ("b", "3.post0")], tmp_path / "sbom")
    assert sbom["components"][0]["description"] == "Installed where python_full_version < '3.12'"
    assert "description" not in sbom["components"][1]


def test_every_package_of_the_sbom_is_needed(tmp_path):
    lock = (ROOT / "requirements/base.txt").read_text()
    versions = re.findall(r"^([^#\s]\S*)==([^\s;]+)", lock, re.MULTILINE)
    sbom = completed(lock, versions, tmp_path / "sbom")
    needed = {each for dependency in sbom["dependencies"] for each in dependency["dependsOn"]}
    assert needed == {each["bom-ref"] for each in sbom["components"]}
    assert "pkg:pypi/cffi@" in "".join(needed)
