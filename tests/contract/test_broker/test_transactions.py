"""What the scenarios against a real Kafka cannot force: held markers, timeouts, epochs that run out."""

from __future__ import annotations

import pytest

from spark_kafka_sink.testing import TestBroker
from spark_kafka_sink.testing.broker.state.cluster import BrokerNode, Cluster
from spark_kafka_sink.testing.broker.state.config import broker_config
from spark_kafka_sink.testing.broker.state.offsets import GroupOffsets
from spark_kafka_sink.testing.broker.state.transactions import (
    LAST_EPOCH,
    ProducerIdentity,
    TransactionCoordinator,
)
from tests.contract.plain_client import PlainClient
from tests.contract.transactional_writer import V1, V2, TransactionalWriter
from tests.support.waiting import eventually

TIMEOUT_MS = 1000


@pytest.fixture
def coordinator() -> TransactionCoordinator:
    cluster = Cluster([BrokerNode(1, "localhost", 9092)], broker_config({}))
    cluster.create_topic("t", 1, 1, {})
    return TransactionCoordinator(cluster, GroupOffsets(cluster, 4, acks=1))


def begun(coordinator: TransactionCoordinator, *, epoch: int) -> ProducerIdentity:
    """A transaction under way, of a producer that has used up ``epoch`` epochs."""
    coordinator.init_producer_id("tx", TIMEOUT_MS, None, 0)
    coordinator.transactions["tx"].epoch = epoch
    identity = coordinator.transactions["tx"].identity
    coordinator.add_partitions("tx", identity, (), 0)
    return identity


@pytest.mark.parametrize("version", [V1, V2])
def test_held_markers_leave_the_transaction_prepared(broker: TestBroker, client: PlainClient, version: str) -> None:
    writer = TransactionalWriter(client, "t", "tx", version)
    if version == V1:
        writer.add()
    writer.write(0)
    broker.hold_markers()
    identity = {"transactional_id": "tx", "producer_id": writer.identity[0], "producer_epoch": writer.identity[1]}
    end = {"v1": 3, "v2": 5}[version]
    assert client.ask("EndTxn", end, **identity, committed=True).error_code.name == "none"
    assert broker.transaction_state("tx") == "PrepareCommit"
    assert client.ask("EndTxn", end, **identity, committed=True).error_code.name == "concurrent_transactions"
    assert writer.init() == ("concurrent_transactions", -1)
    assert broker.topic("t").values() == []

    broker.release_markers()

    assert broker.transaction_state("tx") == "CompleteCommit"
    assert client.ask("EndTxn", end, **identity, committed=True).error_code.name == "none"
    assert broker.topic("t").values() == [b"x"]


def test_a_transaction_over_its_timeout_is_aborted_and_fenced(broker: TestBroker, client: PlainClient) -> None:
    writer = TransactionalWriter(client, "t", "tx")
    assert writer.init(transaction_timeout=1)[0] == "none"
    assert (writer.add(1), broker.transaction_state("tx")) == ("none", "Ongoing")

    eventually(lambda: broker.transaction_state("tx") == "CompleteAbort")

    assert writer.commit(1) == "producer_fenced"


def test_a_topic_deleted_under_a_transaction_does_not_stop_its_end(broker: TestBroker, client: PlainClient) -> None:
    writer = TransactionalWriter(client, "t", "tx", V2)
    writer.write(0)
    broker.delete_topic("t")

    assert writer.commit() == "none"


def test_an_exhausted_epoch_ends_v2_with_a_new_producer_id(coordinator: TransactionCoordinator) -> None:
    identity = begun(coordinator, epoch=LAST_EPOCH)

    renewed = coordinator.end("tx", identity, committed=True, bump=True, now_ms=0)

    assert renewed.producer_id != identity.producer_id
    assert renewed.epoch == 0
    assert coordinator.end("tx", identity, committed=True, bump=True, now_ms=0) == renewed  # a retry


def test_an_exhausted_epoch_gets_a_new_producer_id_at_init(coordinator: TransactionCoordinator) -> None:
    identity = begun(coordinator, epoch=LAST_EPOCH)
    coordinator.end("tx", identity, committed=True, bump=False, now_ms=0)

    renewed = coordinator.init_producer_id("tx", TIMEOUT_MS, identity, 0)

    assert renewed == (identity.producer_id + 1, 0)
