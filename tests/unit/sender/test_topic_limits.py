"""A topic takes only smaller batches than batch.size: what a refusal costs, and what is learned from it."""

from __future__ import annotations

from random import Random

import pytest
from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.errors import BrokerError, KafkaError
from spark_kafka_sink.producer.append.receipt import RefusalReceipt, SendReceipt
from spark_kafka_sink.producer.transactions.states import Step as Call
from spark_kafka_sink.records.decode import decode_batches
from tests.unit.scripted_engine import Engine, Step
from tests.unit.sender.test_stray_exceptions import raises_once
from tests.unit.transactions.transactional_engine import TransactionalEngine

BATCH = 262_144
LIMIT = 20_000
both_protocols = pytest.mark.parametrize("v2", [False, True], ids=["v1", "v2"])


def engine(partitions: int = 1, **config: object) -> Engine:
    made = Engine(partitions, **{"batch_size": BATCH, **config})
    made.connect()
    made.max_message_bytes = LIMIT
    return made


def transaction(v2: bool) -> TransactionalEngine:
    made = TransactionalEngine(v2, partitions=1, nodes=1, **{"batch.size": BATCH}).begun()
    made.max_message_bytes = LIMIT
    return made


def rows(first: int, count: int) -> list[bytes]:
    return [b"%08d" % number + b"x" * 92 for number in range(first, first + count)]


def test_a_topic_of_large_batches_refuses_none():
    made = engine()
    made.max_message_bytes = BATCH
    made.append(rows(0, 6_000))
    made.settle()
    assert (made.refused, len(made.requests)) == (0, 3)


def test_halving_teaches_the_limit_of_all_partitions():
    partitions = 4
    made = engine(partitions)
    for partition in range(partitions):
        made.append(rows(0, 6_000), partition)  # two full batches and an open one
    made.settle()
    made.receipt.wait(0)
    assert all(made.values(partition) == rows(0, 6_000) for partition in range(partitions))
    assert made.refused <= 4 * partitions, "of 262144, 131072, 65536 and 32768 bytes"
    assert made.memory_is_free()
    assert set(made.logs[0].identities) == {(1001, 0)}, "the parts of a batch share its sequences"
    refused = made.refused
    made.append(rows(6_000, 3_000))
    made.settle()
    assert made.refused == refused, "new batches are built below the limit"
    assert made.values() == rows(0, 9_000)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_the_limit_holds_for_the_compressed_batch(codec):
    made = engine(compression_type=codec)
    random = Random(1)
    values = [random.randbytes(50) + b"x" * 50 for _ in range(30_000)]
    made.append(values)
    made.settle()
    made.receipt.wait(0)
    assert made.values() == values
    assert made.refused <= 4
    assert len(made.requests) < 250, "batches are filled up to the limit after compression"


def test_a_record_above_the_limit_fails_alone():
    made = engine()
    receipts = [SendReceipt() for _ in range(3)]
    for values, receipt in zip((rows(0, 1_000), [b"y" * 30_000], rows(1_000, 1_000)), receipts, strict=True):
        made.append(values, receipt=receipt)
    made.settle()
    assert made.values() == rows(0, 2_000)
    receipts[0].wait(0)
    receipts[2].wait(0)
    with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE"):
        receipts[1].wait(0)
    assert receipts[2].deliveries[TopicPartition("t", 0)].count == 1_000


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_receipt_that_keeps_refused_records_has_their_bytes_and_no_error(codec):
    made = engine(compression_type=codec)
    large = Random(1).randbytes(30_000)
    receipt = RefusalReceipt()
    made.append([*rows(0, 100), large, *rows(100, 100), large], receipt=receipt)
    made.settle()
    receipt.wait(0)
    assert made.values() == rows(0, 200)
    assert receipt.deliveries[TopicPartition("t", 0)].count == 200
    for _ in range(2):
        record = receipt.take_refused()
        assert record.partition == TopicPartition("t", 0)
        assert record.error.name == "MESSAGE_TOO_LARGE"
        assert [each.value for each in decode_batches(record.batch)[0].records] == [large]
    assert receipt.take_refused() is None
    assert made.memory_is_free()


def test_a_receipt_that_keeps_refused_records_fails_with_every_other_error():
    made = engine()
    receipt = RefusalReceipt()
    made.append(rows(0, 1), receipt=receipt)
    made.spin()
    made.steps.append(Step(before={0: ErrorCode.invalid_record}))
    made.append(rows(1, 1), receipt=receipt)
    made.settle()
    with pytest.raises(BrokerError, match="INVALID_RECORD"):
        receipt.wait(0)
    assert receipt.failed == TopicPartition("t", 0)
    assert receipt.take_refused() is None


def test_a_retry_between_the_parts_keeps_their_order():
    made = engine()
    made.append(rows(0, 3_000))
    made.spin()
    made.steps.extend([Step(before={0: ErrorCode.not_leader_or_follower}), Step(lose_response=True)])
    made.append(rows(3_000, 3_000))
    made.settle()
    made.receipt.wait(0)
    assert made.values() == rows(0, 6_000)


def test_a_limit_that_was_lowered_is_learned_by_halving():
    made = engine()
    made.append(rows(0, 3_000))
    made.settle()
    made.max_message_bytes = 6_000
    made.append(rows(3_000, 3_000))
    made.settle()
    made.receipt.wait(0)
    assert made.values() == rows(0, 6_000)


@both_protocols
def test_a_transaction_whose_batches_are_split_is_committed_whole(v2):
    made = transaction(v2)
    made.append(rows(0, 6_000))
    made.spin()
    made.call(Call.COMMIT)
    assert made.visible() == rows(0, 6_000)
    refused = made.refused
    assert 0 < refused <= 4
    made.begin()
    made.append(rows(6_000, 3_000))
    made.call(Call.COMMIT)
    assert made.visible() == rows(0, 9_000)
    assert made.refused == refused


def test_a_batch_that_cannot_be_split_fails_and_those_of_other_requests_are_sent(monkeypatch):
    made = engine(partitions=2)
    receipts = [SendReceipt(), SendReceipt()]
    raises_once(monkeypatch, made.parts.accumulator, "split", MemoryError)
    for partition, receipt in enumerate(receipts):
        made.append(rows(0, 2_000), partition, receipt)
        made.settle(10_000)
    with pytest.raises(KafkaError, match="a bug"):
        receipts[0].wait(0)
    receipts[1].wait(0)
    assert (made.values(0), made.values(1)) == ([], rows(0, 2_000))
    later = SendReceipt()
    made.append(rows(0, 100), 0, later)
    made.settle(1_000)
    later.wait(0)
    assert made.memory_is_free()


def test_incident_a_raised_limit_was_never_noticed():
    made = engine(metadata_max_age_ms=300_000)
    made.append(rows(0, 3_000))
    made.settle()
    taught = made.parts.accumulator.batch_limit("t")
    assert taught <= LIMIT
    made.max_message_bytes = BATCH
    made.append(rows(3_000, 1))
    made.settle()
    assert made.parts.accumulator.batch_limit("t") == taught, "not before its time"
    made.clock.advance(300_000)
    made.append(rows(3_001, 1))
    made.settle()
    assert made.parts.accumulator.batch_limit("t") == BATCH
    made.append(rows(3_002, 3_000))
    made.settle()
    assert made.values() == rows(0, 6_002)


def test_a_limit_that_stands_is_learned_again():
    made = engine(metadata_max_age_ms=300_000)
    made.append(rows(0, 3_000))
    made.settle()
    refused = made.refused
    made.clock.advance(300_000)
    made.append(rows(3_000, 1))
    made.settle()
    made.append(rows(3_001, 2_999))
    made.settle()
    assert made.refused > refused
    assert made.parts.accumulator.batch_limit("t") <= LIMIT
    assert made.values() == rows(0, 6_000)
