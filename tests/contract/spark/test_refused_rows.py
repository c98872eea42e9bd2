"""Rows that only a broker finds too large: dead letters at least once, an explained failure in a transaction."""

import hashlib
import time
from random import Random

import pyarrow as pa
import pytest

from spark_kafka_sink.errors import BrokerError, DeadLetterLimitError, KafkaError, RecordTooLargeError
from spark_kafka_sink.spark import write as module
from spark_kafka_sink.spark.schema import RowLayout
from spark_kafka_sink.spark.sink_write import with_hints
from spark_kafka_sink.spark.validate import limit_of
from spark_kafka_sink.testing import TestBroker
from spark_kafka_sink.testing.broker.faults import KEPT
from tests.contract.exactly_once.runs import Query
from tests.contract.spark.test_dead_letters import HEADERS, Write, headers, letters, prepared

LARGE = Random(1).randbytes(2_500)
"""More than the topic small takes, also compressed."""


@pytest.fixture
def broker():
    with TestBroker(config={"auto.create.topics.enable": False}) as broker:
        broker.create_topic("small", partitions=2, configs={"max.message.bytes": 2_000})
        broker.create_topic("dead")
        yield broker


@pytest.fixture
def write(broker):
    """At least once, by a principal without the right to ask for the topic's limit."""
    broker.faults.answer("DescribeConfigs", "TOPIC_AUTHORIZATION_FAILED", topic="small", times=KEPT)
    return Write(broker, exactly_once=False)


def values(count):
    return [b"%d" % number for number in range(count)]


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_row_that_only_a_broker_refuses_is_a_dead_letter_as_it_was_sent(write, broker, codec):
    rows = [*values(500), LARGE, *values(500)]
    row_headers = pa.array([None] * 500 + [[("own", b"1"), ("none", None)]] + [None] * 500, HEADERS)
    columns = {
        "value": rows,
        "key": [b"k"] * 1001,
        "headers": row_headers,
        "timestamp": pa.array([1_700_000_000_000 + number for number in range(1001)], pa.int64()),
    }
    figures = write(columns, topic="small", **{"kafka.compression.type": codec})
    (letter,) = letters(broker)
    assert (letter.key, letter.value, letter.timestamp) == (b"k", LARGE, 1_700_000_000_500)
    assert letter.headers[:2] == ((b"own", b"1"), (b"none", None))
    told = headers(letter)
    where = int(told["partition"])
    assert broker.topic("small").values(where) == [*values(500), *values(500)], "the others, in their order"
    assert (told["topic"], told["stage"]) == ("small", "KAFKA_PRODUCE")
    assert told["exception.class.name"].endswith(".RecordTooLargeException")
    assert "MESSAGE_TOO_LARGE" in told["exception.message"]
    assert figures.dead_letters == (("record-too-large", 1),)
    assert figures.rows == 1000


def test_one_warning_names_the_missing_right(write, caplog):
    for _ in range(2):
        write({"value": [b"a", LARGE]}, topic="small")
    (line,) = [each.message for each in caplog.records if each.levelname == "WARNING" and "is unknown" in each.message]
    assert line.startswith("max.message.bytes of topic small is unknown (DescribeConfigs of small: TOPIC_AUTHORIZATION")
    assert "the principal needs DESCRIBE_CONFIGS on the topic" in line


def test_a_limit_that_no_broker_tells_in_time_does_not_hold_rows_up(broker, caplog):
    broker.faults.lose_answer("DescribeConfigs", times=KEPT)
    brief = {"kafka.request.timeout.ms": "300", "kafka.delivery.timeout.ms": "2000", "kafka.linger.ms": "0"}
    assert Write(broker, exactly_once=False)({"value": [b"a"]}, topic="small", **brief).rows == 1
    assert "unknown (DescribeConfigs has no response after 300 ms" in caplog.text


def test_each_task_asks_once_for_the_limits_of_several_topics_on_its_producers_connections(broker):
    broker.create_topic("large")
    rows = {"value": [b"a", b"b"], "topic": ["small", "large"]}
    for _ in range(2):
        Write(broker, exactly_once=False)(rows, **{"kafka.client.id": "task", "kafka.buffer.memory": "300000"})
    assert [seen.client_id for seen in broker.requests.of("DescribeConfigs")] == ["task"] * 2


@pytest.mark.parametrize("limit", ["a lot", "-1", "0", "9" * 5_000])
def test_incident_a_limit_that_is_not_a_positive_number_was_an_unexpected_error(limit):
    assert "which is not a positive number" in str(limit_of({"max.message.bytes": limit}))


def test_refused_rows_become_dead_letters_while_the_task_goes_on(write, broker):
    """Their bytes are not held until its end, and deadLetterLimit ends it early."""
    options = write.options(topic="small", deadletterlimit="3", **{"kafka.linger.ms": "0"})
    taken = 0

    def batches():
        nonlocal taken
        for _ in range(1_000):
            taken += 1
            yield pa.record_batch({"value": pa.array([b"a" * 300, LARGE] + [b"b" * 300] * 2_000, pa.binary())})

    with pytest.raises(DeadLetterLimitError, match=r"4 rows became dead letters.*MESSAGE_TOO_LARGE"):
        module.write_rows(batches(), RowLayout(value=0), options)
    assert taken < 500
    assert len(letters(broker)) <= 3


def test_a_dead_letter_that_is_refused_too_goes_without_its_value_then_without_its_key(write, broker):
    broker.faults.answer("DescribeConfigs", "TOPIC_AUTHORIZATION_FAILED", topic="narrow", times=KEPT)
    broker.create_topic("narrow", configs={"max.message.bytes": 1_500})
    rows = {"value": [LARGE, LARGE], "key": [b"k", b"k" * 3_000], "headers": pa.array([[("own", b"1")]] * 2, HEADERS)}
    figures = write(rows, topic="small", deadlettertopic="narrow")
    first, second = sorted(letters(broker, "narrow"), key=lambda letter: letter.key is None)
    digest = hashlib.sha256(LARGE).hexdigest().encode()
    for letter in (first, second):
        assert letter.value is None
        assert letter.headers[0] == (b"own", b"1")
        assert dict(letter.headers)[b"__pykafka.omitted.value.sha256"] == digest
        assert headers(letter)["topic"] == "small"
    assert (first.key, second.key) == (b"k", None)
    assert dict(second.headers)[b"__pykafka.omitted.key.size"] == b"3000"
    assert figures.dead_letters == (("record-too-large", 2),)


def test_headers_that_are_too_large_are_told_by_size_and_a_letter_that_never_fits_fails_the_task(write, broker):
    broker.faults.answer("DescribeConfigs", "TOPIC_AUTHORIZATION_FAILED", topic="narrow", times=KEPT)
    broker.create_topic("narrow", configs={"max.message.bytes": 1_500})
    rows = {"value": [b"v"], "headers": pa.array([[("own", LARGE)]], HEADERS)}
    write(rows, topic="small", deadlettertopic="narrow")
    (letter,) = letters(broker, "narrow")
    assert int(dict(letter.headers)[b"__pykafka.omitted.headers.size"]) > len(LARGE)
    assert headers(letter)["stage"] == "KAFKA_PRODUCE"
    broker.faults.answer("DescribeConfigs", "TOPIC_AUTHORIZATION_FAILED", topic="tiny", times=KEPT)
    broker.create_topic("tiny", configs={"max.message.bytes": 100})
    with pytest.raises(BrokerError, match="tiny-0: MESSAGE_TOO_LARGE"):
        write(rows, topic="small", deadlettertopic="tiny")


def test_a_limit_that_was_lowered_meanwhile(broker):
    write = Write(broker, exactly_once=False)
    broker.create_topic("out", configs={"max.message.bytes": 5_000})
    assert write({"value": [b"a", LARGE]}, topic="out").dead_letters == ()
    broker.set_topic_configs("out", {"max.message.bytes": 2_000})
    assert write({"value": [b"b", LARGE]}, topic="out").dead_letters == (("record-too-large", 1),)
    (letter,) = letters(broker)
    assert letter.value == LARGE
    assert broker.topic("out").values() == [b"a", LARGE, b"b"]


def test_a_reason_that_is_not_asked_for_fails_the_task_as_without_dead_letters(write, broker):
    with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE"):
        write({"value": [b"a", LARGE]}, topic="small", deadletteron="null-topic")
    assert letters(broker) == []


NEVER = (
    "TOPIC_AUTHORIZATION_FAILED",
    "INVALID_RECORD",
    "INVALID_TIMESTAMP",
    "NOT_ENOUGH_REPLICAS",
    "INVALID_PRODUCER_EPOCH",
    "INVALID_REQUIRED_ACKS",
    "UNSUPPORTED_COMPRESSION_TYPE",
)


@pytest.mark.parametrize("code", NEVER)
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_other_errors_of_a_broker_are_never_dead_letters(broker, guarantee, code):
    broker.faults.answer("Produce", code, topic="small", times=KEPT)
    write = Write(broker, guarantee == "exactly-once")
    short = {"kafka.delivery.timeout.ms": "900", "kafka.request.timeout.ms": "800"}
    with pytest.raises(KafkaError) as caught:
        write({"value": [b"a"]}, topic="small", **short)
    assert not isinstance(caught.value, RecordTooLargeError)
    assert letters(broker) == []


def transaction(broker, batches, **given):
    options = Write(broker, exactly_once=True).options(**given)
    with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE") as caught, with_hints(options):
        prepared(Query(broker.bootstrap_servers), options, batches, RowLayout(value=0))
    (note,) = caught.value.__notes__
    assert "Give the principal DESCRIBE_CONFIGS on the topic" in note


def test_a_transaction_without_the_right_to_ask_fails_naming_it(broker):
    broker.faults.answer("DescribeConfigs", "TOPIC_AUTHORIZATION_FAILED", topic="small", times=KEPT)
    transaction(broker, [pa.record_batch({"value": [b"a", LARGE]})], topic="small")
    assert broker.topic("small").records(read_committed=True) == []
    assert letters(broker) == []


def test_a_transaction_whose_dead_letter_is_refused_names_the_right_on_its_topic(broker):
    broker.faults.answer("DescribeConfigs", "TOPIC_AUTHORIZATION_FAILED", topic="narrow", times=KEPT)
    broker.create_topic("narrow", configs={"max.message.bytes": 1_500})
    transaction(broker, [pa.record_batch({"value": [b"a", LARGE]})], topic="small", deadlettertopic="narrow")


def test_a_transaction_whose_topics_limit_was_lowered_meanwhile_says_so(broker):
    broker.create_topic("out", configs={"max.message.bytes": 5_000})

    def batches():
        yield pa.record_batch({"value": [b"a" * 3_000] * 200})  # an append of its own
        broker.set_topic_configs("out", {"max.message.bytes": 2_000})
        yield pa.record_batch({"value": [LARGE]})

    transaction(broker, batches(), topic="out")


def timed(count, *late):
    """Columns of rows, of which those with the numbers ``late`` are two hours ahead."""
    now = time.time_ns() // 1_000_000
    times = [now + 7_200_000 * (row in late) for row in range(count)]
    return {"value": values(count), "key": [b"k%d" % (row % 7) for row in range(count)], "timestamp": times}


def in_an_hour(broker, partitions=3):
    """As brokers of Kafka 4 do, also for dead letters."""
    broker.create_topic("timed", partitions, configs={"message.timestamp.after.max.ms": 3_600_000})
    broker.set_topic_configs("dead", {"message.timestamp.after.max.ms": 3_600_000})


@pytest.mark.parametrize("options", [{}, {"kafka.compression.type": "lz4"}, {"kafka.enable.idempotence": "false"}])
def test_incident_a_record_that_a_broker_refused_failed_the_rows_in_its_batch(broker, options):
    in_an_hour(broker)
    late = (0, 5, 6, 40, 99)
    given = {"topic": "timed", "deadletteron": "refused-by-broker", **options}
    columns = timed(100, *late)
    figures = Write(broker, exactly_once=False)(columns, **given)
    assert figures.dead_letters == (("refused-by-broker", 5),)
    assert figures.rows == 95
    for partition in range(3):
        written = list(map(int, broker.topic("timed").values(partition)))
        assert written == sorted(written), "the others, in their order"
    assert sorted(map(int, broker.topic("timed").values())) == [row for row in range(100) if row not in late]
    for letter in letters(broker):
        told, row = headers(letter), int(letter.value)
        assert dict(letter.headers)[b"__pykafka.omitted.timestamp"] == b"%d" % columns["timestamp"][row]
        assert f", row {row}: INVALID_" in told["exception.message"]
        assert told["exception.class.name"].rpartition(".")[2] in {
            "InvalidTimestampException",
            "InvalidRecordException",
        }
        assert (told["topic"], told["stage"]) == ("timed", "KAFKA_PRODUCE")
    assert {int(letter.value) for letter in letters(broker)} == {*late}


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize("memory", [64 << 10, 32 << 20])
def test_without_the_reason_the_error_has_the_row_and_the_timestamp(broker, guarantee, memory):
    """``memory``: rows in many slices, by partition; in one."""
    in_an_hour(broker, partitions=4)
    columns = timed(2_000, 1_234)
    columns["topic"] = pa.array(["timed"] * 999 + [None] + ["timed"] * 1_000)
    options = {"kafka.buffer.memory": str(memory), "deadletterlimit": "none"}
    with pytest.raises(KafkaError) as caught:
        Write(broker, guarantee == "exactly-once")(columns, **options)
    text = str(caught.value)
    assert f"row 1234: INVALID_TIMESTAMP; Timestamp {columns['timestamp'][1_234]} of message" in text
    assert caught.value.row == 1_234


def test_incident_the_error_of_a_refused_dead_letter_named_another_row(broker):
    in_an_hour(broker)
    columns = timed(10, 7)
    columns["topic"] = pa.array(["timed"] * 7 + [None] + ["timed"] * 2)
    with pytest.raises(BrokerError, match="dead-0, record 0 of its batch: INVALID_TIMESTAMP") as caught:
        Write(broker, exactly_once=False)(columns)
    assert caught.value.row is None


def test_incident_a_dead_letter_that_is_too_large_to_send_named_another_row(broker):
    write = Write(broker, exactly_once=False)
    given = {"kafka.max.request.size": "300"}
    columns = {"value": [b"v"] * 3, "topic": ["small", "small", None]}
    with pytest.raises(RecordTooLargeError) as caught, with_hints(write.options(**given)):
        write(columns, **given)
    assert "max.request.size" in str(caught.value)
    assert "row " not in str(caught.value)
