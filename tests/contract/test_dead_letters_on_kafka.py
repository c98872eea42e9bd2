"""Dead letters on a real Kafka, read back by confluent-kafka."""

from random import Random

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError as KafkaException
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from spark_kafka_sink.errors import RecordTooLargeError
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.schema import RowLayout
from spark_kafka_sink.spark.write import write_rows
from tests.contract.scenario import name
from tests.faults.exactly_once.reader import read_committed
from tests.spark.topics import Topic
from tests.support.waiting import DEADLINE_S, until
from tests.unit.exactly_once.runs import Query
from tests.unit.spark.dead_letter_runs import prepared

LARGE = Random(1).randbytes(40_000)


def test_one_bad_row_of_many_is_a_dead_letter_with_connects_headers(local_kafka):
    servers = local_kafka.bootstrap_servers
    local_kafka.create_topic("letters-out", 3, {"max.message.bytes": "50000"})
    local_kafka.create_topic("letters-dead", 1)
    large = bytes(range(256)) * 300
    values = [b"%d" % number for number in range(20_000)]
    values[12_345] = large
    options = SinkOptions.parse(
        {
            "kafka.bootstrap.servers": servers,
            "topic": "letters-out",
            "deadlettertopic": "letters-dead",
            "queryname": "nightly",
        }
    )
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[("own", b"1")]] * len(values), kind)
    batch = pa.record_batch({"value": pa.array(values, pa.binary()), "headers": headers})
    message = write_rows(iter([batch]), RowLayout(value=0, headers=1), options)
    read = sorted(record.value for record in Topic(servers, "letters-out").records())
    assert read == sorted(value for value in values if value is not large)
    (letter,) = Topic(servers, "letters-dead").records()
    assert letter.value == large
    assert letter.headers[0] == ("own", b"1")
    text = dict(letter.headers)["__connect.errors.exception.message"]
    assert dict(letter.headers[1:]) == {
        "__connect.errors.topic": b"letters-out",
        "__connect.errors.partition": b"-1",
        "__connect.errors.offset": b"-1",
        "__connect.errors.connector.name": b"nightly",
        "__connect.errors.task.id": b"0",
        "__connect.errors.stage": b"KAFKA_PRODUCE",
        "__connect.errors.class.name": b"spark_kafka_sink.producer.producer.KafkaProducer",
        "__connect.errors.exception.class.name": b"org.apache.kafka.common.errors.RecordTooLargeException",
        "__connect.errors.exception.message": text,
    }
    assert text.endswith(b"larger than 50000, the value of max.message.bytes of topic letters-out.")
    assert message.figures.dead_letters == (("record-too-large", 1),)
    assert message.figures.rows == len(values) - 1


def set_limit(servers, topic, limit):
    entry = ConfigEntry("max.message.bytes", str(limit), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": servers})
    admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)


def await_limit(servers, topic):
    """The controller has the new limit before the broker does. Of two topics the broker has the first one's first."""
    refused = []
    producer = Producer({"bootstrap.servers": servers})

    def ended(error, _message):
        refused.append(error is not None and error.code() == KafkaException.MSG_SIZE_TOO_LARGE)

    def write():
        producer.produce(topic, LARGE, on_delivery=ended)
        producer.flush(DEADLINE_S)
        return refused[-1:] == [True]

    until(write, bool, f"{topic} takes what is larger than its limit")


def limit_lowered_under_way(servers, topic):
    """Batches of rows: the second after the limit is below its row. The first is an append of its own."""
    yield pa.record_batch({"value": [b"a" * 100] * 100})
    set_limit(servers, topic, 20_000)
    set_limit(servers, f"{topic}-probe", 20_000)
    await_limit(servers, f"{topic}-probe")
    yield pa.record_batch({"value": [b"b", LARGE, b"c"]})


def test_a_limit_that_is_lowered_under_way(local_kafka):
    servers, topic, dead = local_kafka.bootstrap_servers, name("out"), name("dead")
    for limited in (topic, f"{topic}-probe"):
        local_kafka.create_topic(limited, 1, {"max.message.bytes": "50000"})
    local_kafka.create_topic(dead, 1)
    options = SinkOptions.parse({"kafka.bootstrap.servers": servers, "topic": topic, "deadlettertopic": dead})
    figures = write_rows(limit_lowered_under_way(servers, topic), RowLayout(value=0), options).figures
    assert [record.value for record in Topic(servers, topic).records()] == [b"a" * 100] * 100 + [b"b", b"c"]
    (letter,) = Topic(servers, dead).records()
    assert letter.value == LARGE
    assert b"MESSAGE_TOO_LARGE" in dict(letter.headers)["__connect.errors.exception.message"]
    assert figures.dead_letters == (("record-too-large", 1),)


def transaction(query, batches, dead):
    given = {"kafka.bootstrap.servers": query.servers, "topic": query.topic, "deadlettertopic": dead}
    query.commit([prepared(query, SinkOptions.parse(given), batches, RowLayout(value=0))])


def test_in_a_transaction_a_limit_that_is_lowered_under_way_fails_the_task_and_says_so(local_kafka):
    servers, topic, dead = local_kafka.bootstrap_servers, name("out"), name("dead")
    for limited in (topic, f"{topic}-probe"):
        local_kafka.create_topic(limited, 1, {"max.message.bytes": "50000"})
    local_kafka.create_topic(dead, 1)
    query = Query(servers, name=topic, topic=topic)
    with pytest.raises(RecordTooLargeError, match="max.message.bytes was 50000 when this task asked for it"):
        transaction(query, limit_lowered_under_way(servers, topic), dead)
    assert read_committed(servers, topic) == {0: []}
    transaction(query, [pa.record_batch({"value": [b"b", LARGE]})], dead)
    assert read_committed(servers, topic) == {0: [b"b"]}
    assert read_committed(servers, dead) == {0: [LARGE]}
