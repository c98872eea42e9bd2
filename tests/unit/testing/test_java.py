import os
from pathlib import Path

import pytest

from spark_kafka_sink.testing import java
from spark_kafka_sink.testing.java import JavaError, find_java, java_environment
from tests.support import install_java as installer
from tests.support.install_java import install_java


def make_java(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    program.chmod(0o755)
    return program


def put_on_path(monkeypatch, folder: Path, *programs: str) -> None:
    folder.mkdir(exist_ok=True)
    for program in programs:
        (folder / program).write_text("#!/bin/sh\n")
        (folder / program).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


@pytest.fixture(autouse=True)
def no_java(monkeypatch, tmp_path):
    """A machine without Java and without a package manager."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(java, "_JAVA_FOLDERS", (f"{tmp_path}/jvm/*",))


@pytest.mark.parametrize(
    ("shown", "major"), [("17.0.15", 17), ("21", 21), ("1.8.0_392", 8), ("25-ea", 25), ("gibberish", 0)]
)
def test_versions_are_read_as_java_prints_them(tmp_path, shown, major):
    assert java.java_version(make_java(tmp_path, shown)) == major


def test_java_home_comes_before_the_path_and_the_path_before_the_package_manager_s_folders(monkeypatch, tmp_path):
    in_folder = make_java(tmp_path / "jvm" / "openjdk-21", "21.0.1")
    assert find_java() == in_folder
    on_path = make_java(tmp_path / "path", "17.0.1")
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert find_java() == on_path
    at_home = make_java(tmp_path / "home", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert find_java() == at_home


def test_a_java_that_is_too_old_is_passed_over(monkeypatch, tmp_path):
    make_java(tmp_path / "old", "11.0.2")
    new = make_java(tmp_path / "jvm" / "openjdk-17", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    assert find_java() == new
    assert java_environment()["JAVA_HOME"] == str(new.parent.parent)


def test_the_error_names_what_was_looked_at(monkeypatch, tmp_path):
    old = make_java(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    with pytest.raises(JavaError, match=f"need Java 17 or newer: {old} is Java 11. Install a JRE 17"):
        find_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(JavaError, match="nowhere/bin/java does not run"):
        find_java()


@pytest.mark.parametrize(("program", "user"), [("apt-get", 1000), ("brew", 0)])
def test_nothing_is_installed_where_that_needs_somebody_s_leave(monkeypatch, tmp_path, program, user):
    put_on_path(monkeypatch, tmp_path / "bin", program)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(installer.subprocess, "run", lambda *_, **__: pytest.fail("ran something"))
    with pytest.raises(JavaError, match="Install it with"):
        install_java()


def install_with(monkeypatch, tmp_path, script: str) -> None:
    manager = java.PackageManager("sh", script, as_root=os.geteuid() == 0)
    monkeypatch.setattr(java, "PACKAGE_MANAGERS", (manager,))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(java, "_candidates", lambda: iter((tmp_path / "jvm").glob("*/bin/java")))


def test_a_missing_java_is_installed_where_that_may_be_done(monkeypatch, tmp_path):
    ready = make_java(tmp_path / "package", "17.0.9").parent.parent
    install_with(monkeypatch, tmp_path, f"mkdir {tmp_path}/jvm && mv {ready} {tmp_path}/jvm/openjdk-17")
    assert install_java() == tmp_path / "jvm/openjdk-17/bin/java"


def test_a_failed_installation_says_what_was_tried(monkeypatch, tmp_path):
    install_with(monkeypatch, tmp_path, "exit 100")
    with pytest.raises(JavaError, match="Installing Java failed with exit code 100: exit 100"):
        install_java()
