"""Calls of columns: what is checked, how rows are cut, and that memory comes back to the byte."""

from __future__ import annotations

import gc
from itertools import chain
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.errors import BufferExhaustedError, InvalidRecordError
from spark_kafka_sink.producer.partitioner import LEFT_OUT
from spark_kafka_sink.producer.receipt import SendReceipt
from spark_kafka_sink.records import encode
from spark_kafka_sink.records.columns import RecordColumns, TopicColumn
from tests.unit.scripted_engine import TOPIC, Engine, Step


def append(engine: Engine, columns: RecordColumns, partitions=None) -> SendReceipt:
    receipt = SendReceipt()
    chosen = None if partitions is None else np.array(partitions, np.int32)
    engine.parts.appender.append(TopicColumn.of(TOPIC), columns, chosen, receipt)
    return receipt


def column(*values: bytes | None) -> pa.BinaryArray:
    return pa.array(values, pa.binary())


def test_rows_before_an_error_are_sent():
    engine = Engine(buffer_memory=1 << 20, linger_ms=1000, max_block_ms=0).connect()
    rows = [b"%03d" % row * 5_000 for row in range(100)]
    with pytest.raises(BufferExhaustedError):
        append(engine, RecordColumns(value=column(*rows)))
    engine.settle()
    sent = engine.values()
    assert sent
    assert sent == rows[: len(sent)]
    assert engine.memory_is_free()


def test_the_callers_arrow_buffer_is_free_when_the_call_returns():
    engine, size = Engine(), 16 << 10
    engine.leaders[0] = -1
    engine.connect()
    gc.collect()
    before = pa.total_allocated_bytes()
    array = column(*[bytes(size)] * 40)
    append(engine, RecordColumns(value=array[:3]), [0] * 3)
    del array
    assert pa.total_allocated_bytes() - before < 4 * size


class OutsideAtTheEnd:
    def partition(self, topic, columns, named, sizes, count, load):
        last = columns.value.to_pylist().index(b"last") if b"last" in columns.value.to_pylist() else len(columns)
        return np.array([count if row == last else 0 for row in range(len(columns))], np.int32)


def test_incident_the_row_of_a_partitioners_error_was_counted_from_its_slice():
    """And the slices before it were appended, though it is said that nothing is."""
    engine = Engine(
        partitions=2, buffer_memory=1 << 16, batch_size=1000, partitioner_class=f"{__name__}:OutsideAtTheEnd"
    ).connect()
    rows = [b"x" * 1000] * 40
    with pytest.raises(InvalidRecordError, match="chose partition 2 for row 40 of topic t") as caught:
        append(engine, RecordColumns(value=column(*rows, b"last")))
    assert caught.value.row == 40
    engine.settle()
    assert engine.values() == []
    assert engine.memory_is_free()
    append(engine, RecordColumns(value=column(*rows[:10])))
    engine.settle()
    assert engine.values() == rows[:10]


class InTurn:
    """Notes how many rows it was asked for."""

    asked: ClassVar[list[int]] = []

    def partition(self, topic, columns, named, sizes, count, load):
        self.asked.append(len(columns))
        return np.full(len(columns), len(self.asked) % count)


def test_incident_the_partitioner_of_a_small_call_was_asked_again_on_the_sender_thread():
    engine = Engine(partitions=2, partitioner_class=f"{__name__}:InTurn").connect()
    for value in (b"a", b"b"):
        append(engine, RecordColumns(value=column(value)))
    engine.settle()
    assert InTurn.asked == [1, 1]
    assert (engine.values(1), engine.values(0)) == ([b"a"], [b"b"])


def test_a_failed_batch_stops_the_next_append_of_its_receipt():
    from kio.schema.errors import ErrorCode

    engine = Engine().connect()
    engine.steps.append(Step(before={0: ErrorCode.invalid_record}))
    receipt = append(engine, RecordColumns(value=column(b"1")))
    engine.settle()
    with pytest.raises(Exception, match="INVALID_RECORD"):
        engine.parts.appender.append(TopicColumn.of(TOPIC), RecordColumns(value=column(b"2")), None, receipt)


def test_a_leaderless_partition_pins_its_own_bytes_and_no_more_once_memory_is_short():
    """One partition of many held a slice of every Arrow batch: 0.5 MiB of records kept 48 MiB."""
    engine = Engine(partitions=20, batch_size=2_000, buffer_memory=2_000_000)
    engine.leaders[7] = -1
    engine.connect()
    for _ in range(20):
        append(engine, RecordColumns(value=column(*[b"x" * 100] * 4000)), [row % 20 for row in range(4000)])
    engine.spin()
    assert len(engine.values(0)) == 20 * 200
    engine.leaders[7] = 0
    engine.settle()
    assert len(engine.values(7)) == 20 * 200
    assert engine.memory_is_free()


@pytest.mark.parametrize("fails", ["append.encode_records", "accumulator.compress", "append.RecordRange"])
def test_a_call_that_fails_midway_leaves_everything_as_it_was(monkeypatch, fails):
    """So another thread's flush waits for nothing of it, and the rows before and after it are sent."""
    engine = Engine(compression_type="lz4", batch_size=400, linger_ms=1000).connect()
    first = append(engine, RecordColumns(value=column(b"first")))
    engine.turn()

    def fail(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as failing:
        failing.setattr(f"spark_kafka_sink.producer.{fails}", fail)
        with pytest.raises(MemoryError):
            append(engine, RecordColumns(value=column(*[b"x" * 100] * 9)))
    engine.turn()
    assert engine.parts.undelivered == 1
    append(engine, RecordColumns(value=column(b"later")))
    engine.settle()
    first.wait(0)
    assert engine.values() == [b"first", b"later"]
    assert engine.memory_is_free()


def test_incident_one_large_value_made_each_group_of_small_rows_go_through_the_whole_columns(monkeypatch):
    engine = Engine(partitions=40, linger_ms=1000).connect()
    seen: list[float] = []
    slots = encode.RowJoin.slots

    def noted(join, source, *others):
        seen.append(len(source) / join._rows)
        slots(join, source, *others)

    monkeypatch.setattr(encode.RowJoin, "slots", noted)
    rows = [bytes(16 << 10), *[b"x" * 100] * 4000]
    append(engine, RecordColumns(value=column(*rows)), [row % 40 for row in range(4001)])
    engine.settle()
    assert sum(len(engine.values(partition)) for partition in range(40)) == 4001
    assert max(seen) < 2


# Rows ``LEFT_OUT`` of an append: the others are written as if they had been appended alone.

ROWS = 900
LEFT = frozenset((0, 1, 17, 400, 401, 402, 898, 899))
KEPT = [row for row in range(ROWS) if row not in LEFT]


class Last:
    """A partitioner of a user that looks at nothing but the rows that name no partition."""

    def partition(self, topic, columns, named, sizes, count, load):
        assert named.min() >= -1
        return np.full(len(columns), count - 1)


def columns(keyed: bool) -> RecordColumns:
    return RecordColumns(
        key=column(*(b"%d" % row for row in range(ROWS))) if keyed else None,
        value=column(*(None if row in LEFT else b"%03d" % row * 20 for row in range(ROWS))),
        timestamps=np.arange(ROWS) + 5,
    )


def delivered(engine: Engine, rows: RecordColumns, partitions) -> SendReceipt:
    receipt = append(engine, rows, partitions)
    engine.settle()
    receipt.wait(0)
    return receipt


def written(engine: Engine) -> list[list[int]]:
    return [[int(value[:3]) for value in engine.values(partition)] for partition in range(len(engine.logs))]


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("named", [-1, 1])
@pytest.mark.parametrize(
    "options", [{}, {"partitioner_class": f"{__name__}:Last"}, {"partitions": 40, "buffer_memory": 1 << 17}]
)
def test_the_others_are_written_once_and_in_their_order(options, keyed, named):
    engine = Engine(**{"partitions": 3, "batch_size": 1000, "linger_ms": 1000, **options}).connect()
    given = [LEFT_OUT if row in LEFT else named for row in range(ROWS)]
    receipt = delivered(engine, columns(keyed), given)
    rows = written(engine)
    assert sorted(chain(*rows)) == KEPT
    assert all(each == sorted(each) for each in rows)
    assert sum(each.count for each in receipt.deliveries.values()) == len(KEPT)
    assert engine.memory_is_free()
    if named != -1:
        assert rows[1] == KEPT


def test_keys_go_where_they_go_without_the_rows_left_out():
    alone, beside = Engine(partitions=5).connect(), Engine(partitions=5).connect()
    delivered(beside, columns(keyed=True), [LEFT_OUT if row in LEFT else -1 for row in range(ROWS)])
    delivered(alone, columns(keyed=True).take(np.array(KEPT)), [-1] * len(KEPT))
    assert written(beside) == written(alone)


def test_a_row_left_out_may_be_larger_than_any_limit_and_is_not_copied():
    engine = Engine(partitions=2, max_request_size=10_000, buffer_memory=100_000).connect()
    rows = [b"a", b"x" * 9_000, b"y" * 5_000_000, b"x" * 9_000, b"b"]
    before = pa.total_allocated_bytes()
    delivered(engine, RecordColumns(value=column(*rows)), [0, 0, LEFT_OUT, 0, 0])
    assert [len(value) for value in engine.values()] == [1, 9_000, 9_000, 1]
    assert pa.total_allocated_bytes() - before < 5_000_000 + 1_000_000
    assert engine.memory_is_free()
