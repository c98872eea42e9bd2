"""A task's write: every row appended and acknowledged before the commit message, one producer from task to task."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.common.metrics import ProducerTotals
from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.errors import InvalidRecordError, KafkaTimeoutError, RecordTooLargeError
from spark_kafka_sink.producer.accumulator.producer_batch import NO_TIMESTAMP, ProducerBatch, RecordRange
from spark_kafka_sink.producer.engine import ProducerEngine
from spark_kafka_sink.records.columns import binary_array
from spark_kafka_sink.spark import read
from spark_kafka_sink.spark import write as module
from spark_kafka_sink.spark.commit_message import KafkaCommitMessage, PartitionWrite
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.producer_cache import ProducerCache
from spark_kafka_sink.spark.schema import RowLayout

OPTIONS = SinkOptions.parse({"kafka.bootstrap.servers": "a:1", "kafka.batch.size": "16384"})
LAYOUT = RowLayout(value=0, topic=1)


class FakeProducer:
    """Delivers what was appended when it is flushed: all of it to partition 0, offsets counted on per topic."""

    def __init__(self, config):
        self.config = config
        self.topics = self
        self.appended = []
        self.next_offsets = {}
        self.append_error = None
        self.delivery_error = None
        self.closed = False

    def append_columns(self, topics, columns, partitions, receipt):
        if self.append_error is not None:
            raise self.append_error
        receipt.expect(len(columns), None)
        codes = [0] * len(columns) if topics.codes is None else topics.codes.tolist()
        values = columns.value.to_pylist()
        for code, topic in enumerate(topics.names):
            of_topic = [value for value, of in zip(values, codes, strict=True) if of == code]
            self.appended.append((topic, of_topic, receipt))

    def partition_count(self, topic):
        return 1

    def flush(self):
        for topic, values, receipt in self.appended:
            first = self.next_offsets.get(topic, 0)
            self.next_offsets[topic] = first + len(values)
            batch = ProducerBatch(TopicPartition(topic, 0), 0.0, 16384, 0)
            batch.record_ranges.append(RecordRange(receipt, 0, len(values), sum(map(len, values))))
            batch.complete(first, NO_TIMESTAMP, self.delivery_error)
        self.appended = []

    def begin_sticky_runs(self):
        pass

    def begin_totals(self, without=()):
        return ProducerTotals()

    def totals(self, without=()):
        return ProducerTotals(batches=1, responses=2, latency_ms=6.0)

    def is_alive(self):
        return not self.closed

    def close(self, timeout_ms):
        self.closed = True


@pytest.fixture
def opened(monkeypatch):
    """The producers that were opened."""
    producers = []

    def open_producer(config):
        producers.append(FakeProducer(config))
        return producers[-1]

    cache = ProducerCache(open_producer)
    monkeypatch.setattr(module, "PRODUCERS", cache)
    yield producers
    cache.close()


def batch(*rows):
    return pa.record_batch(
        {"value": [value for value, _ in rows], "topic": pa.array([t for _, t in rows], pa.string())}
    )


def write(*batches, layout=LAYOUT, options=OPTIONS):
    return module.write_rows(iter(batches), layout, options)


def test_the_message_counts_what_went_to_each_partition(opened):
    message = write(batch(("a", "x"), ("bb", "y"), ("c", "x")), batch(("d", "x")))
    assert message.writes == (PartitionWrite("x", 0, 3, 3, 0, 2), PartitionWrite("y", 0, 1, 2, 0, 0))
    assert (message.figures.rows, message.figures.bytes, message.figures.latency_avg_ms) == (4, 5, 3.0)
    assert opened[0].config == OPTIONS.producer


def test_the_producer_is_kept_for_the_next_task(opened):
    write(batch(("a", "x")))
    message = write(batch(("b", "x")))
    assert message.writes == (PartitionWrite("x", 0, 1, 1, 1, 1),)
    assert len(opened) == 1
    assert opened[0].is_alive()


def test_a_task_without_rows_opens_no_producer(opened):
    assert write() == write(batch(), batch()) == KafkaCommitMessage()
    assert opened == []


def test_empty_batches_between_others_change_nothing(opened):
    assert write(batch(), batch(("a", "x")), batch()).writes == (PartitionWrite("x", 0, 1, 1, 0, 0),)


def test_a_row_at_fault_is_numbered_in_its_task_and_ends_the_producer(opened):
    with pytest.raises(InvalidRecordError, match=r"contains a null topic.*row 3 of the task"):
        write(batch(("a", "x"), ("b", "x")), batch(("c", "x"), ("d", None)))
    assert opened[0].closed
    write(batch(("e", "x")))
    assert len(opened) == 2


def test_an_error_of_the_engine_about_a_row_is_numbered_in_its_task(opened):
    write(batch(("a", "x")))
    opened[0].append_error = RecordTooLargeError("The message is 9 bytes when serialized", 1)
    with pytest.raises(RecordTooLargeError) as raised:
        write(batch(), batch(("a", "x"), ("b", "y"), ("c", "x")), options=OPTIONS)
    assert str(raised.value) == "The message is 9 bytes when serialized (row 1 of the task, counted from 0)"


def test_other_errors_of_the_engine_pass_as_they_are(opened):
    write(batch(("a", "x")))
    opened[0].append_error = KafkaTimeoutError("Topic x not present in metadata after 1500 ms.")
    with pytest.raises(KafkaTimeoutError, match=r"^Topic x not present in metadata after 1500 ms\.$"):
        write(batch(("a", "x")))
    assert opened[0].closed


def test_a_batch_that_was_not_delivered_fails_the_task(opened):
    write(batch(("a", "x")))
    opened[0].delivery_error = KafkaTimeoutError("Expiring 1 record(s) for x-0")
    with pytest.raises(KafkaTimeoutError, match="Expiring"):
        write(batch(("a", "x")))
    assert opened[0].closed


def batches_of(*lengths):
    return [pa.record_batch({"value": pa.array([b"v" * 100] * length)}) for length in lengths]


class Topics:
    """Of so many partitions each."""

    def __init__(self, **partitions):
        self.partitions = partitions

    def partition_count(self, topic):
        return self.partitions[topic]


def met(*partitions):
    target = read.AppendSize(OPTIONS.producer)
    topics = {f"topic{number}": count for number, count in enumerate(partitions)}
    target.add(topics, Topics(**topics))
    return target


def test_batches_of_few_bytes_for_each_partition_are_gathered():
    gathered = read.gathered(iter(batches_of(16_000, 16_000, 16_000, 16_000, 10)), met(200))
    assert [batch.num_rows for batch in gathered] == [32_000, 32_000, 10]


def test_a_batch_for_each_partition_goes_as_it_is():
    batches = batches_of(20_500, 20_500, 1)
    assert list(read.gathered(iter(batches), met(4))) == batches


def test_batches_of_many_topics_are_gathered():
    gathered = read.gathered(iter(batches_of(16_000, 16_000, 16_000, 10)), met(*[1] * 12))
    assert [batch.num_rows for batch in gathered] == [32_000, 16_010]


def test_no_more_than_half_of_buffer_memory_is_gathered():
    batches = (pa.record_batch({"value": pa.array([bytes(1 << 13)] * 128)}) for _ in range(40))
    assert [batch.num_rows for batch in read.gathered(batches, met(5000))] == [16 * 128, 16 * 128, 8 * 128]


def test_batches_of_large_rows_are_not_gathered_because_that_copies_them():
    small = batches_of(10, 20)
    large = [pa.record_batch({"value": pa.array([bytes(100_000)] * rows)}) for rows in (2, 3)]
    empty = pa.record_batch({"value": pa.array([], pa.binary())})
    gathered = list(read.gathered(iter([*small, *large, empty, *small]), met(50)))
    assert [batch.num_rows for batch in gathered] == [30, 2, 3, 30]
    assert gathered[1:3] == large
    assert gathered[1].column(0).buffers()[2].address == large[0].column(0).buffers()[2].address


@pytest.mark.parametrize(
    ("rows", "row_size", "gathered"), [(80, 10_000, [0, 1, 2] * 3), (10, 100_000, [0] * 9)], ids=["small", "large"]
)
def test_the_rows_of_an_append_are_free_before_the_next_batch_is_read(opened, rows, row_size, gathered):
    """The combined copy, the batches it was made of and the columns of the last append were all held."""
    held = []

    def batches():
        before = pa.total_allocated_bytes()
        for _ in range(9):
            yield pa.record_batch({"value": pa.array([bytes(row_size)] * rows), "topic": ["x"] * rows})
            held.append((pa.total_allocated_bytes() - before) // (rows * row_size))

    module.write_rows(batches(), LAYOUT, OPTIONS)
    assert held == gathered


@pytest.mark.slow  # needs 4 GiB of memory
def test_more_than_2_gib_of_one_column_are_gathered_without_losing_the_rows_beyond():
    """One array of strings or binary ends at 2 GiB, so what is combined may stay several batches."""
    rows = 1 << 17
    half = binary_array(np.arange(rows + 1, dtype=np.int64).astype(np.int32) << 13, bytes(1 << 30))
    batches = [
        pa.record_batch({"value": half, "partition": pa.array(np.full(rows, number, np.int32))}) for number in range(2)
    ]
    target = met(1)
    target.bytes = 2 << 30
    gathered = [batch.column(1).to_numpy() for batch in read.gathered(iter(batches), target)]
    assert [(len(each), set(each.tolist())) for each in gathered] == [(rows, {0}), (rows, {1})]


def test_the_partitions_of_every_topic_a_task_has_met_count_once():
    target = read.AppendSize(OPTIONS.producer)
    cluster = Topics(a=200, b=20, c=40)
    target.add(("a", "b"), cluster)
    target.add(("a",), cluster)
    assert target.bytes == 220 * 16_384
    target.add(("b", "c", "a"), cluster)
    assert target.bytes == 260 * 16_384


def test_the_topics_of_a_batch_were_waited_for_one_after_the_other(kafka_test_broker, monkeypatch):
    """Each behind the Produce requests of the one before: 20 new topics took a task 0.4 s."""
    monkeypatch.setattr(module, "PRODUCERS", ProducerCache(ProducerEngine))
    names = [f"t{number}" for number in range(20)]
    for name in names:
        kafka_test_broker.create_topic(name, partitions=1)
    options = SinkOptions.parse({"kafka.bootstrap.servers": kafka_test_broker.bootstrap_servers})
    rows = pa.record_batch({"value": pa.array([b"x"] * 20), "topic": pa.array(names)})
    module.write_rows(iter([rows]), RowLayout(value=0, topic=1), options)
    module.PRODUCERS.close()
    assert [len(kafka_test_broker.topic(name).records()) for name in names] == [1] * 20
    assert len(kafka_test_broker.requests.of("Metadata")) <= 3


def test_many_small_tasks_without_keys_reach_all_partitions_alike(kafka_test_broker, monkeypatch):
    """500 tasks of 10 rows are two batches of 256 KiB: a run that outlives its task ends on a few partitions."""
    monkeypatch.setattr(module, "PRODUCERS", ProducerCache(ProducerEngine))
    kafka_test_broker.create_topic("t", partitions=4)
    options = SinkOptions.parse({"kafka.bootstrap.servers": kafka_test_broker.bootstrap_servers})
    rows = pa.record_batch({"value": pa.array([b"x" * 50] * 10), "topic": pa.array(["t"] * 10)})
    counts = Counter()
    for _ in range(500):
        message = module.write_rows(iter([rows]), RowLayout(value=0, topic=1), options)
        counts.update({each.partition: each.count for each in message.writes})
    module.PRODUCERS.close()
    assert sum(counts.values()) == 5_000
    assert all(750 < counts[partition] < 1_750 for partition in range(4)), counts
