"""All brokers of a cluster are upgraded, one by one, between two attempts to end the same transactions."""

from __future__ import annotations

import pytest

from spark_kafka_sink.testing import LocalKafka
from tests.faults.exactly_once.test_crashes import EACH_ONCE, MORE, ROWS
from tests.faults.exactly_once.three_nodes import (
    END_TXN,
    PROPERTIES,
    SENT_END_TXN_VERSIONS,
    all_in_sync,
    cut_at_the_end,
)
from tests.faults.support.proxy import Direction

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

OLD, NEW = "3.9.1", "4.4.0"


@pytest.fixture(params=[1, 3], ids=["alone", "rolling"])
def kafka(request):
    properties = PROPERTIES if request.param == 3 else {}
    with LocalKafka(nodes=request.param, version=OLD, properties=properties) as kafka:
        yield kafka


def test_an_upgrade_between_two_attempts_of_an_end(kafka, parted, proxies):
    """The answer to one end is lost with the network; the next attempt meets brokers of another release."""
    parted.options = {"delivery.timeout.ms": 300_000}
    parted.timeout_ms = 600_000
    reports = parted.tasks(parted.plan(), 0, ROWS)
    commit, _ = cut_at_the_end(Direction.TO_CLIENT, parted=True).strike(kafka, parted, proxies, reports)
    for proxy in proxies.values():
        proxy.part()
    for node in kafka.node_ids:
        kafka.stop(node)
        kafka.start(node, version=NEW)
        all_in_sync(kafka, parted)
    for proxy in proxies.values():
        proxy.heal()
    commit.result()
    assert set().union(*(proxy.versions(END_TXN) for proxy in proxies.values())) == {SENT_END_TXN_VERSIONS[1]}
    parted.run(1, MORE)
    assert parted.committed() == {**EACH_ONCE, b"e": 1, b"f": 1}
