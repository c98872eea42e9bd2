"""A task's write: every row appended and acknowledged before the commit message, what is gathered for an append, and
what a task whose rows are encoded asks the registry."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.errors import IllegalStateError, InvalidRecordError, KafkaError, RecordTooLargeError
from spark_kafka_sink.producer.receipt import SendReceipt
from spark_kafka_sink.producer.task_output import TaskMeter
from spark_kafka_sink.records.arrays import binary_array
from spark_kafka_sink.records.columns import RecordColumns, TopicColumn
from spark_kafka_sink.schemas.formats.plan import FrameColumn, plan_formats
from spark_kafka_sink.schemas.registry.schema import Side
from spark_kafka_sink.spark import write as module
from spark_kafka_sink.spark.append_target import AppendTarget, gather
from spark_kafka_sink.spark.commit_message import KafkaCommitMessage
from spark_kafka_sink.spark.options import Reason, SinkOptions
from spark_kafka_sink.spark.pipeline import Pipeline, task_formats
from spark_kafka_sink.spark.rows import ILLEGAL_ARGUMENT, FaultKind, RejectedRows, TaskRows
from spark_kafka_sink.spark.schema import RowLayout
from spark_kafka_sink.spark.sink_write import with_hints
from tests.contract.brokers import broker_with
from tests.contract.exactly_once.runs import Query
from tests.unit.formats.fake_registry import FakeRegistry

OPTIONS = SinkOptions.parse({"kafka.bootstrap.servers": "a:1", "kafka.batch.size": "16384"})
LAYOUT = RowLayout(value=0, topic=1)


@pytest.fixture
def write(kafka_test_broker):
    """Writes the batches of a task."""
    for topic in ("x", "y"):
        kafka_test_broker.create_topic(topic, partitions=1)

    def run(batches, **given):
        options = {"kafka.bootstrap.servers": kafka_test_broker.bootstrap_servers, **given}
        return module.write_rows(iter(batches), LAYOUT, SinkOptions.parse(options))

    return run


def batch(*rows):
    values, topics = ([row[column] for row in rows] for column in (0, 1))
    return pa.record_batch({"value": pa.array(values, pa.string()), "topic": pa.array(topics, pa.string())})


def test_the_message_counts_what_went_to_each_partition(write):
    message = write([batch(("a", "x"), ("bb", "y"), ("c", "x")), batch(), batch(("d", "x"))])
    counted = [(each.topic, each.count, each.first_offset, each.last_offset) for each in message.writes]
    assert counted == [("x", 3, 0, 2), ("y", 1, 0, 0)]
    assert message.figures.rows == 4
    assert message.figures.bytes == sum(each.bytes for each in message.writes) > 5


def test_a_task_without_rows_opens_no_producer(write, kafka_test_broker):
    assert write([]) == write([batch(), batch()]) == KafkaCommitMessage()
    assert not kafka_test_broker.requests


@pytest.mark.parametrize(
    ("batches", "says"),
    [
        ([batch(("a", "x"), ("b", "x")), batch(("c", "x"), ("d", None))], r"contains a null topic.*row 3 of the task"),
        ([batch(("a", "x")), batch(("b", "y"), ("c" * 2_000, "x"))], r"is 20\d\d bytes .* \(row 2 of the task"),
    ],
    ids=["of the sink", "of the engine"],
)
def test_a_row_at_fault_is_numbered_in_its_task(write, batches, says):
    with pytest.raises((InvalidRecordError, RecordTooLargeError), match=says):
        write(batches, **{"kafka.max.request.size": "1000"})
    assert write([batch(("e", "x"))]).writes[0].count == 1


def test_a_batch_that_was_not_delivered_fails_the_task(write, kafka_test_broker):
    kafka_test_broker.faults.answer("Produce", "INVALID_RECORD", times=1)
    with pytest.raises(KafkaError, match="INVALID_RECORD"):
        write([batch(("a", "x"))])
    assert [each.count for each in write([batch(("a", "x"))]).writes] == [1]


def batches_of(*lengths):
    return [pa.record_batch({"value": pa.array([b"v" * 100] * length)}) for length in lengths]


class Topics:
    """Of so many partitions each."""

    writes = True

    def __init__(self, **partitions):
        self.partitions = partitions

    def core(self):
        return self

    def partition_count(self, topic):
        return self.partitions[topic]


def met(*partitions):
    target = AppendTarget(OPTIONS.producer)
    topics = {f"topic{number}": count for number, count in enumerate(partitions)}
    target.add(topics, Topics(**topics))
    return target


@pytest.mark.parametrize(
    ("partitions", "rows", "gathered"),
    [
        ([200], [16_000] * 4 + [10], [32_000, 32_000, 10]),
        ([4], [20_500, 20_500, 1], [20_500, 20_500, 1]),
    ],
    ids=["few bytes for each partition", "a batch for each partition"],
)
def test_batches_are_gathered_until_an_append_is_worth_its_cost(partitions, rows, gathered):
    found = gather(iter(batches_of(*rows)), met(*partitions))
    assert [batch.num_rows for batch in found] == gathered


def test_batches_of_large_rows_are_not_gathered_because_that_copies_them():
    small = batches_of(10, 20)
    large = [pa.record_batch({"value": pa.array([bytes(100_000)] * rows)}) for rows in (2, 3)]
    empty = pa.record_batch({"value": pa.array([], pa.binary())})
    gathered = list(gather(iter([*small, *large, empty, *small]), met(50)))
    assert [batch.num_rows for batch in gathered] == [30, 2, 3, 30]
    assert gathered[1:3] == large
    assert gathered[1].column(0).buffers()[2].address == large[0].column(0).buffers()[2].address


class Discarding:
    """An end that keeps no row. Its topics have one partition each."""

    writes = True
    meter = TaskMeter(SystemClock())
    receipt = SendReceipt()

    def append(self, topics, columns, partitions):
        pass

    def core(self):
        return self

    def partition_count(self, topic):
        return 1


def test_rejected_rows_that_no_stage_takes_are_an_error_and_not_lost():
    pipeline = Pipeline(OPTIONS, Discarding(), SystemClock())
    rejected = RejectedRows(FaultKind(Reason.INVALID_PARTITION, ILLEGAL_ARGUMENT), np.array([1]), ["bad"])
    pipeline._stages = (lambda rows: iter([rows.rejecting(rejected)]),)
    with pytest.raises(IllegalStateError, match="invalid-partition"):
        pipeline.write(iter([batch(("a", "x"), ("b", "x"))]), LAYOUT)


@pytest.mark.parametrize(
    ("rows", "row_size", "gathered"), [(80, 10_000, [0, 1, 2] * 3), (10, 100_000, [0] * 9)], ids=["small", "large"]
)
def test_the_rows_of_an_append_are_free_before_the_next_batch_is_read(rows, row_size, gathered):
    """The combined copy, the batches it was made of and the columns of the last append were all held."""
    held = []

    def batches():
        before = pa.total_allocated_bytes()
        for _ in range(9):
            yield pa.record_batch({"value": pa.array([bytes(row_size)] * rows), "topic": ["x"] * rows})
            held.append((pa.total_allocated_bytes() - before) // (rows * row_size))

    Pipeline(OPTIONS, Discarding(), SystemClock()).write(batches(), LAYOUT)
    assert held == gathered


def test_an_append_has_its_size_once_structs_are_encoded():
    size = AppendTarget(OPTIONS.producer)
    structs = pa.record_batch({"value": pa.array([list(range(100))] * 10)})
    encoded = TaskRows(0, TopicColumn.of("x"), RecordColumns(value=pa.array([b"value"] * 10, pa.binary())))
    assert size.of(structs.nbytes) == structs.nbytes
    size.appended(encoded)
    size.end_batch(structs)
    assert size.of(structs.nbytes) == pytest.approx(encoded.columns.value.nbytes)


@pytest.mark.parametrize(
    ("partitions", "topics", "options", "expected"),
    [
        (4, 1, {}, 2 << 20),
        (16, 1, {}, 4 << 20),
        (4, 20, {"kafka.batch.size": "16384"}, 5 << 20),
        (1000, 1, {}, 16 << 20),
        (4, 1, {"kafka.buffer.memory": "1048576"}, 1 << 19),
    ],
    ids=["at least 2 MiB", "a batch per partition", "256 KiB per topic", "half of the memory", "of a small one, too"],
)
def test_an_append_is_worth_its_cost_and_never_more_than_half_of_the_memory(partitions, topics, options, expected):
    size = AppendTarget(SinkOptions.parse({"kafka.bootstrap.servers": "a:1", **options}).producer)
    for number in range(topics):
        size.add([f"t{number}"], Topics(**{f"t{number}": partitions}))
    assert size.bytes == expected


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
    gathered = [batch.column(1).to_numpy() for batch in gather(iter(batches), target)]
    assert [(len(each), set(each.tolist())) for each in gathered] == [(rows, {0}), (rows, {1})]


def test_the_partitions_of_every_topic_a_task_has_met_count_once():
    target = AppendTarget(OPTIONS.producer)
    cluster = Topics(a=200, b=20, c=40)
    target.add(("a", "b"), cluster)
    target.add(("a",), cluster)
    assert target.bytes == 220 * 16_384
    target.add(("b", "c", "a"), cluster)
    assert target.bytes == 260 * 16_384


def test_the_topics_of_a_batch_were_waited_for_one_after_the_other(write, kafka_test_broker):
    """Each behind the Produce requests of the one before: 20 new topics took a task 0.4 s."""
    names = [f"t{number}" for number in range(20)]
    for name in names:
        kafka_test_broker.create_topic(name, partitions=1)
    write([batch(*(("x", name) for name in names))])
    assert [len(kafka_test_broker.topic(name).records()) for name in names] == [1] * 20
    assert len(kafka_test_broker.requests.of("Metadata")) <= 3


def test_many_small_tasks_without_keys_reach_all_partitions_alike(write, kafka_test_broker):
    """500 tasks of 10 rows are two batches of 256 KiB: a run that outlives its task ends on a few partitions."""
    kafka_test_broker.create_topic("t", partitions=4)
    counts = Counter()
    for _ in range(500):
        message = write([batch(*[("x" * 50, "t")] * 10)])
        counts.update({each.partition: each.count for each in message.writes})
    assert sum(counts.values()) == 5_000
    assert all(750 < counts[partition] < 1_750 for partition in range(4)), counts


STRUCT = pa.struct([("a", pa.int32())])
SCHEMA = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'


@pytest.fixture
def registry(monkeypatch):
    registry = FakeRegistry()
    registry.serve_workers(monkeypatch)
    return registry


broker = broker_with("out", "dead", config={"auto.create.topics.enable": False})


def planned(broker, registry, topics, **given):
    """Options, plan and rows of a task."""
    base = {"kafka.bootstrap.servers": broker.bootstrap_servers, "kafka.max.block.ms": "3000", "valueFormat": "avro"}
    url = {"schema.registry.url": "http://registry:8081"}
    options = SinkOptions.parse({**base, **url, "valueSchema": SCHEMA, **given})
    formats = plan_formats(options.formats, {Side.VALUE: FrameColumn(STRUCT)}, None, registry)
    values = pa.array([{"a": number} for number in range(len(topics))], STRUCT)
    return options, formats, pa.record_batch({"value": values, "topic": pa.array(topics)})


def write_encoded(broker, registry, topics, **given):
    options, formats, batch = planned(broker, registry, topics, **given)
    module.write_rows(iter([batch]), LAYOUT, options, formats)


@pytest.mark.parametrize("given", [{}, {"topicCreation": "never"}])
def test_a_topic_that_does_not_exist_gets_no_subject(broker, registry, given):
    write_encoded(broker, registry, ["out"])
    with pytest.raises(KafkaError, match="typo"):
        write_encoded(broker, registry, ["out", "typo"], **given)
    assert registry.requests == [("register", "out-value")]


def test_nor_does_one_in_a_transaction(broker, registry):
    options, formats, batch = planned(broker, registry, ["typo"])
    query = Query(broker.bootstrap_servers, options={"max.block.ms": "3000"})
    with query.open_task(query.plan(), 0, 0) as task:
        pipeline = Pipeline(options, task, SystemClock(), formats=task_formats(formats, options, task))
        with pytest.raises(KafkaError, match="Topic typo not present in metadata"):
            pipeline.write(iter([batch]), LAYOUT)
    assert registry.requests == []


@pytest.mark.parametrize(
    ("columns", "reason", "texts"),
    [
        ({"topic": ["t", None]}, "null-topic", ["contains a null topic", "`where topic is null`", "(row 1 of"]),
        (
            {"topic": ["t", "t"], "partition": pa.array([0, 9], pa.int32())},
            "invalid-partition",
            [
                "Partition 9 of topic t with partition count",
                "(row 1 of",
                "Correct the row's partition, or add partitions",
            ],
        ),
    ],
)
@pytest.mark.parametrize("letters", [{}, {"deadLetterTopic": "dead", "deadLetterOn": "encode"}])
def test_incident_a_row_that_names_no_topic_or_partition_had_no_remedy(
    kafka_test_broker, columns, reason, texts, letters
):
    kafka_test_broker.create_topic("t", partitions=1)
    given = {"value": pa.array([b"secret", b"secret"]), **columns}
    layout = RowLayout(**{name: index for index, name in enumerate(given)})
    options = SinkOptions.parse(
        {"kafka.bootstrap.servers": kafka_test_broker.bootstrap_servers, "kafka.max.block.ms": "300", **letters}
    )
    with pytest.raises(KafkaError) as caught, with_hints(options):
        module.write_rows(iter([pa.record_batch(given)]), layout, options)
    text = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    remedy = f"add {reason} to deadLetterOn" if letters else "set deadLetterTopic"
    assert [part for part in [*texts, remedy] if part not in text] == []
    assert "secret" not in text
