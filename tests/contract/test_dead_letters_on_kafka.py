"""Dead letters on a real Kafka, read back by confluent-kafka."""

import pyarrow as pa

from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.schema import RowLayout
from spark_kafka_sink.spark.write import write_rows
from tests.spark.topics import Topic


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
