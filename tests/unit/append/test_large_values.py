"""Large values: what is sent, what is counted, and that nothing keeps the caller's Arrow buffer."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from kio.schema.errors import ErrorCode

from spark_kafka_sink.errors import BufferExhaustedError
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.producer.append.receipt import SendReceipt
from spark_kafka_sink.records import encode
from spark_kafka_sink.records.columns import RecordColumns, TopicColumn
from spark_kafka_sink.records.decode import decode_batches
from spark_kafka_sink.records.encode import header_column
from tests.unit.scripted_engine import TOPIC, Engine, Step

LARGE = 16 << 10
MEMORY = 1 << 20


def values_of(*sizes: int | None) -> list[bytes | None]:
    """Different bytes in each value."""
    return [None if size is None else bytes([number % 251]) * size for number, size in enumerate(sizes, 1)]


def column(values: list[bytes | None]) -> pa.BinaryArray:
    return pa.array(values, pa.binary())


def append(engine: Engine, columns: RecordColumns, partition: int | list[int] = 0, topic: Any = TOPIC) -> SendReceipt:
    receipt = SendReceipt()
    chosen = np.full(len(columns), partition, np.int32) if isinstance(partition, int) else np.array(partition, np.int32)
    engine.parts.appender.append(TopicColumn.of(topic), columns, chosen, receipt)
    return receipt


def kept(engine: Engine) -> int:
    return engine.config.buffer_memory - engine.parts.accumulator.pool.available


def batches(engine: Engine) -> list[ProducerBatch]:
    return list(engine.parts.accumulator._incomplete)


def connected(leaderless: int | None = None, **options: object) -> Engine:
    engine = Engine(**{"buffer_memory": MEMORY, **options})  # type: ignore[arg-type]
    if leaderless is not None:
        engine.leaders[leaderless] = -1
    engine.connect()
    return engine


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("batch_size", [100, 16_384, 200_000])
def test_they_arrive_with_null_and_small_ones_between(codec, batch_size):
    engine = connected(compression_type=codec, batch_size=batch_size, partitions=2)
    values = values_of(LARGE, None, 3 * LARGE, 5, 0, LARGE - 1, 10 * LARGE, None)
    append(engine, RecordColumns(value=column(values)), [0, 0, 1, 1, 0, 1, 0, 1])
    engine.settle()
    assert engine.values(0) == [values[row] or b"" for row in (0, 1, 4, 6)]
    assert engine.values(1) == [values[row] or b"" for row in (2, 3, 5, 7)]
    assert engine.memory_is_free()


def test_keys_headers_and_timestamps_of_any_size_stay_with_their_values():
    engine = connected(batch_size=300_000)
    sent: list[bytes] = []
    accept = engine.logs[0].append
    engine.logs[0].append = lambda data: (sent.append(data), accept(data))[1]  # type: ignore[method-assign,func-returns-value]
    keys = [None, b"", b"k" * 50_000, b"key"]
    values = values_of(LARGE, 2 * LARGE, None, 3 * LARGE)
    headers = [[("h", b"x" * 20_000)], [], None, [("a", None), ("b", b"")]]
    stamps = np.array([5_000, 1_000, 9_000_000_000, 7], np.int64)
    columns = RecordColumns(
        column(keys), column(values), header_column(pa.array(headers, pa.map_(pa.string(), pa.binary()))), stamps
    )
    append(engine, columns)
    engine.settle()
    found = [record for data in sent for batch in decode_batches(data) for record in batch.records]
    assert [record.key for record in found] == keys
    assert [record.value for record in found] == values
    assert [record.timestamp for record in found] == stamps.tolist()
    assert [record.headers for record in found] == [
        ((b"h", b"x" * 20_000),), (), (), ((b"a", None), (b"b", b"")),
    ]  # fmt: skip


def test_what_is_sent_before_the_call_returns_counts_no_more(monkeypatch):
    engine = connected(buffer_memory=8 * LARGE, max_block_ms=60_000)
    monkeypatch.setattr(engine.parts.sender_thread, "wakeup", engine.spin)
    append(engine, RecordColumns(value=column(values_of(*[LARGE] * 100))))
    engine.settle()
    assert len(engine.values()) == 100
    assert engine.memory_is_free()


def test_rows_before_an_error_are_sent():
    engine = connected(linger_ms=1000, max_block_ms=0)
    with pytest.raises(BufferExhaustedError):
        append(engine, RecordColumns(value=column(values_of(*[LARGE] * 100))))
    before = sum(batch.count for batch in batches(engine))
    assert before > 0
    engine.settle()
    assert engine.values() == values_of(*[LARGE] * before)
    assert engine.memory_is_free()


def test_a_retry_and_a_new_epoch_send_the_same_records():
    """After OUT_OF_ORDER_SEQUENCE_NUMBER without an earlier batch, the partition starts a new epoch."""
    engine = connected(max_block_ms=0)
    sent: list[bytes] = []
    accept = engine.logs[0].append
    engine.logs[0].append = lambda data: (sent.append(data), accept(data))[1]  # type: ignore[method-assign,func-returns-value]
    append(engine, RecordColumns(value=column([b"first"])))
    engine.spin()
    engine.logs[0].forget_producers()
    engine.steps.extend([Step(before={0: ErrorCode.not_leader_or_follower}), Step(lose_response=True)])
    append(engine, RecordColumns(value=column(values_of(*[LARGE] * 4))))
    engine.settle()
    assert engine.values() == [b"first", *values_of(*[LARGE] * 4)]
    assert engine.memory_is_free()
    assert len(engine.logs[0].identities) > 1


def test_a_batch_that_is_too_large_is_split():
    engine = connected(batch_size=20 * LARGE)
    engine.max_message_bytes = 3 * LARGE
    values = values_of(*[LARGE] * 8)
    receipt = append(engine, RecordColumns(value=column(values)))
    engine.settle()
    receipt.wait(0)
    assert engine.values() == values
    assert engine.memory_is_free()


def test_the_callers_arrow_buffer_is_free_when_the_call_returns():
    engine = connected(leaderless=0)
    gc.collect()
    before = pa.total_allocated_bytes()
    array = column(values_of(*[LARGE] * 40))
    append(engine, RecordColumns(value=array[:3]))
    del array
    assert pa.total_allocated_bytes() - before < 4 * LARGE
    assert 3 * LARGE <= kept(engine) < 4 * LARGE
    engine.leaders[0] = 0
    engine.settle()
    assert engine.memory_is_free()


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_incident_a_buffer_of_an_open_batch_that_a_later_call_filled_and_compressed_was_never_free(codec):
    engine = connected(compression_type=codec, batch_size=3 * LARGE, linger_ms=50)
    values = values_of(LARGE, LARGE, 2 * LARGE)
    append(engine, RecordColumns(value=column(values)[:1]))
    append(engine, RecordColumns(value=column(values)[1:]))
    engine.settle()
    assert engine.values(0) == values
    assert engine.memory_is_free()


def test_an_exception_while_the_sender_gets_the_rows_fails_their_batches_and_the_producer_goes_on(monkeypatch):
    engine = connected(compression_type="lz4", batch_size=400, linger_ms=1000)
    first = append(engine, RecordColumns(value=column([b"first"])))

    def fail(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as failing:
        failing.setattr(ProducerBatch, "seal", fail)
        with pytest.raises(MemoryError):
            append(engine, RecordColumns(value=column([b"x" * 100] * 9)))
    with pytest.raises(MemoryError):
        first.wait(0)
    append(engine, RecordColumns(value=column([b"second"])))
    engine.settle()
    assert engine.values() == [b"second"]
    assert engine.memory_is_free()


def test_incident_one_large_value_made_each_group_of_small_rows_go_through_the_whole_columns(monkeypatch):
    engine = connected(partitions=40, linger_ms=1000, max_block_ms=0)
    seen: list[float] = []
    slots = encode.RowJoin.slots

    def noted(join: Any, source: pa.Array, *others: Any) -> None:
        seen.append(len(source) / join._rows)
        slots(join, source, *others)

    monkeypatch.setattr(encode.RowJoin, "slots", noted)
    append(engine, RecordColumns(value=column(values_of(LARGE, *[100] * 4000))), [row % 40 for row in range(4001)])
    engine.settle()
    assert sum(len(engine.values(partition)) for partition in range(40)) == 4001
    assert max(seen) < 2
