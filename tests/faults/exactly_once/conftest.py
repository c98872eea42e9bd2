from __future__ import annotations

import itertools
from contextlib import ExitStack

import pytest

from spark_kafka_sink.testing import LocalKafka
from spark_kafka_sink.testing.local_kafka import DEFAULT_VERSION
from tests.faults.exactly_once.processes import Query
from tests.faults.support.fault import Fault
from tests.faults.support.kill_points import VARIABLE
from tests.faults.support.proxy import Proxy

_numbers = itertools.count(1)

# A transaction that has timed out is noticed within half a second, not ten.
PROPERTIES = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}


@pytest.fixture(scope="session")
def kafka(request):
    """Of the first ``--kafka-version``."""
    version = (request.config.getoption("kafka_version") or [DEFAULT_VERSION])[0]
    with LocalKafka(version=version, properties=PROPERTIES) as kafka:
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


@pytest.fixture
def proxies(kafka):
    """Before each node, by its id."""
    with ExitStack() as stack:
        addresses = [address.split(":") for address in kafka.bootstrap_servers.split(",")]
        brokers = zip(kafka.node_ids, addresses, strict=True)
        yield {node: stack.enter_context(Proxy((host, int(port)))) for node, (host, port) in brokers}


@pytest.fixture
def parted(query, proxies):
    """A query whose planning, commit and abort go through the proxies."""
    query.through = {proxy.broker: proxy.address for proxy in proxies.values()}
    return query
