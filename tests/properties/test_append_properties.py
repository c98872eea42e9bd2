"""``append`` as a function of rows and open batches, and the three ways that rows take to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.common.model import NO_IDENTITY, ClusterSnapshot, TopicInfo, TopicPartition
from spark_kafka_sink.exactly_once.decode import DecodedRecord, decode_batches
from spark_kafka_sink.producer.append import Appended, append
from spark_kafka_sink.producer.few_records import FewRecords, RecordFields
from spark_kafka_sink.producer.inbox import SealedBatches, SmallCall
from spark_kafka_sink.producer.producer_batch import ProducerBatch
from spark_kafka_sink.producer.record import ProducerRecord
from spark_kafka_sink.producer.rows import Rows, RowTimes, Slice, TopicPartitions
from spark_kafka_sink.records.arrays import bytes_column
from spark_kafka_sink.records.batch import HEADER_SIZE
from spark_kafka_sink.records.columns import RecordColumns, TopicColumn
from spark_kafka_sink.records.encode import header_column, header_section
from spark_kafka_sink.records.sizes import SMALLEST_RECORD, FieldLengths, one_record_size_bound
from tests.unit.scripted_engine import TOPIC, Engine

COUNTS = (3, 1)
SNAPSHOT = ClusterSnapshot(
    topics={name: TopicInfo(name, (0,) * count, (0,) * count) for name, count in zip("ab", COUNTS, strict=True)}
)
NOW = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@dataclass(frozen=True)
class Row:
    """``place``: its partition among those of both topics. ``time``: ms from ``NOW``."""

    place: int
    key: bytes | None
    value: bytes | None
    header: bytes | None
    time: int

    def as_record(self, offset: int = 0) -> DecodedRecord:
        headers = () if self.header is None else ((b"h", self.header),)
        return DecodedRecord(offset, NOW + self.time, self.key, self.value, headers)


small = st.none() | st.binary(max_size=3) | st.integers(0, 300).map(bytes)
TIMES = st.integers(-2, 2) | st.sampled_from([-(10**6), 63, 64, 8192, 10**9])
ROWS = st.lists(st.builds(Row, st.integers(0, 3), small, small, small, TIMES), min_size=1, max_size=40)
LIMITS = st.integers(HEADER_SIZE + 1, 1500)


def columns_of(rows: Sequence[Row], *, timed: bool = True) -> RecordColumns:
    headers = [None if row.header is None else [{"key": "h", "value": row.header}] for row in rows]
    return RecordColumns(
        key=bytes_column([row.key for row in rows]),
        value=bytes_column([row.value for row in rows]),
        headers=header_column(pa.array(headers, HEADERS)),
        timestamps=np.array([NOW + row.time for row in rows]) if timed else None,
    )


def slice_of(rows: Sequence[Row], limit: int, *, sorts: bool) -> Slice:
    """As a call of columns or the engine makes one."""
    columns, names = columns_of(rows), ("a", "b")
    lengths = FieldLengths.of(columns)
    assert columns.timestamps is not None
    codes = np.array([row.place // COUNTS[0] for row in rows], np.int32)
    topics = TopicColumn(names, codes)
    whole = Rows.of(topics, columns, None, lengths, RowTimes.of(columns.timestamps, 5), limit)
    return whole.group(
        TopicPartitions.of(names, SNAPSHOT), np.array([row.place for row in rows], np.int32), sorts=sorts
    )


def few_of(rows: Sequence[Row], limit: int) -> FewRecords:
    """The rows as the engine groups them if they are records of ``send`` to the topic "a"."""
    sections = [header_section([] if row.header is None else [(b"h", row.header)]) for row in rows]
    fields = [RecordFields(row.key, row.value, section) for row, section in zip(rows, sections, strict=True)]
    times = RowTimes.of(np.array([NOW + row.time for row in rows]), 5)
    bounds = limit // SMALLEST_RECORD, times.delta_bytes
    sizes = [one_record_size_bound(len(headers), (key, value), *bounds) for key, value, headers in fields]
    return FewRecords.group("a", fields, [row.place for row in rows], sizes, limit, times)


class Appends:
    """Appends to batches of ``limit`` bytes, of which it keeps all, and the open ones by their partitions."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.batches: defaultdict[TopicPartition, list[ProducerBatch]] = defaultdict(list)
        self.open: dict[TopicPartition, ProducerBatch] = {}
        self.rows: list[Row] = []

    def append(self, rows: Sequence[Row], *, sorts: bool = True, evenly: bool = False, few: bool = False) -> Appended:
        slice_ = few_of(rows, self.limit) if few else slice_of(rows, self.limit, sorts=sorts)
        fitting = {where: batch for where, batch in self.open.items() if slice_.times.fit(batch.base_timestamp)}
        joined = {} if evenly else fitting
        listener: Any = slice_
        appended = append(slice_, listener, self._new_batch, joined, evenly=evenly)
        self.rows += rows
        for batch in appended.opened:
            self.batches[batch.partition].append(batch)
            self.open[batch.partition] = batch
        for batch in appended.filled:
            if self.open.get(batch.partition) is batch:
                del self.open[batch.partition]
        return appended

    def _new_batch(self, partition: TopicPartition, base_timestamp: int) -> ProducerBatch:
        return ProducerBatch(partition, 0, self.limit, base_timestamp)

    def check(self) -> None:
        """Every row once, in order; numbered from 0 in each batch, with its time; no batch above its limit."""
        for place in range(sum(COUNTS)):
            where = TopicPartition("ab"[place // COUNTS[0]], place % COUNTS[0])
            expected = iter([row for row in self.rows if row.place == place])
            for batch in self.batches[where]:
                records = decoded(batch)
                assert records == tuple(next(expected).as_record(offset) for offset in range(len(records)))
                assert batch.count == len(records) == sum(part.rows for part in batch.record_ranges)
                assert batch.max_timestamp == max(record.timestamp for record in records)
                assert actual_size(batch) <= batch.size
                assert batch.size <= batch.limit or batch.count == 1
                firsts = [part.first for part in batch.record_ranges]
                assert firsts == [0, *np.cumsum([part.rows for part in batch.record_ranges])[:-1]]
                assert actual_size(batch) == HEADER_SIZE + sum(part.size for part in batch.record_ranges)
            assert next(expected, None) is None


def decoded(batch: ProducerBatch) -> tuple[DecodedRecord, ...]:
    sealed = ProducerBatch(batch.partition, 0, batch.limit, batch.base_timestamp)
    sealed.count, sealed.max_timestamp = batch.count, batch.max_timestamp
    sealed.seal(0, batch.buffers, sum(map(len, batch.buffers)))
    sealed.stamp(NO_IDENTITY, -1)
    assert sealed.header is not None
    return decode_batches(sealed.header + b"".join(batch.buffers))[0].records


def actual_size(batch: ProducerBatch) -> int:
    return HEADER_SIZE + sum(map(len, batch.buffers))


def fewest(sizes: Sequence[int], limit: int) -> int:
    """How many batches rows of these sizes fill, in their order."""
    count, size = 1, HEADER_SIZE
    for each in sizes:
        if size > HEADER_SIZE and size + each > limit:
            count, size = count + 1, HEADER_SIZE
        size += each
    return count


@settings(max_examples=80, deadline=None)
@given(calls=st.lists(ROWS, min_size=1, max_size=5), limit=LIMITS, sorts=st.booleans())
def test_rows_join_open_batches_in_order_and_fill_them(calls, limit, sorts):
    appends = Appends(limit)
    for rows in calls:
        before = dict(appends.open)
        appended = appends.append(rows, sorts=sorts)
        assert len({id(batch) for batch in appended.filled}) == len(appended.filled)
        for batch in appended.opened:
            left = before.get(batch.partition)
            assert left is None or left.filled or not slice_of(rows, limit, sorts=sorts).times.fit(left.base_timestamp)
    appends.check()
    for batches in appends.batches.values():
        assert all(type(buffer) is bytes for batch in batches for buffer in batch.buffers), "it would keep all rows"
        assert all(batch.own_bytes == actual_size(batch) - HEADER_SIZE for batch in batches)
        assert not any(batch.shared_buffer for batch in batches)


@settings(max_examples=80, deadline=None)
@given(calls=st.lists(ROWS, min_size=1, max_size=5), limit=LIMITS)
def test_few_records_become_the_same_batches_as_columns(calls, limit):
    columns, few = Appends(limit), Appends(limit)
    for call in calls:
        rows = [replace(row, place=row.place % COUNTS[0]) for row in call]
        columns.append(rows)
        few.append(rows, few=True)
    assert [*map(outside, few.batches.items())] == [*map(outside, columns.batches.items())]
    few.check()


def outside(partition_and_batches: tuple[TopicPartition, list[ProducerBatch]]) -> object:
    partition, batches = partition_and_batches
    return partition, [
        (b"".join(each.buffers), each.size, each.largest_record, [part[1:] for part in each.record_ranges])
        for each in batches
    ]


@settings(max_examples=120, deadline=None)
@given(rows=ROWS, limit=LIMITS, sorts=st.booleans())
def test_evenly_cut_batches_are_as_few_as_the_limit_allows_or_one_more_and_share_one_buffer(rows, limit, sorts):
    appends = Appends(limit)
    appended = appends.append(rows, sorts=sorts, evenly=True)
    appends.check()
    slice_ = slice_of(rows, limit, sorts=sorts)
    sizes: dict[TopicPartition, list[int]] = defaultdict(list)
    for partition, start, end in slice_.runs:
        sizes[partition] += np.diff(slice_.cumulative[start : end + 1]).tolist()
    for partition, of_rows in sizes.items():
        count = fewest(of_rows, limit)
        assert count <= len(appends.batches[partition]) <= count + 1
    (shared,) = {batch.shared_buffer for batch in appended.opened}
    assert shared is not None
    assert (shared.size, shared.users) == (appended.size, len(appended.opened))
    assert not any(batch.own_bytes for batch in appended.opened)


@settings(max_examples=40, deadline=None)
@given(count=st.integers(1, 2_000), size=st.integers(1, 40), limit=st.integers(400, 3_000))
def test_batches_of_equal_rows_are_cut_evenly(count, size, limit):
    appends = Appends(limit)
    appends.append([Row(0, None, bytes(size), None, 0)] * count, evenly=True)
    batches = appends.batches[TopicPartition("a", 0)]
    counts = [batch.count for batch in batches]
    assert len(counts) == fewest([batches[0].largest_record] * count, limit)
    assert max(counts) <= 2 * min(counts)


# The lanes: a call with batches of its own, a small call, and ``send``.


@settings(max_examples=40, deadline=None)
@given(rows=ROWS, timed=st.booleans())
def test_records_have_the_same_bytes_whichever_lane_they_take(rows, timed):
    rows = [*(replace(row, place=0) for row in rows), Row(0, None, bytes(300), None, 0)]
    columns = columns_of(rows, timed=timed)
    times = RowTimes.of(NOW if columns.timestamps is None else columns.timestamps, 5)
    bounds = Rows.of(TopicColumn.of(TOPIC), columns, None, FieldLengths.of(columns), times, 1 << 20).sizes
    size = int(bounds.sum())
    found = []
    for batch_size, orders in ((int(1.6 * size), [SealedBatches]), (3 * size, [SmallCall])):
        engine = Engine(batch_size=batch_size, linger_ms=5).connect()
        engine.parts.appender.append(TopicColumn.of(TOPIC), columns, None, engine.receipt)
        assert [type(order) for order in engine.parts.inbox.entries[1::4]] == orders
        found.append(written(engine))
    engine = Engine(batch_size=1 << 20, linger_ms=5).connect()
    for row in rows:
        headers = None if row.header is None else [("h", row.header)]
        timestamp = NOW + row.time if timed else None
        record = ProducerRecord(TOPIC, row.value, row.key, None, timestamp, headers)
        engine.parts.records.put(record, row.key, row.value)
    found.append(written(engine))
    assert found[0] == found[1] == found[2]
    assert found[0][0][3] == len(rows)


def written(engine: Engine) -> list[tuple[int, ...]]:
    engine.settle()
    assert engine.memory_is_free()
    headers = [batch.header for batch in engine.logs[0].batches]
    return [(each.crc, each.base_timestamp, each.max_timestamp, each.record_count, each.size) for each in headers]


def test_a_small_call_refers_to_nothing_of_its_callers_columns():
    engine = Engine(batch_size=1 << 20).connect()
    columns = columns_of([Row(0, b"k", b"v", b"h", 0)] * 3)
    engine.parts.appender.append(TopicColumn.of(TOPIC), columns, np.zeros(3, np.int32), engine.receipt)
    (order,) = [each for each in engine.parts.inbox.entries if isinstance(each, SmallCall)]
    put = order.rows.columns
    for theirs, ours in ((columns.key, put.key), (columns.value, put.value)):
        assert theirs is not None
        assert ours is not None
        addresses = {buffer.address for buffer in theirs.buffers() if buffer is not None}
        assert not addresses & {buffer.address for buffer in ours.buffers() if buffer is not None}
    assert not np.shares_memory(columns.timestamps, put.timestamps)
    assert not np.shares_memory(columns.timestamps, order.rows.times.values)
