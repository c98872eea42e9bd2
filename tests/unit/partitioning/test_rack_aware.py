"""``partitioner.rack.aware`` (KIP-1123): rows without a key stay in the rack of the producer."""

from collections import Counter
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.producer_config import ConfigWarning
from spark_kafka_sink.common.config.rules import RACK_AWARE_PARTITIONERS
from spark_kafka_sink.common.model import ClusterSnapshot, Node, TopicInfo
from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.producer.kafka_partitioners import load_partitioner
from spark_kafka_sink.producer.partitioner import PartitionLoad
from spark_kafka_sink.records.columns import RecordColumns

COUNT = 6
NODES = {1: Node(1, "h", 1, "a"), 2: Node(2, "h", 2, "b"), 3: Node(3, "h", 3)}
ONE_BATCH = 20_000


def config(rack="a", name="default", **options):
    given = {"bootstrap.servers": "h:1", "partitioner.class": name, "batch.size": ONE_BATCH, "client.rack": rack}
    return ProducerConfig.parse({**given, "partitioner.rack.aware": "true", **options})


def chooser(rack="a", seed=1, name="default", **options):
    return load_partitioner(config(rack, name, **options), Random(seed))


def load(*leaders, lengths=None, down=()):
    """Partition ``p`` is led by ``leaders[p]``; those of nodes that are ``down`` are not available."""
    cluster = ClusterSnapshot(nodes=NODES, topics={"t": TopicInfo("t", leaders, (0,) * len(leaders))})
    available = tuple(p for p, leader in enumerate(leaders) if leader not in (-1, *down))
    return PartitionLoad(available, lengths or (0,) * len(available), cluster)


def picks(partitioner, on, batches=600):
    """How many batches of rows without a key went to each partition."""
    return Counter(partitioner.assign("t", np.full(batches, ONE_BATCH), COUNT, on).tolist())


ALL_UP = load(1, 2, 3, 1, 2, 3)


@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.parametrize("name", RACK_AWARE_PARTITIONERS)
def test_rows_without_a_key_go_to_the_partitions_of_the_rack_alone(name, adaptive):
    counts = picks(chooser(name=name, **{"partitioner.adaptive.partitioning.enable": adaptive}), ALL_UP)
    assert set(counts) == {0, 3}
    assert all(200 < count < 400 for count in counts.values())


def test_rows_with_a_key_go_where_their_key_says():
    keys = pa.array([b"%d" % number for number in range(200)])
    sizes = np.full(200, 10)
    plain = load_partitioner(ProducerConfig.parse({"bootstrap.servers": "h:1"}), Random(1))
    expected = plain.partition("t", RecordColumns(key=keys), None, sizes, COUNT, ALL_UP).tolist()
    assert chooser().partition("t", RecordColumns(key=keys), None, sizes, COUNT, ALL_UP).tolist() == expected
    assert set(expected) == set(range(COUNT))


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_without_a_partition_in_the_rack_rows_go_to_any_available_one(adaptive):
    options = {"partitioner.adaptive.partitioning.enable": adaptive}
    assert set(picks(chooser("z", **options), ALL_UP)) == set(range(COUNT))
    assert set(picks(chooser(**options), load(1, 2, 3, 1, 2, 3, down=[1]))) == {1, 2, 4, 5}
    assert set(picks(chooser(**options), load(-1, 2, -1, -1, -1, -1))) == {1}
    assert set(picks(chooser(**options), load(-1, -1, -1, -1, -1, -1))) == set(range(COUNT))


def test_queues_are_weighed_within_the_rack():
    # The table of KIP-794 for queues 0 and 3 is 4, 5; the queue of 100 in another rack does not count.
    on = load(1, 2, 3, 1, 2, 3, lengths=(0, 100, 0, 3, 0, 0))
    counts = Counter(int(chooser(seed=seed).assign("t", np.array([10]), COUNT, on)[0]) for seed in range(2000))
    assert set(counts) == {0, 3}
    assert 1500 < counts[0] < 1700


@pytest.mark.parametrize("rack", ["", " "])
def test_the_option_needs_a_rack_as_in_java(rack):
    with pytest.raises(ConfigError, match=r"client\.rack must be provided if partitioner\.rack\.aware is enabled"):
        config(rack)


@pytest.mark.parametrize("name", ["round_robin", "uniform_sticky", "sticky", "some.module:Class"])
def test_other_partitioners_ignore_it_with_a_warning(name):
    with pytest.warns(ConfigWarning, match=r"rack\.aware has no effect with partitioner\.class=") as shown:
        config(name=name)
    assert [each.category for each in shown].count(ConfigWarning) == 1
