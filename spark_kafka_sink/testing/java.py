"""The Java that Spark and Kafka run on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
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
    """A package manager. ``install``: a shell command. ``as_root``: whether root must run it (for brew, root must
    not)."""

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
    """The major version; 0 if ``java`` is missing or does not run."""
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
    manager = package_manager()
    if manager is None:
        return f"Install a JRE {OLDEST_JAVA} or newer and point JAVA_HOME at it."
    prefix = "sudo " if manager.as_root and os.geteuid() != 0 else ""
    return f"Install it with: {prefix}sh -c '{manager.install}'"


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home, "bin", "java")
    if on_path := shutil.which("java"):
        yield Path(on_path)
    for pattern in _JAVA_FOLDERS:
        yield from sorted(Path("/").glob(f"{pattern[1:]}/bin/java"))


def package_manager() -> PackageManager | None:
    """This machine's package manager; None if it is unknown."""
    return next((manager for manager in PACKAGE_MANAGERS if shutil.which(manager.program)), None)
