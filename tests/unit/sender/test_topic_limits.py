"""A topic takes only smaller batches than batch.size: what a refusal costs, and what is learned from it."""

from __future__ import annotations

from random import Random

import pytest
from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.errors import BrokerError
from spark_kafka_sink.exactly_once.decode import decode_batches
from spark_kafka_sink.producer.receipt import RefusalReceipt
from tests.unit.scripted_engine import Engine, Step

BATCH = 262_144
LIMIT = 20_000


def engine(partitions: int = 1, **config: object) -> Engine:
    made = Engine(partitions, **{"batch_size": BATCH, **config}).connect()
    made.max_message_bytes = LIMIT
    return made


def rows(first: int, count: int) -> list[bytes]:
    return [b"%08d" % number + b"x" * 92 for number in range(first, first + count)]


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
    made.deliver(rows(6_000, 3_000))
    assert made.refused == refused, "new batches are built below the limit"
    assert made.values() == rows(0, 9_000)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_the_limit_holds_for_the_compressed_batch(codec):
    made = engine(compression_type=codec)
    random = Random(1)
    values = [random.randbytes(50) + b"x" * 50 for _ in range(30_000)]
    made.deliver(values)
    made.receipt.wait(0)
    assert made.values() == values
    assert made.refused <= 4
    assert len(made.requests) < 250, "batches are filled up to the limit after compression"


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_receipt_that_keeps_refused_records_has_their_bytes_and_no_error(codec):
    made = engine(compression_type=codec)
    large = Random(1).randbytes(30_000)
    receipt = RefusalReceipt()
    made.deliver([*rows(0, 100), large, *rows(100, 100), large], receipt=receipt)
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
    made.send(rows(0, 1), receipt=receipt)
    made.steps.append(Step(before={0: ErrorCode.invalid_record}))
    made.deliver(rows(1, 1), receipt=receipt)
    with pytest.raises(BrokerError, match="INVALID_RECORD"):
        receipt.wait(0)
    assert receipt.failed == TopicPartition("t", 0)
    assert receipt.take_refused() is None


def test_incident_a_raised_limit_was_never_noticed():
    made = engine(metadata_max_age_ms=300_000)
    made.deliver(rows(0, 3_000))
    taught = made.parts.accumulator.batch_limit("t")
    assert taught <= LIMIT
    made.max_message_bytes = BATCH
    made.deliver(rows(3_000, 1))
    assert made.parts.accumulator.batch_limit("t") == taught, "not before its time"
    made.clock.advance(300_000)
    made.deliver(rows(3_001, 1))
    assert made.parts.accumulator.batch_limit("t") == BATCH
    made.deliver(rows(3_002, 3_000))
    assert made.values() == rows(0, 6_002)
