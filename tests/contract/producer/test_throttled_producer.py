"""Over a quota every response of a broker may ask for a pause: the producer waits, and everything arrives once."""

from __future__ import annotations

import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.errors import KafkaTimeoutError
from spark_kafka_sink.testing import TestBroker
from spark_kafka_sink.testing.broker import KEPT
from tests.support.waiting import eventually, lasts

APIS = ["ApiVersions", "Metadata", "FindCoordinator", "InitProducerId", "AddPartitionsToTxn", "Produce", "EndTxn"]
THROTTLE_MS = 100


@pytest.mark.parametrize("api", APIS)
def test_a_response_that_throttles_is_waited_out(api):
    with TestBroker(like="3.9") as broker:
        broker.create_topic("t")
        broker.create_topic("other")
        fault = broker.faults.throttle(api, THROTTLE_MS, times=KEPT)
        config = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "x", "linger.ms": 0}
        with lasts(THROTTLE_MS / 1000), KafkaProducer(config) as producer:
            # Now all requests go to node 1: a FindCoordinator on the bootstrap connection would throttle only that one.
            producer.partitions_for("other")
            producer.init_transactions()
            for value in (b"1", b"2"):
                producer.begin_transaction()
                producer.send(ProducerRecord("t", value))
                producer.commit_transaction()
        assert broker.topic("t").values() == [b"1", b"2"]
        assert fault.hits


def test_find_coordinator_that_tells_nothing_is_not_asked_at_network_speed(kafka_test_broker):
    empty = b"\0\0\0\0\0\1\0"  # no tags, no throttle time, no coordinators, no tags
    fault = kafka_test_broker.faults.mangle(
        "FindCoordinator", lambda frame: (4 + len(empty)).to_bytes(4, "big") + frame[4:8] + empty, times=KEPT
    )
    config = {"bootstrap.servers": kafka_test_broker.bootstrap_servers, "transactional.id": "x", "max.block.ms": 500}
    with KafkaProducer(config) as producer:
        with pytest.raises(KafkaTimeoutError):
            producer.init_transactions()
        assert fault.hits < 10
        fault.remove()
        eventually(lambda: is_initialised(producer))


def is_initialised(producer):
    """Each call waits half a second."""
    try:
        producer.init_transactions()
    except KafkaTimeoutError:
        return False
    return True
