from collections import Counter
from itertools import groupby
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.producer_config import ConfigWarning
from spark_kafka_sink.common.config.rules import RACK_AWARE_PARTITIONERS
from spark_kafka_sink.common.model import ClusterSnapshot, Node, TopicInfo
from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.producer.kafka_partitioners import BuiltInPartitioner, load_partitioner, murmur2
from spark_kafka_sink.producer.partitioner import PartitionLoad
from spark_kafka_sink.records.columns import HEADER_SIZE, RecordColumns

BATCH_SIZE = 1000 + HEADER_SIZE
IDLE = PartitionLoad((0, 1, 2, 3), (0, 0, 0, 0))


def partitioner(*, adaptive: bool = True, ignore_keys: bool = False, seed: int = 1) -> BuiltInPartitioner:
    return BuiltInPartitioner(config(adaptive, ignore_keys), Random(seed))


def config(adaptive: bool = True, ignore_keys: bool = False) -> ProducerConfig:
    return ProducerConfig.parse({
        "bootstrap.servers": "h:1",
        "batch.size": BATCH_SIZE,
        "partitioner.adaptive.partitioning.enable": adaptive,
        "partitioner.ignore.keys": ignore_keys,
    })  # fmt: skip


def runs(partitions: np.ndarray) -> list[tuple[int, int]]:
    """(partition, rows) of each run; two runs of one partition in a row look like one."""
    return [(partition, len(list(rows))) for partition, rows in groupby(partitions.tolist())]


def chosen(load: PartitionLoad, count: int, *, picks: int = 4000, adaptive: bool = True) -> Counter[int]:
    """How often each partition is picked first under ``load``."""
    random = Random(2)
    one_row, options = np.array([100]), config(adaptive)
    return Counter(int(BuiltInPartitioner(options, random).assign("t", one_row, count, load)[0]) for _ in range(picks))


# BuiltInPartitioner.partitionForKey of kafka-clients 4.1.1, for these counts of partitions.
JAVA_COUNTS = (1, 3, 7, 100, 100_000)
JAVA_PARTITIONS = {
    b"": (0, 0, 2, 81, 46681),
    b"21": (0, 0, 3, 40, 51340),
    b"foobar": (0, 0, 0, 66, 51166),
    b"N14228": (0, 2, 1, 68, 57568),
    b"ab": (0, 2, 0, 34, 55434),
}


@pytest.mark.parametrize("place", range(len(JAVA_COUNTS)))
def test_a_key_goes_where_java_sends_it(place):
    partitions = murmur2.partitions(pa.array(JAVA_PARTITIONS, pa.binary()), JAVA_COUNTS[place])
    assert partitions.tolist() == [expected[place] for expected in JAVA_PARTITIONS.values()]


def test_the_partition_a_row_names_comes_first():
    columns = RecordColumns(key=pa.array([b"21", b"21", None, None]), value=pa.array([b"v"] * 4))
    explicit = np.array([3, -1, 5, -1], np.int32)
    partitions = partitioner().partition("t", columns, explicit, np.full(4, 10), 100, PartitionLoad((9,), (0,)))
    assert partitions.tolist() == [3, murmur2.partitions(pa.array([b"21"]), 100)[0], 5, 9]


def test_a_run_fills_one_batch_and_goes_on_in_the_next_call():
    sticky = partitioner()
    sizes = np.full(7, 100)
    together = np.concatenate(
        [sticky.assign("t", sizes, 64, PartitionLoad(tuple(range(64)), (0,) * 64)) for _ in range(5)]
    )
    assert [rows for _, rows in runs(together)] == [10, 10, 10, 5]


def test_new_sticky_runs_are_full_ones_and_of_all_topics():
    sticky = partitioner()
    load = PartitionLoad(tuple(range(64)), (0,) * 64)
    before = [sticky.assign(topic, np.full(7, 100), 64, load)[0] for topic in "ab"]
    sticky.begin_sticky_runs()
    after = [sticky.assign(topic, np.full(15, 100), 64, load) for topic in "ab"]
    assert all(partitions[0] != last for partitions, last in zip(after, before, strict=True))
    assert [[rows for _, rows in runs(partitions)] for partitions in after] == [[10, 5], [10, 5]]


def test_a_row_larger_than_a_batch_has_a_run_of_its_own():
    load = PartitionLoad(tuple(range(64)), (0,) * 64)
    sizes = np.array([600, 5000, 600, 300, 5000, 5000])
    assert [rows for _, rows in runs(partitioner().assign("t", sizes, 64, load))] == [1, 1, 2, 1, 1]


def test_idle_partitions_are_picked_evenly():
    assert all(900 < picks < 1100 for picks in chosen(IDLE, 4).values())


def test_long_queues_are_picked_less_often_as_in_java():
    # The table of KIP-794 for queues 0, 3, 1 is 4, 5, 8.
    picks = chosen(PartitionLoad((0, 5, 9), (0, 3, 1)), 10, picks=8000)
    assert set(picks) == {0, 5, 9}
    assert [round(picks[partition] / 1000, 1) for partition in (0, 5, 9)] == pytest.approx([4, 1, 3], abs=0.2)


def test_queues_are_not_weighed_unless_adaptive():
    picks = chosen(PartitionLoad((0, 1), (0, 1000)), 2, adaptive=False)
    assert 1800 < picks[1] < 2200


def test_what_a_slice_adds_itself_is_weighed_too():
    load = PartitionLoad(tuple(range(4)), (0,) * 4)
    rows = partitioner().assign("t", np.full(4000, 1000), 4, load)
    # Each row is a batch. Even picks would spread by about 27; queues that are weighed keep each other level.
    assert max(abs(picks - 1000) for picks in Counter(rows.tolist()).values()) < 20


def test_only_available_partitions_are_picked_and_all_when_there_is_none():
    assert set(chosen(PartitionLoad((2,), (50,)), 4, picks=20)) == {2}
    assert set(chosen(PartitionLoad((), ()), 3, picks=200)) == {0, 1, 2}


def test_a_run_ends_when_its_partition_is_no_longer_available():
    sticky = partitioner()
    assert sticky.assign("t", np.array([10]), 4, PartitionLoad((2,), (0,))).tolist() == [2]
    assert sticky.assign("t", np.array([10]), 4, PartitionLoad((3,), (0,))).tolist() == [3]
    assert sticky.assign("t", np.array([10]), 4, IDLE).tolist() == [3]


# ``partitioner.rack.aware`` (KIP-1123): rows without a key stay in the rack of the producer.

COUNT = 6
NODES = {1: Node(1, "h", 1, "a"), 2: Node(2, "h", 2, "b"), 3: Node(3, "h", 3)}
ONE_BATCH = 20_000


def rack_config(rack="a", name="default", **options):
    given = {"bootstrap.servers": "h:1", "partitioner.class": name, "batch.size": ONE_BATCH, "client.rack": rack}
    return ProducerConfig.parse({**given, "partitioner.rack.aware": "true", **options})


def chooser(rack="a", seed=1, name="default", **options):
    return load_partitioner(rack_config(rack, name, **options), Random(seed))


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
        rack_config(rack)


@pytest.mark.parametrize("name", ["round_robin", "uniform_sticky", "sticky", "some.module:Class"])
def test_other_partitioners_ignore_it_with_a_warning(name):
    with pytest.warns(ConfigWarning, match=r"rack\.aware has no effect with partitioner\.class=") as shown:
        rack_config(name=name)
    assert [each.category for each in shown].count(ConfigWarning) == 1
