"""Ways to bring the package to a cluster whose machines lack it, as docs/deploy.md shows them; Spark Connect."""

import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
from pathlib import Path

import pyspark
import pytest

from spark_kafka_sink.testing.kafka_security import properties_text
from tests.spark.cluster import ConnectServer, StandaloneCluster
from tests.spark.deployed_job import EVERY_ROW
from tests.support.child_processes import PYTHON_PATH, finished

ROOT = Path(__file__).parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
JOB = ROOT / "tests/spark/deployed_job.py"
# Variables by which another Python would find the package of this checkout.
HIDDEN = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(600)]


def run(*command, cwd=None, **environment):
    """The output of a command that ends well."""
    kept = {name: value for name, value in os.environ.items() if name not in HIDDEN}
    code, output = finished(command, 400, env={**kept, **environment}, cwd=cwd)
    assert code == 0, output
    return output


def offline(*command, cwd=None):
    return run(*command, cwd=cwd, PIP_CONFIG_FILE=os.devnull, PIP_INDEX_URL="http://127.0.0.1:1/")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """The package's wheel and those of its dependencies, at the locked versions."""
    folder = tmp_path_factory.mktemp("wheels")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    with_pip = tmp_path_factory.mktemp("pip") / "venv"
    run(sys.executable, "-m", "venv", with_pip)
    locked = ROOT / "requirements/base.txt"
    run(with_pip / "bin/pip", "download", "--only-binary", ":all:", "--require-hashes", "-r", locked, "-d", folder)
    return folder


@pytest.fixture(scope="module")
def image(wheels, tmp_path_factory):
    """The environment that the RUN step of conf/Dockerfile makes, without an index."""
    folder = tmp_path_factory.mktemp("image")
    folder.joinpath("wheels").symlink_to(wheels)
    recipe = (ROOT / "conf/Dockerfile").read_text().replace("\\\n", "")
    (step,) = re.findall(r"^RUN --mount=type=bind,source=wheels,target=/opt/wheels (.*)$", recipe, re.MULTILINE)
    offline("sh", "-ec", step.replace("/opt/", f"{folder}/").replace("python3", sys.executable))
    return folder / "pykafka"


@pytest.fixture(scope="module")
def without_the_package(wheels, tmp_path_factory):
    """An environment that has the dependencies, but not the package."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    offline(sys.executable, "-m", "venv", folder)
    locked = ROOT / "requirements/base.txt"
    offline(folder / "bin/pip", "install", "--no-index", "-f", wheels, "-r", locked)
    code = "import importlib.util, kio, pyarrow; print(importlib.util.find_spec('spark_kafka_sink'))"
    assert run(folder / "bin/python", "-c", code, cwd=folder) == "None\n"
    return folder


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        for name in HIDDEN:
            patch.delenv(name, raising=False)
        with StandaloneCluster(tmp_path_factory.mktemp("cluster"), workers=2) as cluster:
            yield cluster


@pytest.fixture
def submit(cluster, topic, tmp_path):
    """Runs deployed_job.py with spark-submit on the cluster, in a folder without the package."""

    def submit(python, *options, register=False):
        job = [JOB, topic.servers, topic.name, tmp_path / "job", *(["--register"] if register else [])]
        settings = ["--conf", "spark.ui.enabled=false", "--conf", "spark.executor.memory=512m"]
        line = [SPARK_HOME / "bin/spark-submit", "--master", cluster.url, *settings, *options, *job]
        return run(*line, cwd=tmp_path, SPARK_HOME=str(SPARK_HOME), PYSPARK_PYTHON=str(python))

    return submit


def test_py_files_of_a_program_that_registers_the_format(submit, without_the_package, wheels, topic, tmp_path):
    (wheel,) = wheels.glob("spark_kafka_sink-*.whl")
    shutil.copy(wheel, tmp_path / "spark_kafka_sink.zip")
    python = without_the_package / "bin/python"
    submit(python, "--py-files", tmp_path / "spark_kafka_sink.zip", register=True)
    assert topic.values() == EVERY_ROW


def test_an_environment_packed_by_venv_pack(submit, image, topic, tmp_path):
    run(sys.executable, "-m", "venv_pack", "-p", image, "-o", tmp_path / "environment.tar.gz", "--compress-level", "0")
    with tarfile.open(tmp_path / "environment.tar.gz") as archive:
        archive.extractall(tmp_path / "environment", filter="fully_trusted")
    submit("./environment/bin/python", "--archives", f"{tmp_path}/environment.tar.gz#environment")
    assert topic.values() == EVERY_ROW


def test_an_image_built_without_a_network(submit, image, topic):
    submit(image / "bin/python")
    assert topic.values() == EVERY_ROW


def test_a_spark_connect_server_for_a_client_without_the_package(image, topic, tmp_path):
    (tmp_path / "sitecustomize.py").write_text('import sys; sys.modules["spark_kafka_sink"] = None')
    with pytest.MonkeyPatch.context() as patch:
        for name in HIDDEN:
            patch.delenv(name, raising=False)
        patch.setenv("PYSPARK_PYTHON", str(image / "bin/python"))
        with ConnectServer(tmp_path) as server:
            job = [sys.executable, JOB, topic.servers, topic.name, tmp_path / "job"]
            run(*job, cwd=tmp_path, PYTHONPATH=str(tmp_path), SPARK_REMOTE=server.url)
    assert topic.values() == EVERY_ROW


@pytest.fixture
def report(cluster, secure_kafka, tmp_path):
    """Runs examples/deploy/report.py with a password in a file. Returns the rows of its table."""
    options = secure_kafka.client_options("SASL_TLS", mechanism="SCRAM-SHA-512")
    servers = options.pop("bootstrap.servers")
    (tmp_path / "client.properties").write_text(properties_text(options))
    script = [ROOT / "examples/deploy/report.py", "--bootstrap-server", servers]
    script += ["--command-config", tmp_path / "client.properties", "--prefix", tmp_path.name]

    def report(python, *submit):
        environment = {name: value for name, value in os.environ.items() if name not in HIDDEN}
        environment |= {"SPARK_HOME": str(SPARK_HOME), "PYSPARK_PYTHON": str(python)}
        spark = ["--master", cluster.url, "--conf", "spark.ui.enabled=false", "--conf", "spark.executor.memory=512m"]
        command = [*submit, *spark, *script] if submit else [python, *script, *spark]
        environment |= {} if submit else {"PYTHONPATH": PYTHON_PATH}
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        private = ("127.0.0.1", "localhost", socket.gethostname(), str(tmp_path), str(ROOT), "client")
        assert [text for text in private if text in done.stdout] == []
        assert "client-secret" not in done.stderr
        return [re.fullmatch(r"\| ([^|]*) \| ([^|]*) \|", line).groups() for line in done.stdout.splitlines()[2:]]

    return report


@pytest.mark.parametrize("secure_kafka", ["4.4.0"], indirect=True, scope="session")
@pytest.mark.parametrize("way", ["python", "spark-submit"])
def test_a_report_of_a_cluster_has_every_step_and_names_nobody(report, way, request):
    """The image's Python finds PySpark in SPARK_HOME, where it is no installed package."""
    if way == "python":
        rows = report(sys.executable)
    else:
        rows = report(request.getfixturevalue("image") / "bin/python", SPARK_HOME / "bin/spark-submit")
    (_, versions), *rows = rows
    assert "spark-kafka-sink 0." in versions
    found = dict(rows)
    assert {found[f"check: {step}"] for step in ("TCP", "TLS", "SASL", "create", "commit", "abort", "delete")} == {"ok"}
    assert found["connection of the executors"] == "ok: 2 executors, none differs from the driver"
    steps = [(what, text) for what, text in rows if what.startswith(("at-least-once, ", "exactly-once, "))]
    assert [what for what, _ in steps] == [
        "at-least-once, batch", "at-least-once, stream, stopped and started again",
        "exactly-once, batch", "exactly-once, batch, the same txnVersion again",
        "exactly-once, stream, stopped and started again",
    ]  # fmt: skip
    assert {text.partition(":")[0] for _, text in steps} == {"ok"}
    assert found["whole"].startswith("every row was read back by ")
    assert rows[-1] == ("selftest", "ok")
