"""What every test may rely on: a Java, and one Spark session with its Python workers on this very interpreter."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from spark_kafka_sink.testing.java import java_environment
from tests.support.child_processes import PYTHON_PATH
from tests.support.kafka_versions import is_test_broker
from tests.support.kept import forget_writes

# Spark starts its Python workers with PYSPARK_PYTHON, not with the Python that started the driver.
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"

# A shell starts what it puts into the background with Ctrl-C ignored, and processes of tests would inherit that.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)

# Of one example, by the wall clock: a busy machine would fail it.
settings.register_profile("without a deadline", deadline=None)
settings.load_profile("without a deadline")

ROOT = Path(__file__).parents[1]
# Tests with these markers need an environment of their own, so only its target selects them.
ELSEWHERE = ("gssapi", "examples")
# Files that begin first, so that no process works on one when the others have ended.
LONGEST = ("test_interrupts.py", "test_fuzz.py")
JVM_FIXTURES = {"local_kafka", "local_schema_registry", "secure_kafka", "spark"}


def pytest_configure(config: pytest.Config) -> None:
    """For the processes that tests start: not in xdist's controller, whose children are to have Hypothesis."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (PYTHON_PATH, os.environ.get("PYTHONPATH"))))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The tests of examples import libraries that only their environment has. None leaves the decision to others."""
    return True if collection_path == ROOT / "tests/examples" and "examples" not in config.option.markexpr else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test that asks for a real Kafka or a Spark session needs a JVM; it cannot forget to say so."""
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        asked = JVM_FIXTURES.intersection(getattr(item, "fixturenames", ()))
        if not all(is_test_broker(params.get(fixture)) for fixture in asked):
            item.add_marker("jvm")
    unselected = [marker for marker in ELSEWHERE if marker not in config.option.markexpr]
    others = [item for item in items if any(map(item.get_closest_marker, unselected))]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in others]
    items.sort(key=lambda item: item.path.name not in LONGEST)


@pytest.fixture(scope="session", autouse=True)
def java_home(request: pytest.FixtureRequest) -> None:
    """JAVA_HOME for Spark where Java is not on the PATH. Only when some test needs it."""
    if any(item.get_closest_marker("jvm") for item in request.session.items):
        os.environ.update(java_environment())


@pytest.fixture(autouse=True)
def nothing_that_the_sink_keeps_outlives_its_test() -> Iterator[None]:
    yield
    forget_writes()


@pytest.fixture(autouse=True)
def no_log_settings_of_a_spark_process_outlive_its_test() -> Iterator[None]:
    """Its handler names options as Spark's, with ``kafka.``, and its level hides lines that a later test expects."""
    logger = logging.getLogger("spark_kafka_sink")
    handlers, level = logger.handlers[:], logger.level
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)


@pytest.fixture(scope="session", autouse=True)
def ports_of_its_own() -> None:
    """With xdist: no process gives its brokers a port that one of another process has left only for a while."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None:
        return
    from spark_kafka_sink.testing.broker import acceptor

    part = len(acceptor._PORTS) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    first = int(worker.removeprefix("gw")) * part
    acceptor._PORTS = acceptor._PORTS[first : first + part]


@pytest.fixture(scope="session", params=["4.4.0", pytest.param("3.9.1", marks=pytest.mark.slow)])
def secure_kafka(request: pytest.FixtureRequest):
    """A real Kafka with a listener of each kind, shared: give each test's topics names of their own."""
    from spark_kafka_sink.testing import LocalKafka
    from tests.contract.security.clusters import LISTENERS, PROPERTIES

    if is_test_broker(request.param):
        yield None
        return
    with LocalKafka(version=request.param, listeners=LISTENERS, properties=PROPERTIES) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def spark():
    from spark_kafka_sink.testing.local_spark import local_spark

    settings = {
        "spark.master": "local[2,2]",  # a task may fail once: [cores, attempts]
        "spark.sql.streaming.pollingDelay": "5ms",
        "spark.log.level": "ERROR",
    }
    with local_spark(settings) as session:
        yield session
