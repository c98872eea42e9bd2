"""README's and the quickstart's first lines in an empty environment with nothing but PySpark and the wheel, as a user
who has built it runs them. ``test_readme.py`` runs all lines, in the environment of the tests.
"""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spark_kafka_sink.testing.kafka_node import free_ports
from tests.repository.files import ROOT
from tests.spark.test_readme import BATCH, PRINTED, TEN_LINES
from tests.spark.topics import Topic
from tests.support.waiting import DEADLINE_S

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(1200)]

INSTALL_S = SCRIPT_S = 600
"""A busy machine needs minutes for what an idle one does in half of one."""


@pytest.fixture(scope="module")
def activated(tmp_path_factory) -> dict[str, str]:
    """The variables of a shell in which the environment is activated, outside of the checkout."""
    folder = tmp_path_factory.mktemp("first-use")
    venv, kept = folder / "venv", {"PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"}
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=ROOT, check=True)
    (wheel,) = folder.glob("*.whl")
    paths = os.pathsep.join([str(ROOT / ".cache/uv/bin"), os.environ["PATH"]])
    uv = shutil.which("uv", path=paths)
    assert uv is not None, "`make setup` fetches uv"
    environment = {name: value for name, value in os.environ.items() if name not in kept}
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, venv], env=environment, check=True)
    environment |= {"VIRTUAL_ENV": str(venv), "PATH": os.pathsep.join([str(venv / "bin"), environment["PATH"]])}
    # The locked versions: those of the index would make a test of other projects' releases of it.
    install = f"source .ci/uv; exec {uv} pip install --quiet --constraint requirements/dev.txt pyspark {wheel}"
    subprocess.run(["bash", "-c", install], cwd=ROOT, env=environment, check=True, timeout=INSTALL_S)
    return environment


@pytest.fixture
def run_script(activated, tmp_path):
    """Saves lines as a file, and runs it. Returns what it prints."""

    def run(lines: str) -> str:
        script = tmp_path / "script.py"
        script.write_text(lines)
        done = subprocess.run(
            ["python", script.name], cwd=tmp_path, env=activated, capture_output=True, text=True, timeout=SCRIPT_S,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_the_environment_has_the_wheel_and_not_the_checkout(run_script, activated):
    printed = run_script("import spark_kafka_sink; print(spark_kafka_sink.__file__)")
    assert Path(printed).is_relative_to(activated["VIRTUAL_ENV"])


def test_readmes_lines_print_what_it_shows(run_script):
    assert run_script(TEN_LINES) == PRINTED


def test_the_quickstarts_broker_and_batch(run_script, activated, tmp_path):
    (port,) = free_ports(1)
    with subprocess.Popen(
        ["spark-kafka-sink", "broker", "--port", str(port)], cwd=tmp_path, env=activated, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    ) as broker:  # fmt: skip
        try:
            said = next((line for line in broker.stdout if " is up: " in line), None)
            assert said is not None, "the broker ended"
            run_script(BATCH.replace("localhost:9092", f"localhost:{port}"))
            records = Topic(f"localhost:{port}", "numbers").records()
        finally:
            broker.send_signal(signal.SIGINT)
        assert "Kafka has stopped." in broker.communicate(timeout=DEADLINE_S)[0]
    assert sorted(int(record.key) for record in records) == list(range(1000))
