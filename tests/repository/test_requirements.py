"""The locked environments: every package by hash, from wherever the machine gets its packages."""

import re
import tomllib

import pytest
import yaml

from tests.repository.files import ROOT

LOCKED = sorted((ROOT / "requirements").glob("*.txt"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=!~ ;]", requirement)[0].lower() for requirement in requirements}


def locked(path) -> list[str]:
    """One string per package, its hashes in it."""
    text = re.sub(r"^\s*#.*\n", "", path.read_text(), flags=re.MULTILINE)
    return [entry for entry in text.replace("\\\n", " ").splitlines() if entry.strip()]


@pytest.mark.parametrize("path", LOCKED, ids=lambda path: path.name)
def test_every_package_has_one_version_and_hashes(path):
    entries = locked(path)
    assert entries
    assert [
        entry for entry in entries if not re.match(r"[\w.-]+==\S+( ;.*?)? +--hash=sha256:[0-9a-f]{64}", entry)
    ] == []


@pytest.mark.parametrize("path", LOCKED, ids=lambda path: path.name)
def test_no_address_is_locked_in(path):
    assert "://" not in path.read_text()
    assert "index" not in path.read_text()


def test_the_base_environment_has_what_the_engine_needs():
    base = names(locked(ROOT / "requirements/base.txt"))
    assert names(PROJECT["dependencies"]) <= base
    assert "pyspark" not in base


@pytest.mark.parametrize("name", ["dev.txt", "spark-4.1.txt", "spark-4.2.txt", "spark-4.3.txt"])
def test_a_development_environment_has_every_extra_but_the_one_that_pip_must_compile(name):
    extras = PROJECT["optional-dependencies"]
    wanted = [each for extra in extras if extra != "gssapi" for each in extras[extra]]
    has = names(locked(ROOT / "requirements" / name))
    assert names(wanted + PROJECT["dependencies"]) <= has
    assert "gssapi" not in has


def test_the_environment_of_kerberos_is_that_of_development_and_its_library():
    has = {entry.split(" ")[0] for entry in locked(ROOT / "requirements/gssapi.txt")}
    assert {entry.split(" ")[0] for entry in locked(ROOT / "requirements/dev.txt")} - has == set()
    assert names(PROJECT["optional-dependencies"]["gssapi"]) <= names(list(has))


def workflow_lines(word):
    files = sorted((ROOT / ".github/workflows").glob("*.yml"))
    return [line.strip() for file in files for line in file.read_text().splitlines() if word in line]


def test_actions_of_workflows_are_pinned_by_their_commit():
    """A tag may be moved to other code."""
    used = [line for line in workflow_lines("uses: ") if "uses: ./" not in line]
    assert used
    assert [line for line in used if not re.search(r"@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []


def test_no_checkout_leaves_the_token_of_its_job_to_later_steps():
    steps = [
        step
        for path in sorted((ROOT / ".github/workflows").glob("*.yml"))
        for job in yaml.safe_load(path.read_text())["jobs"].values()
        for step in job.get("steps", [])
        if step.get("uses", "").startswith("actions/checkout@")
    ]
    assert steps
    assert [step for step in steps if step.get("with", {}).get("persist-credentials") is not False] == []


def test_what_workflows_make_and_scripts_install_beside_the_project_has_hashes():
    files = [ROOT / "Makefile", *(path for path in (ROOT / ".ci").iterdir() if path.is_file())]
    ours = [line.strip() for path in files for line in path.read_text().splitlines()]
    installs = [line for line in workflow_lines("pip install") + ours if re.search(r"\bpip (install|sync)\b", line)]
    of_the_project = r"pip install dist/\*\.whl$|--no-deps .*(--editable \.|\*\.whl)$"
    beside = [line for line in installs if not re.search(of_the_project, line)]
    assert beside
    hashed = (
        r'--require-hashes -r (requirements/|\$<$)|pip sync --quiet --require-hashes (requirements/|"\$requirements"$)'
    )
    assert [line for line in beside if not re.search(hashed, line)] == []


def test_the_security_policy_has_the_locked_version_of_each_dependency():
    text = (ROOT / "SECURITY.md").read_text().partition("## Dependencies")[2].partition("\n## ")[0]
    base = dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / "requirements/base.txt").read_text(), re.MULTILINE))
    dev = dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / "requirements/gssapi.txt").read_text(), re.MULTILINE))
    extras = names([each for extra in PROJECT["optional-dependencies"].values() for each in extra])
    wanted = base | {name: dev[name] for name in extras}
    assert {
        name for name, version in wanted.items() if not re.search(rf"(?m)^\| .*\b{name}\b.*\b{version}\b", text)
    } == set()
