"""The Java that Spark and Kafka run on: find it, or install it where that needs no permission.

``python -m spark_kafka_sink.testing.java`` prints the Java it found; with ``--install`` it installs a headless JRE with
the system's package manager when there is none.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from spark_kafka_sink.errors import KafkaError

OLDEST_JAVA = 17
_VERSION_TIMEOUT_S = 30.0
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


class JavaError(KafkaError):
    """No Java of the version Spark and Kafka need; the message holds the command that installs one."""

    escapes = False


class PackageManager(NamedTuple):
    """``install`` is a shell command; ``as_root``: whether root must run it (for brew: must not)."""

    program: str
    install: str
    as_root: bool


PACKAGE_MANAGERS = (
    PackageManager(
        "apt-get",
        "apt-get update && (apt-get install -y --no-install-recommends openjdk-17-jre-headless"
        " || apt-get install -y --no-install-recommends openjdk-21-jre-headless)",
        as_root=True,
    ),
    PackageManager("dnf", "dnf install -y java-17-openjdk-headless || dnf install -y java-21-openjdk-headless", True),
    PackageManager("apk", "apk add openjdk17-jre-headless", as_root=True),
    PackageManager("brew", "brew install openjdk@17", as_root=False),
)

# Where package managers put a Java without adding it to the PATH.
_JAVA_FOLDERS = ("/usr/lib/jvm/*", "/opt/homebrew/opt/openjdk*", "/usr/local/opt/openjdk*")


def find_java() -> Path:
    """The first ``java`` of version ≥ 17 out of ``JAVA_HOME``, ``PATH`` and the package managers' folders.

    Raises ``JavaError`` with the places searched and the command that installs one.
    """
    seen = []
    for java in _candidates():
        version = java_version(java)
        if version >= OLDEST_JAVA:
            return java
        seen.append(f"{java} is Java {version}" if version else f"{java} does not run")
    found = "; ".join(seen) or "there is none in JAVA_HOME or on the PATH"
    raise JavaError(f"Spark and Kafka need Java {OLDEST_JAVA} or newer: {found}. {how_to_install()}")


def java_version(java: Path) -> int:
    """Major version, 0 when ``java`` is missing or does not run."""
    try:
        shown = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return 0
    match = _VERSION.search(shown)
    return int(match[1]) if match else 0


def java_environment() -> dict[str, str]:
    """``os.environ`` with ``JAVA_HOME`` set to the Java of ``find_java``: Spark's start scripts read it first."""
    return {**os.environ, "JAVA_HOME": str(find_java().resolve().parent.parent)}


def how_to_install() -> str:
    """One sentence with the command for this machine."""
    manager = _package_manager()
    if manager is None:
        return f"Install a JRE {OLDEST_JAVA} or newer and point JAVA_HOME at it."
    prefix = "sudo " if manager.as_root and os.geteuid() != 0 else ""
    return f"Install it with: {prefix}sh -c '{manager.install}'"


def install_java() -> Path:
    """Installs a JRE when there is none; returns ``java``. Raises ``JavaError`` where that needs permission."""
    try:
        return find_java()
    except JavaError:
        manager = _package_manager()
        if manager is None or manager.as_root != (os.geteuid() == 0):
            raise
    print(f"Installing Java: {manager.install}", file=sys.stderr)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(["sh", "-c", manager.install], env=environment, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise JavaError(f"Installing Java failed with exit code {done.returncode}: {manager.install}")
    return find_java()


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home, "bin", "java")
    if on_path := shutil.which("java"):
        yield Path(on_path)
    for pattern in _JAVA_FOLDERS:
        yield from sorted(Path("/").glob(f"{pattern[1:]}/bin/java"))


def _package_manager() -> PackageManager | None:
    return next((manager for manager in PACKAGE_MANAGERS if shutil.which(manager.program)), None)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m spark_kafka_sink.testing.java", description=__doc__)
    parser.add_argument("--install", action="store_true", help="install a headless JRE when there is none")
    try:
        print(install_java() if parser.parse_args(argv).install else find_java())
    except JavaError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
