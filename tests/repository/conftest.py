"""Builds of the package, each made once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.repository.files import ROOT

ADDRESS = "https://code.example/team/sink"
PROJECT_URL = f"{ADDRESS}/"
Built = Callable[..., dict[str, bytes]]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """``built(address, sources)``: sdist and wheel by their file names, built with PROJECT_URL ``address``."""

    @cache
    def build(address: str = "", sources: Path = ROOT) -> dict[str, bytes]:
        environment = {**os.environ, "PROJECT_URL": address}
        environment.pop("SOURCE_DATE_EPOCH", None)
        folder = tmp_path_factory.mktemp("built")
        command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
        subprocess.run(command, cwd=sources, check=True, env=environment, capture_output=True)
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    return build
