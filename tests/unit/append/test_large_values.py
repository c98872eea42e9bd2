"""Large values are referred to, not copied: what is sent, what is counted while a call runs and after it, and when the
values are copied after all.
"""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from kio.schema.errors import ErrorCode

from spark_kafka_sink.errors import BrokerError, BufferExhaustedError
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.producer.append.receipt import SendReceipt
from spark_kafka_sink.producer.partitioning.partitioner import LEFT_OUT
from spark_kafka_sink.records import encode, large_values
from spark_kafka_sink.records.columns import RecordColumns, TopicColumn
from spark_kafka_sink.records.decode import decode_batches
from spark_kafka_sink.records.encode import header_column
from tests.unit.scripted_engine import TOPIC, Engine, Step

LARGE = large_values.LARGE_VALUE
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


def references(engine: Engine) -> int:
    """Buffers of batches that are slices of an Arrow buffer."""
    return sum(isinstance(each, memoryview) for batch in batches(engine) for each in batch.payload or batch.buffers)


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


@pytest.mark.parametrize("batch_size", [100, 16_384, 200_000])
def test_nothing_is_copied_while_there_is_memory(batch_size):
    """Neither full batches, nor open ones, nor those of a partition that lags."""
    engine = connected(leaderless=1, batch_size=batch_size, partitions=2, linger_ms=1000)
    values = column(values_of(*[LARGE] * 8)[1:])[1:]  # a slice
    append(engine, RecordColumns(column([b"key"] * 6), values), [row % 2 for row in range(6)])
    assert references(engine) == 6
    engine.leaders[1] = 0
    engine.settle()
    assert len(engine.values(0)) == len(engine.values(1)) == 3
    assert engine.memory_is_free()


def test_rows_in_groups_by_partition_are_not_copied():
    """More than a slice for many partitions is sorted first."""
    engine = connected(partitions=40, batch_size=2 * LARGE, buffer_memory=4 * MEMORY, linger_ms=1000)
    values = values_of(*[LARGE] * 100)
    keys = column([b"%d" % row for row in range(100)])
    explicit = np.array([row % 40 for row in range(100)], np.int32)
    explicit[7] = LEFT_OUT
    receipt = SendReceipt()
    engine.parts.appender.append(TopicColumn.of(TOPIC), RecordColumns(keys, column(values)), explicit, receipt)
    assert references(engine) == 99
    engine.settle()
    receipt.wait(0)
    assert engine.values(7) == [values[47], values[87]]
    assert engine.values(3) == [values[3], values[43], values[83]]


def test_small_values_are_copied_as_before():
    engine = connected(linger_ms=1000)
    append(engine, RecordColumns(value=column(values_of(*[100] * 20, LARGE))))
    assert not any(batch.pinned for batch in batches(engine))
    engine.settle()
    assert len(engine.values()) == 21


def held(engine: Engine) -> None:
    """The next requests get no response until ``release_held``."""
    engine.steps.extend(Step(hold=True) for _ in range(50))


def test_after_the_call_a_buffer_counts_once_and_whole_until_its_last_row_is_sent():
    engine = connected(partitions=2)
    held(engine)
    array = column(values_of(*[LARGE] * 10))
    whole = array.buffers()[2].size
    append(engine, RecordColumns(value=array[:3]), [0, 0, 1])
    rows = sum(batch.size - 61 for batch in batches(engine))
    assert whole < kept(engine) < whole + 3 * 30
    assert rows < kept(engine)
    engine.spin()
    engine.release_held()
    engine.steps.clear()
    engine.settle()
    assert engine.memory_is_free()


def test_the_rows_that_are_left_keep_the_whole_buffer():
    engine = connected(leaderless=1, partitions=2)
    array = column(values_of(*[LARGE] * 10))
    append(engine, RecordColumns(value=array), [0] * 9 + [1])
    engine.spin()
    assert len(engine.values(0)) == 9
    (left,) = batches(engine)
    assert left.partition.partition == 1
    assert 10 * LARGE < kept(engine) < 10 * LARGE + 30
    engine.leaders[1] = 0
    engine.settle()
    assert engine.memory_is_free()


def test_what_is_sent_before_the_call_returns_counts_no_more(monkeypatch):
    engine = connected(buffer_memory=8 * LARGE, max_block_ms=60_000)
    monkeypatch.setattr(engine.parts.sender_thread, "wakeup", engine.spin)
    append(engine, RecordColumns(value=column(values_of(*[LARGE] * 100))))
    engine.settle()
    assert len(engine.values()) == 100
    assert engine.memory_is_free()


def test_they_are_copied_when_the_buffer_does_not_fit():
    engine = connected(linger_ms=1000)
    array = column(values_of(*[LARGE] * 100))  # more than buffer.memory
    append(engine, RecordColumns(value=array[:3]))
    assert references(engine) == 0
    assert 3 * LARGE < kept(engine) < 3 * (LARGE + 30)
    engine.settle()
    assert engine.values() == values_of(*[LARGE] * 3)
    assert engine.memory_is_free()


def test_only_the_call_whose_buffer_does_not_fit_copies():
    engine = connected(linger_ms=1000)
    array = column(values_of(*[LARGE] * 40))
    for _ in range(2):  # each is more than half of buffer.memory
        append(engine, RecordColumns(value=column(values_of(*[LARGE] * 40))[:5]))
    assert references(engine) == 5
    engine.settle()
    assert engine.values() == array[:5].to_pylist() * 2
    assert engine.memory_is_free()


def test_two_calls_with_slices_of_one_buffer_count_it_once():
    engine = connected(linger_ms=1000)
    array = column(values_of(*[LARGE] * 40))
    for start in (0, 5, 35):
        append(engine, RecordColumns(value=array[start : start + 5]))
    assert references(engine) == 15
    assert 40 * LARGE < kept(engine) < 40 * LARGE + 15 * 30
    engine.settle()
    assert len(engine.values()) == 15
    assert engine.memory_is_free()


def test_nothing_waits_for_more_than_the_bytes_of_its_rows():
    engine = connected(linger_ms=1000, max_block_ms=0, buffer_memory=32 * LARGE)
    array = column(values_of(*[LARGE] * 29))
    append(engine, RecordColumns(value=array[:27]))
    append(engine, RecordColumns(value=column(values_of(*[LARGE] * 100))[50:52]))
    with pytest.raises(BufferExhaustedError):
        append(engine, RecordColumns(value=array[:2]))
    engine.settle()
    assert len(engine.values()) == 29
    assert engine.memory_is_free()


def test_rows_before_an_error_are_settled_too():
    engine = connected(linger_ms=1000, max_block_ms=0)
    with pytest.raises(BufferExhaustedError):
        append(engine, RecordColumns(value=column(values_of(*[LARGE] * 100))))
    assert batches(engine)
    assert references(engine) == 0
    engine.settle()
    assert engine.memory_is_free()


@pytest.mark.parametrize("copied", [False, True])
def test_a_retry_and_a_new_epoch_send_the_same_records(copied):
    """After OUT_OF_ORDER_SEQUENCE_NUMBER without an earlier batch, the partition starts a new epoch."""
    engine = connected(max_block_ms=0)
    sent: list[bytes] = []
    accept = engine.logs[0].append
    engine.logs[0].append = lambda data: (sent.append(data), accept(data))[1]  # type: ignore[method-assign,func-returns-value]
    append(engine, RecordColumns(value=column([b"first"])))
    engine.spin()
    engine.logs[0].forget_producers()
    engine.steps.extend([Step(before={0: ErrorCode.not_leader_or_follower}), Step(lose_response=True)])
    array = column(values_of(*[LARGE] * (100 if copied else 4)))
    append(engine, RecordColumns(value=array[:4]))
    assert (references(engine) == 0) is copied
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


def test_a_value_that_a_broker_refuses_fails_alone():
    engine = connected()
    engine.max_message_bytes = 3 * LARGE
    receipt = append(engine, RecordColumns(value=column(values_of(4 * LARGE))))
    engine.settle()
    with pytest.raises(BrokerError):
        receipt.wait(0)
    assert engine.memory_is_free()


def test_compressed_batches_refer_to_nothing():
    engine = connected(compression_type="lz4", linger_ms=1000, batch_size=4 * LARGE)
    append(engine, RecordColumns(value=column(values_of(*[LARGE] * 40))))
    sealed = [batch for batch in batches(engine) if batch.payload is not None]
    assert sealed
    assert not any(batch.pinned for batch in sealed)
    assert all(isinstance(each, bytes) for batch in sealed for each in batch.payload)
    engine.settle()
    assert engine.values() == values_of(*[LARGE] * 40)
    assert engine.memory_is_free()


def test_several_topics_in_one_call():
    engine = connected(linger_ms=1000)
    engine.parts.metadata.wait_for_topic("other", None, 1000, engine.clock, engine.spin)
    topics = TopicColumn((TOPIC, "other"), np.array([0, 1, 0], np.int32))
    engine.parts.appender.append(
        topics, RecordColumns(value=column(values_of(LARGE, LARGE, LARGE))), np.zeros(3, np.int32), SendReceipt()
    )
    found = [(batch.partition.topic, bytes(batch.buffers[1])) for batch in batches(engine)]
    one, two, three = values_of(LARGE, LARGE, LARGE)
    assert sorted(found) == [("other", two), (TOPIC, one), (TOPIC, three)]


def test_the_arrow_buffer_is_free_when_its_rows_are_sent_or_copied():
    engine = connected(linger_ms=1000)
    gc.collect()
    before = pa.total_allocated_bytes()
    array = column(values_of(*[LARGE] * 100))
    append(engine, RecordColumns(value=array[:3]))
    del array
    assert pa.total_allocated_bytes() - before < LARGE
    array = column(values_of(*[LARGE] * 10))
    append(engine, RecordColumns(value=array))
    del array
    assert pa.total_allocated_bytes() - before >= 10 * LARGE
    engine.settle()
    assert pa.total_allocated_bytes() - before < LARGE


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_incident_a_buffer_of_an_open_batch_that_a_later_call_filled_and_compressed_was_never_free(codec):
    engine = connected(compression_type=codec, batch_size=3 * LARGE, linger_ms=50)
    values = values_of(LARGE, LARGE, 2 * LARGE)
    append(engine, RecordColumns(value=column(values)[:1]))
    append(engine, RecordColumns(value=column(values)[1:]))
    engine.settle()
    assert engine.values(0) == values
    assert engine.memory_is_free()


def test_incident_the_same_array_sent_again_and_again_counted_for_each_call_while_one_partition_had_no_leader():
    engine = connected(leaderless=1, partitions=2, max_block_ms=0, buffer_memory=20 * LARGE)
    array = column(values_of(LARGE))
    append(engine, RecordColumns(value=array), 1)
    for number in range(50):
        append(engine, RecordColumns(value=array), 0)
        if number % 10 == 9:
            engine.spin()
    engine.spin()
    assert kept(engine) < 2 * LARGE
    engine.leaders[1] = 0
    engine.settle()
    assert engine.memory_is_free()


def test_incident_a_batch_lost_its_earlier_rows_when_an_exception_struck_after_it_was_compressed(monkeypatch):
    engine = connected(compression_type="lz4", batch_size=400, linger_ms=1000)
    first = append(engine, RecordColumns(value=column([b"first"])))
    seal = ProducerBatch.seal

    def fail(*_: object) -> None:
        monkeypatch.setattr(ProducerBatch, "seal", seal)
        raise MemoryError

    monkeypatch.setattr(ProducerBatch, "seal", fail)
    with pytest.raises(MemoryError):
        append(engine, RecordColumns(value=column([b"x" * 100] * 9)))
    engine.settle()
    first.wait(0)
    assert engine.values() == [b"first"]
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
