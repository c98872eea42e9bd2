from __future__ import annotations

import itertools

import pytest

from spark_kafka_sink.commit.fault_points import VARIABLE
from spark_kafka_sink.testing import LocalKafka
from tests.faults.exactly_once.fault import Fault
from tests.faults.exactly_once.processes import Query

_numbers = itertools.count(1)

# A transaction that has timed out is noticed within half a second, not ten.
PROPERTIES = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}


@pytest.fixture(scope="session")
def kafka():
    with LocalKafka(properties=PROPERTIES) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def fault(tmp_path_factory):
    """Seen by every process that is started from here on."""
    file = tmp_path_factory.mktemp("fault") / "fault"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(file))
        yield Fault(file)


@pytest.fixture
def query(kafka, fault):
    """A query of its own, with a topic of its own."""
    name = f"out-{next(_numbers)}"
    kafka.create_topic(name, 2)
    query = Query(kafka.bootstrap_servers, name, fault)
    yield query
    query.end()
