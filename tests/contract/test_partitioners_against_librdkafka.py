"""librdkafka's own partitioners must put every key where ours do."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import mmh3
import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.producer.kafka_partitioners import crc32, murmur2
from spark_kafka_sink.testing import TestBroker

RECIPES = Path(__file__).parents[2] / "docs/recipes.md"
KEYS = [b"%d" % number for number in range(150)] + ["日本".encode(), b"\xff" * 7, b"\0", b"x" * 300]
PARTITIONS = 7


def placed_by_librdkafka(partitioner):
    with TestBroker() as broker:
        topic = broker.create_topic("t", partitions=PARTITIONS)
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "partitioner": partitioner})
        for key in KEYS:
            producer.produce("t", key=key)
        assert producer.flush(30) == 0
        return {record.key: record.partition for record in topic.records()}


def test_the_recipes_for_other_hashes_place_keys_as_those_clients_do():
    (block,) = [each for each in RECIPES.read_text().split("```python\n") if "class Fnv1a" in each]
    recipe: dict[str, Any] = {}
    exec(block.partition("```")[0], recipe)
    cluster = SimpleNamespace(partition_counts={"t": PARTITIONS})

    def placed(name):
        return {key: recipe[name]().partition("t", key, key, None, None, cluster) for key in KEYS}

    assert placed("Fnv1a") == placed_by_librdkafka("fnv1a_random")
    assert placed("Murmur3") == {key: (mmh3.hash(key) & 0x7FFFFFFF) % PARTITIONS for key in KEYS}


@pytest.mark.parametrize(("ours", "librdkafkas"), [(murmur2, "murmur2_random"), (crc32, "consistent_random")])
def test_keys_go_where_librdkafka_sends_them(ours, librdkafkas):
    placed = placed_by_librdkafka(librdkafkas)
    partitions = ours.partitions(pa.array(KEYS), PARTITIONS)
    assert np.unique(partitions).tolist() == list(range(PARTITIONS))
    assert dict(zip(KEYS, partitions.tolist(), strict=True)) == placed
