"""``python -m tests.support.install_java``: installs a headless JRE with the package manager if there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from spark_kafka_sink.testing.java import JavaError, find_java, package_manager


def install_java() -> Path:
    """The ``java`` that was found or installed. Raises ``JavaError`` where installing needs permission."""
    try:
        return find_java()
    except JavaError:
        manager = package_manager()
        if manager is None or manager.as_root != (os.geteuid() == 0):
            raise
    sys.stderr.write(f"Installing Java: {manager.install}\n")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(["sh", "-c", manager.install], env=environment, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise JavaError(f"Installing Java failed with exit code {done.returncode}: {manager.install}")
    return find_java()


if __name__ == "__main__":
    try:
        install_java()
    except JavaError as error:
        sys.exit(f"error: {error}")
