"""Large values: what is sent, what is counted, and that nothing keeps the caller's Arrow buffer."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.errors import BufferExhaustedError
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.producer.append.receipt import SendReceipt
from spark_kafka_sink.records import encode
from spark_kafka_sink.records.columns import RecordColumns, TopicColumn
from tests.unit.scripted_engine import TOPIC, Engine

LARGE = 16 << 10
MEMORY = 1 << 20


def values_of(*sizes: int | None) -> list[bytes | None]:
    """Different bytes in each value."""
    return [None if size is None else bytes([number % 251]) * size for number, size in enumerate(sizes, 1)]


def column(values: list[bytes | None]) -> pa.BinaryArray:
    return pa.array(values, pa.binary())


def append(engine: Engine, columns: RecordColumns, partition: int | list[int] = 0) -> SendReceipt:
    receipt = SendReceipt()
    chosen = np.full(len(columns), partition, np.int32) if isinstance(partition, int) else np.array(partition, np.int32)
    engine.parts.appender.append(TopicColumn.of(TOPIC), columns, chosen, receipt)
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


def test_rows_before_an_error_are_sent():
    engine = connected(linger_ms=1000, max_block_ms=0)
    with pytest.raises(BufferExhaustedError):
        append(engine, RecordColumns(value=column(values_of(*[LARGE] * 100))))
    before = sum(batch.count for batch in batches(engine))
    assert before > 0
    engine.settle()
    assert engine.values() == values_of(*[LARGE] * before)
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


@pytest.mark.parametrize(
    ("fails", "keeps"),
    [("accumulator.compress", [b"first"]), ("producer_batch.ProducerBatch.seal", [])],
    ids=["as_it_was_compressed", "as_the_sender_got_it"],
)
def test_incident_a_batch_lost_its_earlier_rows_in_silence_when_an_exception_struck(monkeypatch, fails, keeps):
    engine = connected(compression_type="lz4", batch_size=400, linger_ms=1000)
    first = append(engine, RecordColumns(value=column([b"first"])))

    def fail(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as failing:
        failing.setattr(f"spark_kafka_sink.producer.accumulator.{fails}", fail)
        with pytest.raises(MemoryError):
            append(engine, RecordColumns(value=column([b"x" * 100] * 9)))
    append(engine, RecordColumns(value=column([b"later"])))
    engine.settle()
    with nullcontext() if keeps else pytest.raises(MemoryError):
        first.wait(0)
    assert engine.values() == [*keeps, b"later"]
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
