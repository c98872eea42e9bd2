"""Files that other programs read, by the schemas that those publish."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.repository.files import ROOT
from tests.waiting import DEADLINE_S

FILES = {
    "github-workflows": [".github/workflows/ci.yml", ".github/workflows/release.yml"],
    "github-issue-forms": [".github/ISSUE_TEMPLATE/bug.yml", ".github/ISSUE_TEMPLATE/feature.yml"],
    "github-issue-config": [".github/ISSUE_TEMPLATE/config.yml"],
    "dependabot": [".github/dependabot.yml"],
    "compose-spec": ["docker-compose.yml"],
}


@pytest.mark.parametrize("schema", FILES)
def test_the_files_fit_the_schema(schema):
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *FILES[schema]]
    checked = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_file_of_github_has_a_schema():
    there = {str(path.relative_to(ROOT)) for path in (ROOT / ".github").rglob("*.yml")}
    assert there == {name for names in FILES.values() for name in names if name.startswith(".github/")}
