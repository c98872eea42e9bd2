"""Dead letters: every reason with both guarantees, what a dead letter looks like, limits, and replays."""

import hashlib
import json
from random import Random

import pyarrow as pa
import pytest

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.task_figures import TaskFigures
from spark_kafka_sink.errors import ConfigError, DeadLetterLimitError, InvalidRecordError, KafkaError
from spark_kafka_sink.exactly_once.errors import LostRowsError
from spark_kafka_sink.exactly_once.receipts import TaskName
from spark_kafka_sink.exactly_once.values import TaskAction
from spark_kafka_sink.schemas.formats.plan import FrameColumn, plan_formats
from spark_kafka_sink.schemas.formats.task_formats import TaskFormats
from spark_kafka_sink.schemas.registry.schema import Side
from spark_kafka_sink.spark import dead_letters as letters_module
from spark_kafka_sink.spark import write as module
from spark_kafka_sink.spark.commit_message import KafkaCommitMessage, committed
from spark_kafka_sink.spark.exactly_once_task import refusals_explained
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.pipeline import Pipeline
from spark_kafka_sink.spark.schema import RowLayout
from spark_kafka_sink.spark.sink_write import check_dead_letters
from spark_kafka_sink.testing import TestBroker
from tests.contract.exactly_once.runs import Query

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = '{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}'
STRUCT = pa.struct([("a", pa.string())])
CONNECT = b"__connect.errors."


@pytest.fixture
def broker():
    with TestBroker(config={"auto.create.topics.enable": False}) as broker:
        broker.create_topic("out", partitions=2)
        broker.create_topic("small", configs={"max.message.bytes": 2_000})
        broker.create_topic("dead")
        yield broker


def prepared(query, options, batches, layout, plan=None, *, task=0, batch=0, formats=None):
    """One task's report and figures, as ``write_exactly_once`` runs it. ``plan``: of all its tasks."""
    plan = query.plan(batch) if plan is None else plan
    encoders = None if formats is None else TaskFormats(formats)
    with query.open_task(plan, batch, task) as write, refusals_explained(write, options):
        name = TaskName(query.query, batch, task)
        Pipeline(options, write, SystemClock(), name, encoders).write(iter(batches), layout)
        return write.prepare(), write.figures


class Write:
    """Writes one task's rows at least once, or exactly once with a commit."""

    def __init__(self, broker, exactly_once):
        self.broker = broker
        self.exactly_once = exactly_once
        self.number = 0

    def options(self, **given):
        base = {"kafka.bootstrap.servers": self.broker.bootstrap_servers, "kafka.max.block.ms": "120000"}
        return SinkOptions.parse({**base, "deadlettertopic": "dead", **given})

    def __call__(self, columns, formats=None, **given):
        options = self.options(**given)
        batch = pa.record_batch(columns)
        layout = RowLayout(**{name: index for index, name in enumerate(columns)})
        if not self.exactly_once:
            return module.write_rows(iter([batch]), layout, options, formats).figures
        kafka = {name.removeprefix("kafka."): value for name, value in given.items() if name.startswith("kafka.")}
        query = Query(self.broker.bootstrap_servers, options=kafka)
        report, figures = prepared(query, options, [batch], layout, batch=self.number, formats=formats)
        query.commit([report])
        self.number += 1
        return figures


@pytest.fixture(params=["at-least-once", "exactly-once"])
def write(broker, request):
    return Write(broker, request.param == "exactly-once")


def letters(broker, topic="dead"):
    return broker.topic(topic).records()


def headers(record):
    """Those of Connect, without their prefix."""
    return {
        key.removeprefix(CONNECT).decode(): value.decode() for key, value in record.headers if key.startswith(CONNECT)
    }


def test_a_null_topic(write, broker):
    figures = write({"value": ["a", "b", "c"], "key": ["1", "2", "3"], "topic": ["out", None, "out"]})
    assert sorted(broker.topic("out").values()) == [b"a", b"c"]
    (letter,) = letters(broker)
    assert (letter.key, letter.value) == (b"2", b"b")
    told = headers(letter)
    assert told.pop("exception.message").startswith("The Kafka message data sent to the producer contains a null topic")
    assert told.pop("connector.name") == ("q1" if write.exactly_once else "")
    assert told == {
        "partition": "-1",
        "offset": "-1",
        "task.id": "0",
        "stage": "KAFKA_PRODUCE",
        "class.name": "spark_kafka_sink.producer.producer.KafkaProducer",
        "exception.class.name": "java.lang.IllegalArgumentException",
    }
    assert figures.dead_letters == (("null-topic", 1),)
    assert figures.rows == 2


def topics_of(*names):
    """Spark's cast of binary to string checks nothing."""
    return pa.array(names, pa.binary()).view(pa.string())


def test_incident_a_topic_that_no_broker_takes_failed_the_rows_beside_it(write, broker):
    bad = [b"", b" ", b"a b", b"a" * 250, b".", b"..", "žluť".encode(), b"\xff"]
    values = pa.array([{"a": str(row)} for row in range(11)], STRUCT)
    given = {"valueformat": "avro", "valueschema": SCHEMA}
    figures = write({"value": values, "topic": topics_of(b"out", *bad, None, b"out")}, formats_of(write), **given)
    assert broker.topic("out").values() == [b"\x020", b"\x0410"]
    told = {json.loads(letter.value)["a"]: headers(letter) for letter in letters(broker)}
    assert sorted(told) == [*"123456789"]
    assert {told[row]["exception.class.name"].rpartition(".")[2] for row in "12345678"} == {"InvalidTopicException"}
    assert "'žluť': a name has at most 249" in told["7"]["exception.message"]
    assert figures.dead_letters == (("invalid-topic", 8), ("null-topic", 1))
    rows = {"value": ["a", "b"], "topic": topics_of(b"a b", b"a b")}
    assert write(rows).dead_letters == (("invalid-topic", 2),)
    with pytest.raises(InvalidRecordError, match=r"^Invalid topic: 'a b'\. .* \(row 0 of the task"):
        write(rows, deadletteron="null-topic")


def test_incident_a_record_without_a_timestamp_failed_the_write(write, broker):
    """Kafka's -1 is no timestamp; one below is invalid."""
    given = pa.array([-1_000, -2_000, None, 0], pa.timestamp("us", "UTC"))
    figures = write({"value": [*"abcd"], "timestamp": given}, topic="out", timestampcolumn="timestamp")
    sent = {record.value: record.timestamp for record in broker.topic("out").records()}
    assert sorted(sent) == [b"a", b"c", b"d"]
    assert sent[b"d"] == 0
    assert min(sent[b"a"], sent[b"c"]) > 1_700_000_000_000
    (letter,) = letters(broker)
    assert headers(letter)["exception.message"].startswith("Invalid timestamp: -2. ")
    assert letter.timestamp > 1_700_000_000_000
    assert figures.dead_letters == (("invalid-timestamp", 1),)
    with pytest.raises(InvalidRecordError, match=r"Invalid timestamp: -2\. .*\(row 1 of the task"):
        write({"value": [*"abcd"], "timestamp": given}, topic="out", deadletteron="encode")


def test_a_partition_that_does_not_exist_after_a_refresh(write, broker):
    figures = write({"value": ["a", "b", "c"], "partition": pa.array([0, 7, None], pa.int32())}, topic="out")
    (letter,) = letters(broker)
    assert letter.value == b"b"
    assert sorted(broker.topic("out").values()) == [b"a", b"c"]
    assert headers(letter)["exception.message"] == (
        "Partition 7 of topic out with partition count 2 is not present in metadata."
    )
    assert headers(letter)["exception.class.name"].endswith(".UnknownTopicOrPartitionException")
    assert figures.dead_letters == (("invalid-partition", 1),)


def test_partitions_that_were_added_meanwhile_are_found(broker):
    write = Write(broker, exactly_once=False)
    write({"value": ["a"]}, topic="out")
    broker.create_partitions("out", 8)
    write({"value": ["b"], "partition": pa.array([7], pa.int32())}, topic="out")
    assert broker.topic("out").values(7) == [b"b"]
    assert letters(broker) == []


def test_a_header_without_a_key_is_left_out(write, broker):
    given = pa.array([[("a", b"1")], [("x", b"2"), (None, b"3"), ("y", None)], None], HEADERS)
    write({"value": ["a", "b", "c"], "headers": given}, topic="out")
    (letter,) = letters(broker)
    assert letter.headers[:2] == ((b"x", b"2"), (b"y", None))
    assert headers(letter)["stage"] == "HEADER_CONVERTER"
    assert sorted(broker.topic("out").values()) == [b"a", b"c"]


def test_a_row_that_cannot_be_encoded_is_json(write, broker):
    options = write.options(topic="out", valueformat="avro", valueschema=SCHEMA)
    formats = plan_formats(options.formats, {Side.VALUE: FrameColumn(STRUCT)}, "out", None)
    rows = {"value": pa.array([{"a": "x"}, {"a": None}, None], STRUCT), "key": ["1", "2", "3"]}
    figures = write(rows, formats, topic="out", valueformat="avro", valueschema=SCHEMA)
    (letter,) = letters(broker)
    assert (letter.key, letter.value) == (b"2", b"{}")
    assert headers(letter)["stage"] == "VALUE_CONVERTER"
    assert headers(letter)["exception.message"].startswith("value.a: ")
    assert headers(letter)["exception.class.name"].endswith(".SerializationException")
    assert sorted(map(bytes, filter(None, broker.topic("out").values()))) == [b"\x02x"]
    assert figures.dead_letters == (("encode", 1),)


def test_incident_the_time_zone_of_the_session_ended_the_job_of_a_dead_letter(broker):
    """Neither pytz nor Python knows GMT+8."""
    write = Write(broker, exactly_once=False)
    kind = pa.struct([("a", pa.string()), ("at", pa.timestamp("us", "GMT+8")), ("d", pa.float64())])
    fields = '{"name":"a","type":"string"},{"name":"at","type":"long"},{"name":"d","type":"double"}'
    given = {
        "topic": "out",
        "valueformat": "avro",
        "valueschema": f'{{"type":"record","name":"R","fields":[{fields}]}}',
    }
    formats = plan_formats(write.options(**given).formats, {Side.VALUE: FrameColumn(kind)}, "out", None)
    write({"value": pa.array([{"a": None, "at": 0, "d": float("nan")}], kind)}, formats, **given)
    assert [letter.value for letter in letters(broker)] == [b'{"at":"1970-01-01T00:00:00Z","d":"NaN"}']


def test_the_rows_beside_a_dead_letter_keep_their_numbers(broker):
    """An error names the row as it came, whatever was taken out before it."""
    write = Write(broker, exactly_once=False)
    formats = formats_of(write, topic="out")
    rows = {
        "value": pa.array([{"a": "x"}, {"a": None}, {"a": "y"}, {"a": "z"}], STRUCT),
        "partition": pa.array([0, 0, 1, -3], pa.int32()),
    }
    with pytest.raises(InvalidRecordError, match=r"Invalid partition: -3.*\(row 3 of the task"):
        write(rows, formats, topic="out", deadletteron="encode", valueformat="avro", valueschema=SCHEMA)


def test_a_row_with_several_faults_is_one_dead_letter(write, broker):
    formats = formats_of(write)
    rows = {
        "value": pa.array([{"a": None}, {"a": None}, {"a": "y"}, {"a": "z"}], STRUCT),
        "topic": pa.array([None, "out", "out", "out"]),
        "partition": pa.array([-1, 9, 0, -7], pa.int32()),
    }
    figures = write(rows, formats, valueformat="avro", valueschema=SCHEMA)
    assert figures.dead_letters == (("encode", 1), ("invalid-partition", 1), ("null-topic", 1))
    assert [bytes(value) for value in broker.topic("out").values()] == [b"\2y"]
    assert [headers(letter)["partition"] for letter in letters(broker)] == ["-1", "-7", "9"]


def test_a_topic_of_dead_letters_only_is_not_looked_up(write, broker):
    formats = formats_of(write)
    rows = {"value": pa.array([{"a": None}, {"a": "y"}], STRUCT), "topic": pa.array(["nowhere", "out"])}
    write(rows, formats, valueformat="avro", valueschema=SCHEMA, **{"kafka.max.block.ms": "120000"})
    (letter,) = letters(broker)
    assert headers(letter)["topic"] == "nowhere"
    assert [bytes(value) for value in broker.topic("out").values()] == [b"\2y"]


def formats_of(write, topic=None):
    options = write.options(valueformat="avro", valueschema=SCHEMA, **({} if topic is None else {"topic": topic}))
    return plan_formats(options.formats, {Side.VALUE: FrameColumn(STRUCT)}, topic, None)


def test_a_row_larger_than_max_request_size(write, broker):
    large = "x" * 5_000
    write({"value": ["a", large, "c"], "key": ["1", "2", "3"]}, topic="out", **{"kafka.max.request.size": "4000"})
    assert sorted(broker.topic("out").values()) == [b"a", b"c"]
    (letter,) = letters(broker)
    assert (letter.key, letter.value) == (b"2", None)
    told = dict(letter.headers)
    assert told[b"__pykafka.omitted.value.size"] == b"5000"
    assert told[b"__pykafka.omitted.value.sha256"].decode() == hashlib.sha256(large.encode()).hexdigest()
    assert headers(letter)["exception.class.name"].endswith(".RecordTooLargeException")


def test_a_row_larger_than_its_topic_takes_is_found_before_it_is_sent(write, broker):
    large = bytes(range(256)) * 10
    write({"value": [b"a", large], "key": ["1", "2"]}, topic="small")
    assert broker.topic("small").values() == [b"a"]
    (letter,) = letters(broker)
    assert letter.value == large, "the dead-letter topic takes it"
    assert "max.message.bytes of topic small" in headers(letter)["exception.message"]


def test_a_topic_made_for_whole_rows_takes_them_however_large_they_are(write, broker):
    """As docs/operations.md says: with max.request.size above the largest row, the topics' limits decide."""
    broker.create_topic("whole", configs={"max.message.bytes": 4 << 20})
    row = {"value": [large := Random(1).randbytes(2 << 20)], "key": ["k"]}
    figures = write(row, topic="out", deadlettertopic="whole", **{"kafka.max.request.size": str(4 << 20)})
    (letter,) = letters(broker, "whole")
    assert (letter.key, letter.value) == (b"k", large)
    assert not [key for key, _ in letter.headers if key.startswith(b"__pykafka.")]
    assert figures.dead_letters == (("record-too-large", 1),)


def test_a_row_that_fits_when_compressed_is_sent(write, broker):
    figures = write({"value": ["a", "x" * 50_000]}, topic="small", **{"kafka.compression.type": "gzip"})
    assert sorted(map(len, broker.topic("small").values())) == [1, 50_000]
    assert letters(broker) == []
    assert figures.dead_letters == ()


def test_a_key_and_headers_that_are_too_large_are_told_by_size(write, broker):
    broker.create_topic("narrow", configs={"max.message.bytes": 1_500})
    given = pa.array([[("h", b"z" * 3_000)]], HEADERS)
    write({"value": ["v" * 10], "key": ["k" * 3_000], "headers": given}, topic="small", deadlettertopic="narrow")
    (letter,) = letters(broker, "narrow")
    assert (letter.key, letter.value) == (None, None)
    sizes = {key: value for key, value in letter.headers if key.endswith(b".size")}
    assert sizes[b"__pykafka.omitted.key.size"] == b"3000"
    assert int(sizes[b"__pykafka.omitted.headers.size"]) > 3_000


def test_an_unknown_topic_when_it_is_asked_for(write, broker):
    given = {"value": ["a", "b"], "topic": ["nowhere", "out"]}
    figures = write(given, deadletteron="unknown-topic")
    (letter,) = letters(broker)
    assert (letter.value, headers(letter)["topic"]) == (b"a", "nowhere")
    assert broker.topic("out").values() == [b"b"]
    assert figures.dead_letters == (("unknown-topic", 1),)


def test_without_connects_headers_a_dead_letter_has_its_own_only(write, broker):
    given = pa.array([[("h", b"1")], None], HEADERS)
    rows = {"value": ["a", "b"], "headers": given, "topic": pa.array([None, None], pa.string())}
    write(rows, deadletterheaders="none")
    assert [letter.headers for letter in letters(broker)] == [((b"h", b"1"),), ()]


def test_a_task_over_the_limit_fails_at_once(write, broker):
    rows = {"value": ["a", "b", "c"], "topic": pa.array([None, None, "out"])}
    with pytest.raises(DeadLetterLimitError, match=r"2 rows became dead letters, more than deadLetterLimit=1\. .*dead"):
        write(rows, deadletterlimit="1")
    assert letters(broker) == []
    assert write(rows, deadletterlimit="none").dead_letters == (("null-topic", 2),)


@pytest.mark.parametrize("piece", [1, 2_000, 1 << 20])
def test_dead_letters_of_many_batches_keep_their_order(broker, monkeypatch, piece):
    monkeypatch.setattr(letters_module, "_PIECE_BYTES", piece)
    options = Write(broker, exactly_once=False).options()
    batches = [
        pa.record_batch({"value": [f"{number}-{row}" for row in range(4)], "topic": pa.array([None, "out"] * 2)})
        for number in range(5)
    ]
    figures = module.write_rows(iter(batches), RowLayout(value=0, topic=1), options).figures
    expected = [f"{number}-{row}" for number in range(5) for row in (0, 2)]
    assert [letter.value.decode() for letter in letters(broker)] == expected
    assert figures.dead_letters == (("null-topic", 10),)
    assert sorted(map(bytes, broker.topic("out").values())) == sorted(
        f"{number}-{row}".encode() for number in range(5) for row in (1, 3)
    )


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_the_sum_of_all_tasks_is_checked_before_the_commit(guarantee):
    given = {"kafka.bootstrap.servers": "a:1", "deadlettertopic": "dead", "deadletterlimit": "10"}
    options = SinkOptions.parse({**given, "deliveryguarantee": guarantee, "topic": "t"})
    of = [KafkaCommitMessage(figures=TaskFigures(dead_letters=(("encode", rows),))) for rows in (6, 5)]
    with pytest.raises(DeadLetterLimitError, match="The tasks' 11 rows"):
        check_dead_letters(of, options)
    check_dead_letters(of[:1], options)


def test_over_the_limit_the_dead_letters_before_are_there_to_look_at(broker):
    """At least once: the error points to them."""
    options = Write(broker, exactly_once=False).options(deadletterlimit="3")
    batches = [pa.record_batch({"value": [f"{number}"], "topic": pa.array([None], pa.string())}) for number in range(9)]
    with pytest.raises(DeadLetterLimitError, match="4 rows became dead letters"):
        module.write_rows(iter(batches), RowLayout(value=0, topic=1), options)
    assert [letter.value for letter in letters(broker)] == [b"0", b"1", b"2"]


def test_a_replay_compares_equal_though_limits_and_partitions_have_changed(broker):
    write = Write(broker, exactly_once=True)
    columns = {"value": [b"a", bytes(range(256)) * 10], "partition": pa.array([0, 5], pa.int32())}
    query = Query(broker.bootstrap_servers)
    layout, batch = RowLayout(value=0, partition=1), pa.record_batch(columns)
    options = write.options(topic="small")
    report, figures = prepared(query, options, [batch], layout)
    assert sum(rows for _, rows in figures.dead_letters) == 1
    query.commit([report])
    broker.create_partitions("small", 6)
    again, _ = prepared(query, options, [batch], layout)
    assert again.action is TaskAction.SKIP
    assert again.outcome.rows == report.outcome.rows
    assert query.commit([again]).entry is None
    assert len(letters(broker)) == 1


def test_a_task_whose_rows_are_gone_writes_them_by_the_limits_of_today(broker):
    """Task 0 is committed with a dead letter. Task 1 timed out behind the intent; its rows could be written now."""
    broker.create_topic("pair", partitions=2, configs={"max.message.bytes": 2_000})
    large, layout = bytes(range(256)) * 10, RowLayout(value=0, partition=1)
    options = Write(broker, exactly_once=True).options(topic="pair")
    rows = [
        pa.record_batch([pa.array(values), pa.array(partitions, pa.int32())], ["value", "partition"])
        for values, partitions in (([b"a", large + b"0", b"b"], [0, 1, None]), ([b"c", large + b"1"], [5, 0]))
    ]
    query = Query(broker.bootstrap_servers, topic="pair")

    def tasks():
        plan = query.plan(0)
        return [prepared(query, options, [batch], layout, plan, task=task)[0] for task, batch in enumerate(rows)]

    def visible(topic):
        return sorted(record.value for record in broker.topic(topic).records(read_committed=True))

    reports = tasks()
    with pytest.raises(LostRowsError, match="task 1 are gone"):
        query.commit(reports, lambda: broker.expire_transaction("app-1"))
    assert (visible("pair"), visible("dead")) == ([b"a", b"b"], [large + b"0"])
    broker.set_topic_configs("pair", {"max.message.bytes": 1_000_000})
    broker.create_partitions("pair", 6)
    again = tasks()
    assert [report.action for report in again] == [TaskAction.VERIFY, TaskAction.REWRITE]
    query.commit(again)
    assert visible("pair") == sorted([b"a", b"b", b"c", large + b"1"])
    assert visible("dead") == [large + b"0"]
    assert broker.topic("pair").values(5) == [b"c"]


def test_an_aborted_batch_has_no_dead_letters(broker):
    write = Write(broker, exactly_once=True)
    batch = pa.record_batch({"value": ["a", "b"], "topic": pa.array([None, "out"])})
    query = Query(broker.bootstrap_servers)
    report, _ = prepared(query, write.options(), [batch], RowLayout(value=0, topic=1))
    query.abort([report])
    assert letters(broker) == []
    assert len(broker.topic("dead").records(read_committed=False)) == 1


OPTIONS = {"kafka.bootstrap.servers": "a:1", "topic": "t"}


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"deadletterlimit": "5"}, "deadLetterLimit needs deadLetterTopic: set that, or leave deadLetterLimit out."),
        ({"deadlettertopic": "d", "deadletteron": "unknown-topic"}, "deadLetterOn=unknown-topic is refused with the"),
        (
            {"topic": None, "deadlettertopic": "d", "deadletteron": "unknown-topic", "topiccreation": "create"},
            "deadLetterOn=unknown-topic is refused with topicCreation=create",
        ),
        ({"deadlettertopic": "d", "deadletteron": "null-topics"}, "did you mean null-topic?"),
        ({"deadlettertopic": "d", "deadletterlimit": "-1"}, "deadLetterLimit must be"),
        ({"deadlettertopic": "d", "deadletterheaders": "all"}, "deadLetterHeaders must be"),
        ({"errors.tolerance": "all"}, "errors.tolerance is an option of Kafka Connect. Use deadLetterTopic"),
        ({"errors.deadletterqueue.topic.name": "d"}, "Use deadLetterTopic."),
        ({"errors.deadletterqueue.context.headers.enable": "true"}, "Use deadLetterHeaders."),
    ],
)  # fmt: skip
def test_options_at_fault(given, fault):
    with pytest.raises(ConfigError) as raised:
        SinkOptions.parse({name: value for name, value in {**OPTIONS, **given}.items() if value is not None})
    assert fault in str(raised.value)


def test_incident_a_topic_that_takes_no_dead_letter_was_said_to_have_changed(write, broker):
    broker.create_topic("tiny", configs={"max.message.bytes": 100})
    with pytest.raises(
        KafkaError, match=r"^Task 0: a dead letter has \d+ bytes .* tiny takes 100\. Raise its max"
    ) as raised:
        write({"value": [b"v" * 2_500], "topic": ["small"]}, deadlettertopic="tiny")
    assert "next attempt" not in str(raised.value)


def test_incident_the_drivers_line_counted_a_dead_letter_without_its_value_like_the_others(write, broker):
    broker.create_topic("narrow", configs={"max.message.bytes": 1_500})
    topics = ["small", None, "small", None]
    rows = {"value": [b"x" * 2_500, b"y" * 2_500, b"z", b"w"], "topic": topics}
    figures = write(rows, deadlettertopic="narrow")
    assert sorted(letter.value or b"" for letter in letters(broker, "narrow")) == [b"", b"", b"w"]
    assert "3 dead letters, 2 without their value;" in committed([KafkaCommitMessage(figures=figures)], SystemClock())
    assert figures.cut_letters == 2
