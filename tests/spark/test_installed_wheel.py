"""Batch and stream with both guarantees on the Python that runs the tests; for `make test-pythons`."""

import os
import sys
from pathlib import Path

import pytest

from tests.spark.deployed_job import EVERY_ROW
from tests.support.child_processes import finished

JOB = Path(__file__).parent / "deployed_job.py"

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_batch_and_a_stream_of_the_installed_package(topic, tmp_path):
    """Started outside of the checkout, so that driver and workers import what is installed."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment = {**kept, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    command = [sys.executable, "-P", JOB, topic.servers, topic.name, tmp_path / "job"]
    code, output = finished(command, 500, env=environment, cwd=tmp_path)
    assert code == 0, output
    assert topic.values() == EVERY_ROW
