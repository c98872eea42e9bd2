"""Columns into the accumulator: what is checked, how rows are cut, and that memory comes back to the byte."""

from __future__ import annotations

import pkgutil
import threading
import time
from itertools import chain

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.common.waiting import Waiters
from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.producer.accumulator.accumulator import Flush
from spark_kafka_sink.producer.append.receipt import SendReceipt
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


def test_rows_with_keys_need_no_queue_lengths(monkeypatch):
    """They cost 3 ms a call at 10,000 partitions, which only sticky rows need."""
    engine = Engine(partitions=3)
    engine.connect()
    monkeypatch.setattr(engine.parts.accumulator, "queue_lengths", lambda *_: pytest.fail("asked for"))
    append(engine, RecordColumns(column(b"a", b"b"), column(b"1", b"2")))
    engine.settle()
    assert sum(len(engine.values(partition)) for partition in range(3)) == 2


class OutsideAtTheEnd:
    def partition(self, topic, columns, explicit, sizes, count, load):
        last = columns.value.to_pylist().index(b"last") if b"last" in columns.value.to_pylist() else len(columns)
        return np.array([count if row == last else 0 for row in range(len(columns))], np.int32)


def test_incident_the_row_of_a_partitioners_error_was_counted_from_its_slice():
    """And the slices before it were appended, though it is said that nothing is."""
    engine = Engine(
        partitions=2, buffer_memory=1 << 16, batch_size=1000, partitioner_class=f"{__name__}:OutsideAtTheEnd"
    )
    engine.connect()
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

    engine = Engine()
    engine.connect()
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
    sleep = Waiters.sleep

    def sleeping(waiters, sleeper, ms):
        waits.set()
        sleep(waiters, sleeper, ms)

    monkeypatch.setattr(Waiters, "sleep", sleeping)

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
        "spark_kafka_sink.producer.append.rows.encode_records",
        "spark_kafka_sink.producer.accumulator.accumulator.compress",
    ],
)
def test_incident_a_flush_waited_for_rows_that_another_thread_could_not_encode(monkeypatch, fails):
    """For a batch that was given back for ever; after a retract it slept on for a minute."""
    engine = Engine(linger_ms=1000, compression_type="zstd")
    engine.connect()
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


@pytest.mark.parametrize("rows", [[(row % 2, 100) for row in range(300)], [(0, 5_000), *[(1, 100)] * 100]])
def test_incident_memory_was_reserved_without_the_copies_of_what_waits(monkeypatch, rows):
    """Those of a lagging partition, and of a record larger than a batch: buffer.memory was overdrawn."""
    engine = Engine(partitions=2, batch_size=1_000, linger_ms=1_000)
    engine.leaders[1 if len(rows) == 300 else 0] = -1
    engine.connect()
    pool = engine.parts.accumulator.pool
    reserve = pool.reserve
    asked: list[int] = []
    monkeypatch.setattr(pool, "reserve", lambda to, size, *others: (asked.append(size), reserve(to, size, *others)))
    columns = RecordColumns(value=column(*[b"x" * size for _, size in rows]))
    append(engine, columns, [partition for partition, _ in rows])
    kept = engine.config.buffer_memory - pool.available
    assert kept <= sum(asked)
    engine.leaders.update({0: 0, 1: 0})
    engine.settle()
    assert engine.memory_is_free()


def test_more_than_a_slice_for_many_partitions_is_cut_by_partition(monkeypatch):
    """Cut as the rows come, each slice had a little of every partition: batches of a few rows."""
    engine = Engine(partitions=40, batch_size=1000, buffer_memory=1 << 17, linger_ms=1000)
    engine.connect()
    rows = 900
    columns = RecordColumns(
        column(*(b"%d" % row for row in range(rows))),
        column(*(b"%03d" % row * 20 for row in range(rows))),
        timestamps=np.arange(rows) + 5,
    )
    claim = engine.parts.accumulator.claim
    runs: list[int] = []
    monkeypatch.setattr(
        engine.parts.accumulator,
        "claim",
        lambda claimed, sizes, now: runs.append(len(sizes.runs)) or claim(claimed, sizes, now),
    )
    receipt = append(engine, columns)
    assert len(runs) > 1
    assert sum(runs) < 40 + len(runs)
    engine.settle()
    receipt.wait(0)
    written = [[int(value[:3]) for value in engine.values(partition)] for partition in range(40)]
    assert sorted(chain(*written)) == list(range(rows))
    assert all(each == sorted(each) for each in written)


@pytest.mark.parametrize("codec", ["none", "snappy"])
@pytest.mark.parametrize("step", ["append._assign", "append.RecordAccumulator.compress_filled"])
def test_incident_a_call_failed_when_the_sender_had_room_for_the_batch_that_it_was_filling(monkeypatch, step, codec):
    """Caller: claims the batch and encodes. Sender: has room, and lets the batch take no more rows after this claim.
    Caller: took it for one that its own claim fills, and found no such batch.
    """
    engine = Engine(partitions=1, linger_ms=5, compression_type=codec)
    engine.connect()
    receipts = [append(engine, RecordColumns(value=column(b"0")))]
    target = f"spark_kafka_sink.producer.append.{step}"
    call = pkgutil.resolve_name(target)

    def passed_by(*arguments):
        queue = engine.parts.accumulator._queue(TopicPartition(TOPIC, 0))
        queue.pass_by(engine.clock.now(), True)  # as ``drain`` does
        assert [batch.filled for batch in queue.batches] == [True]
        return call(*arguments)

    monkeypatch.setattr(target, passed_by)
    receipts.append(append(engine, RecordColumns(value=column(b"1"))))
    monkeypatch.undo()
    receipts.append(append(engine, RecordColumns(value=column(b"2"))))
    engine.settle()
    for receipt in receipts:
        receipt.wait(0)
    assert engine.values() == [b"0", b"1", b"2"]
    assert engine.memory_is_free()
