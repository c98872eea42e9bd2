"""Values that are not copied arrive at a real Kafka as they are, without TLS and with it, and its own tool finds normal
batches.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Consumer

from spark_kafka_sink import KafkaProducer
from spark_kafka_sink.testing import LocalKafka
from tests.contract.scenario import name
from tests.contract.security.librdkafka import librdkafka_options
from tests.spark.topics import Topic
from tests.support.waiting import eventually

SIZES = (10_000, 16_384, 100_000, 900_000, 5, 0)
PARTITIONS = 3
BATCH = re.compile(r"^baseOffset: .* count: (\d+) .* compresscodec: (\w+) .* isvalid: (\w+)$", re.MULTILINE)
RECORD = re.compile(r"^\| offset: (\d+) .* keySize: (-?\d+) valueSize: (-?\d+) ", re.MULTILINE)


def values_of(sizes: tuple[int, ...]) -> list[bytes | None]:
    """Random bytes of each size, and null."""
    random = np.random.default_rng(1)
    return [*(random.bytes(size) for size in sizes * 3), None]


def send(options: Mapping[str, str], topic: str, values: list[bytes | None]) -> None:
    """From the middle of an array, in two chunks, twice."""
    keys = pa.array([b"key%d" % row for row in range(len(values))], pa.binary())
    array = pa.array([b"before", *values, b"after"], pa.binary())[1:-1]
    chunks = pa.chunked_array([array[:5], array[5:]])
    with KafkaProducer(options) as producer:
        producer.send_columns(topic, key=keys, value=array)
        producer.send_columns(topic, key=keys, value=chunks)
        producer.flush()


def consumed(options: Mapping[str, str], topic: str, count: int) -> Counter[bytes | None]:
    given = {**librdkafka_options(options), "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer({**given, "enable.auto.commit": False})
    found: list[bytes | None] = []
    try:
        consumer.subscribe([topic])

        def read() -> bool:
            found.extend(message.value() for message in consumer.consume(100, 1.0) if message.error() is None)
            return len(found) >= count

        eventually(read, "some records are missing")
    finally:
        consumer.close()
    return Counter(found)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("batch_size", ["16384", "262144"])
def test_each_value_arrives_once_and_the_log_is_as_usual(local_kafka: LocalKafka, codec: str, batch_size: str) -> None:
    topic, values = name("large"), values_of(SIZES)
    local_kafka.create_topic(topic, PARTITIONS)
    options = {"bootstrap.servers": local_kafka.bootstrap_servers}
    send({**options, "compression.type": codec, "batch.size": batch_size}, topic, values)
    records = Topic(local_kafka.bootstrap_servers, topic).records()
    keyed = Counter((record.key, record.value) for record in records)
    assert keyed == Counter((b"key%d" % row, value) for row, value in enumerate(values) for _ in range(2))
    for partition, dump in enumerate(local_kafka.dump_log_segments(topic).split("Dumping ")[1:]):
        here = [record for record in records if record.partition == partition]
        batches = BATCH.findall(dump)
        assert {(used, valid) for _, used, valid in batches} == ({(codec, "true")} if here else set())
        assert sum(int(count) for count, _, _ in batches) == len(here)
        dumped = [(int(offset), int(size)) for offset, _, size in RECORD.findall(dump)]
        assert dumped == [(offset, -1 if each.value is None else len(each.value)) for offset, each in enumerate(here)]


@pytest.mark.parametrize("listener", ["TLS", "SASL_TLS"])
def test_each_value_arrives_once_over_tls(secure_kafka: LocalKafka, listener: str) -> None:
    topic, values = name("large"), values_of(SIZES)
    secure_kafka.create_topic(topic, PARTITIONS)
    options = secure_kafka.client_options(listener)
    send(options, topic, values)
    assert consumed(options, topic, 2 * len(values)) == Counter(values * 2)
