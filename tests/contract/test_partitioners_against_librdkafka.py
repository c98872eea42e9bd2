"""librdkafka's own partitioners must put every key where ours do."""

import confluent_kafka
import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.producer.partitioning.kafka_partitioners import KEY_HASHES
from spark_kafka_sink.testing import TestBroker

KEYS = [b"%d" % number for number in range(150)] + ["日本".encode(), b"\xff" * 7, b"\0", b"x" * 300]
PARTITIONS = 7


def placed_by_librdkafka(partitioner: str) -> dict[bytes, int]:
    with TestBroker() as broker:
        topic = broker.create_topic("t", partitions=PARTITIONS)
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "partitioner": partitioner})
        for key in KEYS:
            producer.produce("t", key=key)
        assert producer.flush(30) == 0
        return {record.key: record.partition for record in topic.records()}


@pytest.mark.parametrize(
    ("ours", "librdkafkas"), [("default", "murmur2_random"), ("crc32", "consistent_random"), ("fnv1a", "fnv1a_random")]
)
def test_keys_go_where_librdkafka_sends_them(ours, librdkafkas):
    placed = placed_by_librdkafka(librdkafkas)
    partitions = KEY_HASHES[ours].partitions(pa.array(KEYS), PARTITIONS)
    assert np.unique(partitions).tolist() == list(range(PARTITIONS))
    assert dict(zip(KEYS, partitions.tolist(), strict=True)) == placed
