"""``spark-kafka-sink selftest --no-write`` through Spark, on a real Kafka."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from spark_kafka_sink.testing.kafka_security import properties_text
from spark_kafka_sink.testing.listener import login
from tests.support.child_processes import PYTHON_PATH

pytestmark = pytest.mark.jvm

ROOT = Path(__file__).parents[2]
SPARK_HOME = str(Path(pyspark.__file__).parent)
MECHANISM = "SCRAM-SHA-512"
on_kafka = pytest.mark.parametrize("secure_kafka", ["4.4.0"], indirect=True, scope="session")
# In every Python process: what an executor's has, and what it lacks. The client's sockets do not block, PySpark's do.
SITE = """
import errno, os, socket, sys
if "FORGET" in os.environ:
    os.environ.pop("KAFKA_PASSWORD", None)
if "WITHOUT_THE_PACKAGE" in os.environ:
    sys.modules["spark_kafka_sink"] = None
if "WITHOUT_A_ROUTE" in os.environ:
    connect = socket.socket.connect
    def connect_if_blocking(self, address):
        if self.gettimeout() == 0:
            raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
        connect(self, address)
    socket.socket.connect = connect_if_blocking
"""

COMMAND = (sys.executable, "-m", "spark_kafka_sink.tools.cli.main", "selftest", "--no-write")


@pytest.fixture
def check(secure_kafka, tmp_path):
    """Runs the command; returns its exit code, its lines with single spaces, and what it wrote to stderr."""
    (tmp_path / "sitecustomize.py").write_text(SITE)
    options = secure_kafka.client_options("SASL_TLS", mechanism=MECHANISM)
    servers = options.pop("bootstrap.servers")
    (tmp_path / "ca.pem").write_text(options.pop("ssl.truststore.certificates"))
    options["ssl.truststore.location"] = str(tmp_path / "ca.pem")
    options["sasl.jaas.config"] = login(MECHANISM, "client", "${env:KAFKA_PASSWORD}")
    file = tmp_path / "client.properties"
    file.write_text(properties_text(options))

    def run(*arguments, command=COMMAND, **environment):
        line = ["--bootstrap-server", servers, "--command-config", str(file)]
        done = subprocess.run(
            [*command, *line, *arguments],
            env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{PYTHON_PATH}", **environment},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert "client-secret" not in done.stdout + done.stderr
        return done.returncode, [" ".join(each.split()) for each in done.stdout.splitlines()], done.stderr

    return run


LOCAL = ("--master", "local[2,4]")
CLUSTER = ("--master", "local-cluster[2,1,1024]", "--conf", "spark.executor.memory=1g")
UNRESOLVED = "sasl.jaas.config has ${env:KAFKA_PASSWORD}, for which there is no value"


SUBMIT = (f"{SPARK_HOME}/bin/spark-submit", "--master", "local[2]", f"{ROOT}/jobs/check.py")


@pytest.mark.slow
@on_kafka
@pytest.mark.parametrize(
    ("arguments", "command"),
    [(LOCAL, COMMAND), (("--remote", "local[2]"), COMMAND), ((), SUBMIT)],
    ids=["local", "Spark Connect", "spark-submit"],
)
def test_workers_on_this_machine_find_what_the_driver_finds(check, arguments, command):
    home = {} if command is COMMAND else {"SPARK_HOME": SPARK_HOME}
    code, lines, errors = check(*arguments, command=command, KAFKA_PASSWORD="client-secret", **home)
    assert code == 0, (lines, errors)
    assert lines[-2:] == [
        "ok connection of the driver: no step failed",
        "ok connection of the executors: 1 executor, none differs from the driver",
    ]


def differing(check, variable, step, *arguments):
    """Standard error of a check on a cluster of two executors, which differ by this variable, with single spaces."""
    line = (*CLUSTER, "--conf", f"spark.executorEnv.{variable}=1", *arguments)
    code, lines, errors = check(*line, KAFKA_PASSWORD="client-secret")
    assert code == 1, (lines, errors)
    assert lines[-2:] == [
        "ok connection of the driver: no step failed",
        f"FAILED connection of the executors: 2 executors, 2 differ from the driver, first at {step}",
    ]
    return " ".join(errors.split())


@pytest.mark.slow
@on_kafka
def test_a_password_that_only_the_driver_has_is_told_for_each_executor(check):
    told = differing(check, "FORGET", "SASL").partition("executor ")[2]
    assert told.count("(process ") == 2
    assert told.count("FAILED SASL") == 1
    assert UNRESOLVED in told
    assert "here: SCRAM-SHA-512 as client" in told


@pytest.mark.slow
@on_kafka
def test_executors_without_the_package_are_told(check):
    told = differing(check, "WITHOUT_THE_PACKAGE", "import")
    assert "No module named 'spark_kafka_sink" in told or "spark_kafka_sink halted" in told


@pytest.mark.slow
@on_kafka
def test_a_ca_file_that_only_the_driver_has_is_told(check):
    """An executor's working directory is another one."""
    told = differing(check, "NOTHING", "options", "--command-property", "ssl.truststore.location=ca.pem")
    assert "ssl.truststore.location ca.pem cannot be read: No such file or directory" in told
    assert told.count("(process ") == 2


@pytest.mark.slow
@on_kafka
def test_executors_without_a_route_are_told(check):
    told = differing(check, "WITHOUT_A_ROUTE", "TCP")
    assert "No route to host" in told
    assert told.count("(process ") == 2
