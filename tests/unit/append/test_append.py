"""Columns into the accumulator: what is checked, how rows are cut, and that memory comes back to the byte."""

from __future__ import annotations

import gc
import threading
import time
from contextlib import nullcontext
from itertools import chain

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.common.waiting import Sleeper
from spark_kafka_sink.errors import BufferExhaustedError, InvalidRecordError
from spark_kafka_sink.producer.accumulator import Flush
from spark_kafka_sink.producer.partitioner import LEFT_OUT
from spark_kafka_sink.producer.receipt import SendReceipt
from spark_kafka_sink.records import encode
from spark_kafka_sink.records.columns import RecordColumns, TopicColumn
from tests.support.waiting import DEADLINE_S
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
    def partition(self, topic, columns, explicit, sizes, count, load):
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


def test_a_failed_batch_stops_the_next_append_of_its_receipt():
    from kio.schema.errors import ErrorCode

    engine = Engine().connect()
    engine.steps.append(Step(before={0: ErrorCode.invalid_record}))
    receipt = append(engine, RecordColumns(value=column(b"1")))
    engine.settle()
    with pytest.raises(Exception, match="INVALID_RECORD"):
        engine.parts.appender.append(TopicColumn.of(TOPIC), RecordColumns(value=column(b"2")), None, receipt)


def _flushed_while(monkeypatch, engine: Engine, target: str) -> tuple[threading.Thread, list[BaseException]]:
    """A thread that flushes, begun while ``target`` is at work; then that fails."""
    raised: list[BaseException] = []
    accumulator = engine.parts.accumulator
    waits = threading.Event()
    sleep = Sleeper.wait

    def sleeping(sleeper, ms):
        waits.set()
        sleep(sleeper, ms)

    monkeypatch.setattr(Sleeper, "wait", sleeping)

    def flush() -> None:
        try:
            accumulator.await_flush(accumulator.begin_flush(Flush()), 60_000)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=flush, daemon=True)

    def fail(*_args):
        thread.start()
        assert waits.wait(DEADLINE_S)
        raise MemoryError

    monkeypatch.setattr(target, fail)
    return thread, raised


@pytest.mark.parametrize(
    "fails",
    [
        "spark_kafka_sink.producer.rows.encode_records",
        "spark_kafka_sink.producer.accumulator.compress",
    ],
)
def test_incident_a_flush_waited_for_rows_that_another_thread_could_not_encode(monkeypatch, fails):
    """For a batch that was given back for ever; after a retract it slept on for a minute."""
    engine = Engine(linger_ms=1000, compression_type="zstd").connect()
    thread, raised = _flushed_while(monkeypatch, engine, fails)
    release = engine.parts.accumulator.pool.release
    monkeypatch.setattr(engine.parts.accumulator.pool, "release", lambda batches: (time.sleep(0.1), release(batches)))
    with pytest.raises(MemoryError):
        append(engine, RecordColumns(value=column(*[b"x" * 100] * 1000)))
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert raised == []


def test_a_leaderless_partition_pins_its_own_bytes_and_no_more():
    """One partition of many held a slice of every Arrow batch: 0.5 MiB of records kept 48 MiB."""
    engine = Engine(partitions=20, batch_size=2_000, linger_ms=0)
    engine.leaders[7] = -1
    engine.connect()
    for _ in range(10):
        append(engine, RecordColumns(value=column(*[b"x" * 100] * 4000)), [row % 20 for row in range(4000)])
        engine.spin()
    waiting = 10 * 200 * 112
    kept = engine.config.buffer_memory - engine.parts.accumulator.pool.available
    assert waiting * 0.9 < kept < waiting * 1.2
    engine.leaders[7] = 0
    engine.settle()
    assert engine.memory_is_free()


@pytest.mark.parametrize(
    ("fails", "keeps"),
    [("accumulator.compress", [b"first"]), ("producer_batch.ProducerBatch.seal", [])],
    ids=["as_it_was_compressed", "as_the_sender_got_it"],
)
def test_incident_a_batch_lost_its_earlier_rows_in_silence_when_an_exception_struck(monkeypatch, fails, keeps):
    engine = Engine(compression_type="lz4", batch_size=400, linger_ms=1000).connect()
    first = append(engine, RecordColumns(value=column(b"first")))

    def fail(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as failing:
        failing.setattr(f"spark_kafka_sink.producer.{fails}", fail)
        with pytest.raises(MemoryError):
            append(engine, RecordColumns(value=column(*[b"x" * 100] * 9)))
    append(engine, RecordColumns(value=column(b"later")))
    engine.settle()
    with nullcontext() if keeps else pytest.raises(MemoryError):
        first.wait(0)
    assert engine.values() == [*keeps, b"later"]
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

    def partition(self, topic, columns, explicit, sizes, count, load):
        assert explicit.min() >= -1
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
