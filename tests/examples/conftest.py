"""Every test here runs in the environment of ``make test-examples``, as a user's shell with that environment would."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from spark_kafka_sink.testing.java import java_environment
from tests.repository.files import ROOT

EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="session")
def shell() -> dict[str, str]:
    """The environment variables of a shell in which the environment is activated."""
    programs = str(Path(sys.executable).parent)
    path = os.pathsep.join((programs, os.environ["PATH"]))
    return java_environment() | {"PATH": path, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
