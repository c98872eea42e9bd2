"""Dead letters for a principal that may not ask a real Kafka for max.message.bytes; confluent-kafka reads them back."""

from __future__ import annotations

from collections import Counter
from random import Random

import pyarrow as pa
import pytest

from spark_kafka_sink.errors import RecordTooLargeError
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.schema import RowLayout
from spark_kafka_sink.spark.write import write_rows
from spark_kafka_sink.testing import LocalKafka
from tests.contract.scenario import name
from tests.contract.security.test_rights import LISTENER, query_with
from tests.contract.spark.dead_letter_runs import prepared
from tests.spark.topics import Topic

ROWS = 3_000
LIMIT, DEAD_LIMIT = 20_000, 30_000
LARGE = {100: 25_000, 1_500: 50_000, 2_999: 25_000}
"""Row to the size of its value: more than the topic takes; the second is more than the topic of dead letters takes."""


def batch() -> pa.RecordBatch:
    random = Random(1)
    values = [random.randbytes(LARGE[row]) if row in LARGE else b"%d" % row + b"x" * 90 for row in range(ROWS)]
    return pa.record_batch({"key": [b"%d" % (row % 5) for row in range(ROWS)], "value": values})


def topics(kafka: LocalKafka) -> tuple[str, str]:
    """Both may only be written to."""
    rows, dead = name("rows"), name("dead")
    kafka.create_topic(rows, 2, {"max.message.bytes": str(LIMIT)})
    kafka.create_topic(dead, 1, {"max.message.bytes": str(DEAD_LIMIT)})
    for topic in (rows, dead):
        kafka.allow("client", "WRITE", "TOPIC", topic)
    return rows, dead


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_at_least_once_rows_that_a_broker_refuses_are_dead_letters(secure_kafka: LocalKafka, codec: str) -> None:
    rows, dead = topics(secure_kafka)
    options = secure_kafka.spark_options(LISTENER)
    given = {**options, "topic": rows, "deadlettertopic": dead, "kafka.compression.type": codec}
    sent = batch()
    figures = write_rows(iter([sent]), RowLayout(key=0, value=1), SinkOptions.parse(given)).figures
    servers = secure_kafka.bootstrap_servers
    delivered = Topic(servers, rows).records()
    values = sent.column("value").to_pylist()
    good = [value for row, value in enumerate(values) if row not in LARGE]
    assert Counter(record.value for record in delivered) == Counter(good)
    for partition in (0, 1):
        numbers = [number_of(record.value) for record in delivered if record.partition == partition]
        assert numbers == sorted(numbers), "refusals change no order"
    letters = {record.value: record for record in Topic(servers, dead).records()}
    assert letters.keys() == {values[100], values[2_999], None}
    omitted = dict(letters[None].headers or ())
    assert omitted["__pykafka.omitted.value.size"] == b"50000"
    for letter in letters.values():
        told = dict(letter.headers or ())
        assert told["__connect.errors.topic"] == rows.encode()
        assert b"MESSAGE_TOO_LARGE" in (told["__connect.errors.exception.message"] or b"")
    assert figures.dead_letters == (("record-too-large", 3),)
    assert figures.rows == ROWS - 3


def number_of(value: bytes | None) -> int:
    assert value is not None
    return int(value.rstrip(b"x"))


def test_exactly_once_the_task_fails_and_names_the_missing_right(secure_kafka: LocalKafka) -> None:
    rights = [("TOPIC", "topic", "WRITE"), ("TRANSACTIONAL_ID", "prefix", "WRITE")]
    rights += [("TOPIC", "ledger", operation) for operation in ("CREATE", "READ", "WRITE", "DESCRIBE_CONFIGS")]
    query = query_with(secure_kafka, rights)
    _, dead = topics(secure_kafka)
    given = {**secure_kafka.spark_options(LISTENER), "topic": query.topic, "deadlettertopic": dead}
    options = SinkOptions.parse({**given, "kafka.max.request.size": "3000000"})
    rows = pa.record_batch({"value": [b"a", Random(1).randbytes(1_500_000)]})
    query.options |= {"max.request.size": "3000000"}
    with pytest.raises(RecordTooLargeError) as caught:
        prepared(query, options, [rows], RowLayout(value=0))
    assert "max.message.bytes is unknown (TOPIC_AUTHORIZATION_FAILED)" in str(caught.value)
    assert f"Give the principal DESCRIBE_CONFIGS on topic {query.topic}." in str(caught.value)
    assert Topic(secure_kafka.bootstrap_servers, dead).count() == 0
