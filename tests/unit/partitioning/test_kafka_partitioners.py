"""Which partition each row gets: Kafka's partitioners, those of racks, and those of users."""

import zlib
from collections import Counter
from itertools import groupby, pairwise
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.producer_config import ConfigWarning
from spark_kafka_sink.common.config.rules import PARTITIONERS, RACK_AWARE_PARTITIONERS
from spark_kafka_sink.common.model import ClusterSnapshot, Node, TopicInfo
from spark_kafka_sink.errors import ConfigError, InvalidRecordError
from spark_kafka_sink.producer.kafka_partitioners import (
    MAKERS,
    BuiltInPartitioner,
    RoundRobinPartitioner,
    UniformStickyPartitioner,
    crc32,
    load_partitioner,
    murmur2,
)
from spark_kafka_sink.producer.partitioner import NO_PARTITION, BatchRooms, PartitionLoad
from spark_kafka_sink.records.batch import HEADER_SIZE
from spark_kafka_sink.records.columns import RecordColumns
from tests.support.waiting import cpu_ratio

BATCH_SIZE = 1000 + HEADER_SIZE
IDLE = PartitionLoad((0, 1, 2, 3))


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
    named = np.array([3, -1, 5, -1], np.int32)
    partitions = partitioner().partition("t", columns, named, np.full(4, 10), 100, PartitionLoad((9,)))
    assert partitions.tolist() == [3, murmur2.partitions(pa.array([b"21"]), 100)[0], 5, 9]


def test_a_run_fills_one_batch_and_goes_on_in_the_next_call():
    sticky = partitioner()
    sizes = np.full(7, 100)
    together = np.concatenate([sticky.assign("t", sizes, 64, PartitionLoad(range(64))) for _ in range(5)])
    assert [rows for _, rows in runs(together)] == [10, 10, 10, 5]


@given(sizes=st.lists(st.integers(1, 2000), min_size=1, max_size=200), limit=st.integers(HEADER_SIZE + 1, 3000))
def test_a_call_with_batches_of_its_own_has_runs_of_equal_bytes_as_few_as_its_limit_allows(sizes, limit):
    load = PartitionLoad(range(64))
    chosen = partitioner().spread(np.array(sizes), limit, 64, load)
    bytes_of = [0]
    for (size, one), (_, other) in pairwise([*zip(sizes, chosen.tolist(), strict=True), (0, -1)]):
        bytes_of[-1] += size
        if one != other:
            bytes_of.append(0)
    count = -(-sum(sizes) // (limit - HEADER_SIZE))
    assert len(chosen) == len(sizes)
    assert len(bytes_of) - 1 <= count
    if len(bytes_of) - 1 == count:
        assert max(bytes_of) <= sum(sizes) / count + max(sizes)


def test_new_sticky_runs_are_full_ones_and_of_all_topics():
    sticky = partitioner()
    load = PartitionLoad(range(64))
    before = [sticky.assign(topic, np.full(7, 100), 64, load)[0] for topic in "ab"]
    sticky.begin_sticky_runs()
    after = [sticky.assign(topic, np.full(15, 100), 64, load) for topic in "ab"]
    assert all(partitions[0] != last for partitions, last in zip(after, before, strict=True))
    assert [[rows for _, rows in runs(partitions)] for partitions in after] == [[10, 5], [10, 5]]


def test_a_row_larger_than_a_batch_has_a_run_of_its_own():
    load = PartitionLoad(range(64))
    sizes = np.array([600, 5000, 600, 300, 5000, 5000])
    assert [rows for _, rows in runs(partitioner().assign("t", sizes, 64, load))] == [1, 1, 2, 1, 1]


def test_idle_partitions_are_picked_evenly():
    assert all(900 < picks < 1100 for picks in chosen(IDLE, 4).values())


def test_long_queues_are_picked_less_often_as_in_java():
    # The table of KIP-794 for queues 0, 3, 1 is 4, 5, 8.
    picks = chosen(PartitionLoad((0, 5, 9), waiting=lambda _: (0, 3, 1)), 10, picks=8000)
    assert set(picks) == {0, 5, 9}
    assert [round(picks[partition] / 1000, 1) for partition in (0, 5, 9)] == pytest.approx([4, 1, 3], abs=0.2)


def test_queues_are_not_weighed_unless_adaptive():
    picks = chosen(PartitionLoad((0, 1), waiting=lambda _: (0, 1000)), 2, adaptive=False)
    assert 1800 < picks[1] < 2200


def test_what_a_slice_adds_itself_is_weighed_too():
    load = PartitionLoad(range(4))
    rows = partitioner().assign("t", np.full(4000, 1000), 4, load)
    # Each row is a batch. Even picks would spread by about 27; queues that are weighed keep each other level.
    assert max(abs(picks - 1000) for picks in Counter(rows.tolist()).values()) < 20


def test_only_available_partitions_are_picked_and_all_when_there_is_none():
    assert set(chosen(PartitionLoad((2,), waiting=lambda _: (50,)), 4, picks=20)) == {2}
    assert set(chosen(PartitionLoad(()), 3, picks=200)) == {0, 1, 2}


def test_a_run_ends_when_its_partition_is_no_longer_available():
    sticky = partitioner()
    assert sticky.assign("t", np.array([10]), 4, PartitionLoad((2,))).tolist() == [2]
    assert sticky.assign("t", np.array([10]), 4, PartitionLoad((3,))).tolist() == [3]
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
    waiting = dict(zip(available, lengths or (0,) * len(available), strict=True))
    return PartitionLoad(available, cluster, "t", lambda partitions: [waiting[partition] for partition in partitions])


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


@pytest.mark.parametrize(
    ("rack", "says"), [("", r"must be provided if partitioner\.rack\.aware is enabled"), (" ", "is blank")]
)
def test_the_option_needs_a_rack_as_in_java(rack, says):
    with pytest.raises(ConfigError, match=rf"client\.rack {says}"):
        rack_config(rack)


@pytest.mark.parametrize("name", [*sorted({*PARTITIONERS} - {*RACK_AWARE_PARTITIONERS}), "some.module:Class"])
def test_other_partitioners_ignore_it_with_a_warning(name):
    with pytest.warns(ConfigWarning, match=r"rack\.aware has no effect with partitioner\.class=") as shown:
        rack_config(name=name)
    assert [each.category for each in shown].count(ConfigWarning) == 1


# The hashes of keys: those of Kafka's clients, and of a column those of its keys alone.

MIB = bytes((i * 31 + 7) & 0xFF for i in range(1 << 20))


def murmur2_of(key):
    """The hash of one key."""
    return murmur2.of_long(np.frombuffer(key, np.uint8))


HASHES = {"murmur2": (murmur2, murmur2_of), "crc32": (crc32, zlib.crc32)}
each_hash = pytest.mark.parametrize(("of_column", "of_key"), HASHES.values(), ids=HASHES)

# Utils.murmur2 of kafka-clients 4.1.1.
JAVA = {
    b"": 275646681,
    b"a": -1563381124,
    b"ab": 316155434,
    b"abc": 479470107,
    b"N14228": -1499626080,
    "日本".encode(): -700811021,
    b"21": -973932308,
    b"foobar": -790332482,
    b"\xff" * 7: -71293549,
    bytes.fromhex("e1bbe7"): -983584298,
    bytes.fromhex("bd6743e7dc978573"): 496582918,
    bytes.fromhex("20bebfb01100b276545718c30f406c"): -1111216034,
    bytes.fromhex("83b89670d6d9f9bf52d83deedc0bf66205835ccc16ad682d8c478a26f450279849599b56"): -1772032426,
    bytes.fromhex(
        "8c082af3d5d78b98bcc00bd26fae51303f23fba277b4e0602cbf7e5e9ba8ec22daa9395cbb3cb06feaf2456f0a5717a6b5bb127579092bb2831b"
        "0279bb5070f331"
    ): -590710422,
    MIB: -1041851485,
    MIB[:-3]: 250249899,
}


@pytest.mark.parametrize(("key", "hashed"), JAVA.items(), ids=lambda given: f"{given!r:.20}")
def test_one_key_hashes_as_in_java(key, hashed):
    assert np.uint32(murmur2_of(key)).astype(np.int32) == hashed


KEYS = st.lists(
    st.one_of(st.none(), st.binary(max_size=70), st.integers(0, 5000).map(lambda length: b"\xa5" * length)), max_size=90
)


@each_hash
@settings(deadline=None, max_examples=60)
@given(keys=KEYS, start=st.integers(0, 90), length=st.integers(0, 90))
def test_every_key_of_a_column_hashes_as_it_does_alone(of_column, of_key, keys, start, length):
    hashes = of_column(pa.array(keys, pa.binary())[start : start + length]).tolist()
    alone = keys[start : start + length]
    assert len(hashes) == len(alone)
    assert [found for found, key in zip(hashes, alone, strict=True) if key is not None] == [
        of_key(key) for key in alone if key is not None
    ]


@each_hash
def test_one_key_of_a_mebibyte_does_not_slow_ten_thousand_short_ones(of_column, of_key):
    keys = pa.array([b"%036d" % row for row in range(10_000)] + [MIB])
    # Word by word over all keys, the column would take 29,000 times as long as its short keys: as many times the words.
    assert cpu_ratio(lambda: of_column(keys), lambda: of_column(keys[:-1])) < 1_000
    assert of_column(keys)[-1] == of_key(MIB)


def test_crc32_gives_empty_keys_no_partition():
    keys = pa.array([b"", b"21", None, b"foobar"])
    partitions = crc32.partitions(keys, 100)
    assert partitions.dtype == np.int32
    assert partitions[[0, 1, 3]].tolist() == [NO_PARTITION, zlib.crc32(b"21") % 100, zlib.crc32(b"foobar") % 100]


# ``uniform_sticky`` and ``round_robin``: which partition each row gets.


def partition(chooser, sizes, *, keys=None, named=None, available=(0, 1, 2), open_rooms=None):
    """New batches have room for 100 bytes."""
    rooms = BatchRooms("t", HEADER_SIZE + 100, lambda of: (open_rooms or {}).get(of.partition, 0))
    load = PartitionLoad(available, rooms=rooms)
    columns = RecordColumns(key=pa.array(keys or [b"same"] * len(sizes), pa.binary()))
    return chooser.partition("t", columns, named, np.array(sizes), 3, load).tolist()


@pytest.mark.parametrize("seed", range(10))
def test_each_new_batch_goes_to_another_partition_than_the_last(seed):
    partitions = partition(UniformStickyPartitioner(Random(seed)), [10] * 200)
    batches = [partitions[start : start + 10] for start in range(0, 200, 10)]
    assert all(len(set(batch)) == 1 for batch in batches)
    assert all(one[0] != other[0] for one, other in pairwise(batches))
    assert set(partitions) == {0, 1, 2}


def test_rows_stay_while_the_open_batch_has_room_and_leave_it_then():
    chooser = UniformStickyPartitioner(Random(1))
    (first,) = set(partition(chooser, [10]))
    chosen = partition(chooser, [10, 10, 10], open_rooms={first: 25})
    assert chosen[:2] == [first, first]
    assert chosen[2] != first


def test_an_open_batch_of_the_next_partition_is_filled_first():
    chooser = UniformStickyPartitioner(Random(1))
    (first,) = set(partition(chooser, [10], available=(0, 1)))
    chosen = partition(chooser, [10, 10, 10], available=(0, 1), open_rooms={1 - first: 10})
    assert chosen == [1 - first, first, first]


def test_the_only_available_partition_is_kept():
    assert partition(UniformStickyPartitioner(Random(1)), [60] * 4, available=(2,)) == [2] * 4


@pytest.mark.parametrize("seed", range(5))
def test_with_a_key_hash_keyed_rows_go_by_it_and_the_others_leave_a_partition_with_each_batch(seed):
    keys = [None if row % 2 else b"%d" % row for row in range(200)]
    chosen = partition(UniformStickyPartitioner(Random(seed), murmur2), [10] * 200, keys=keys)
    assert chosen[::2] == murmur2.partitions(pa.array(keys[::2]), 3).tolist()
    batches = [chosen[1::2][start : start + 10] for start in range(0, 100, 10)]
    assert all(len(set(batch)) == 1 for batch in batches)
    assert all(one[0] != other[0] for one, other in pairwise(batches))


def test_with_a_key_hash_a_keyed_row_that_names_its_partition_keeps_it():
    named = np.array([2, NO_PARTITION, 1], np.int32)
    keys = [b"foobar", b"foobar", None]
    chosen = partition(UniformStickyPartitioner(Random(1), murmur2), [10] * 3, keys=keys, named=named)
    assert chosen == [2, int(murmur2.partitions(pa.array([b"foobar"]), 3)[0]), 1]


# Round robin.

ALL = PartitionLoad((0, 1, 2))


def by_turns(chooser, count, *, topic="t", named=None, load=ALL):
    columns = RecordColumns(key=pa.array([b"same"] * count), value=pa.array([b"v"] * count))
    return chooser.partition(topic, columns, named, np.full(count, 10), 3, load).tolist()


def test_rows_take_turns_whatever_their_keys_and_go_on_in_the_next_call():
    chooser = RoundRobinPartitioner()
    assert by_turns(chooser, 4) == [0, 1, 2, 0]
    assert by_turns(chooser, 3) == [1, 2, 0]


def test_each_topic_has_turns_of_its_own():
    chooser = RoundRobinPartitioner()
    by_turns(chooser, 1)
    assert by_turns(chooser, 2, topic="u") == [0, 1]


def test_a_row_that_names_its_partition_takes_no_turn():
    named = np.array([NO_PARTITION, 2, NO_PARTITION], np.int32)
    assert by_turns(RoundRobinPartitioner(), 3, named=named) == [0, 2, 1]
    assert named.tolist() == [NO_PARTITION, 2, NO_PARTITION]


@pytest.mark.parametrize(("available", "turns"), [((0, 2), [0, 2, 0, 2]), ((), [0, 1, 2, 0])], ids=["some", "none"])
def test_available_partitions_take_part_and_all_while_there_is_none(available, turns):
    assert by_turns(RoundRobinPartitioner(), 4, load=PartitionLoad(available)) == turns


# Partitioners by their names and classes.

CLUSTER = ClusterSnapshot(
    nodes={1: Node(1, "h", 1)}, topics={"t": TopicInfo("t", leaders=(1, 1, -1, 1), leader_epochs=(0, 0, 0, 0))}
)
LOAD = PartitionLoad((0, 1, 3), CLUSTER)
HERE = "tests.unit.partitioning.own_partitioners"


def loaded(name, **options):
    given = {"bootstrap.servers": "h:1", "partitioner.class": name, **options}
    return load_partitioner(ProducerConfig.parse(given), Random(1))


def placed(partitioner, keys, *, values=None, named=None):
    columns = RecordColumns(
        key=pa.array(keys, pa.binary()), value=None if values is None else pa.array(values, pa.binary())
    )
    return partitioner.partition("t", columns, named, np.full(len(keys), 10), 4, LOAD).tolist()


def test_every_partitioner_that_the_option_names_can_be_made():
    assert MAKERS.keys() == PARTITIONERS.keys()


@pytest.mark.parametrize(("name", "key_hash"), [("default", murmur2), ("sticky", murmur2), ("crc32", crc32)])
def test_a_key_hash_of_each_name_places_keyed_rows(name, key_hash):
    keys = [b"21", b"foobar", b"N14228", b"3"]
    assert placed(loaded(name), keys) == key_hash.partitions(pa.array(keys), 4).tolist()


def test_ignored_keys_are_ignored_under_each_key_hash():
    chooser = loaded("crc32", **{"partitioner.ignore.keys": True})
    assert len(set(placed(chooser, [b"%d" % number for number in range(20)]))) == 1


def test_a_record_partitioner_of_ones_own_is_asked_row_by_row():
    chooser = loaded(f"{HERE}:ByLength")
    assert placed(chooser, [b"a", None, b"abc"], values=[b"", b"xy", None]) == [1, 2, 3]


@pytest.mark.parametrize("name", ["Beyond", "Negative"])
def test_a_partition_that_does_not_exist_is_an_error_naming_the_row(name):
    with pytest.raises(
        InvalidRecordError, match=rf"{HERE}:{name} chose partition -?\d+ for row 1 of topic t"
    ) as caught:
        placed(loaded(f"{HERE}:{name}"), [b"a", b"b"])
    assert caught.value.row == 1


@pytest.mark.parametrize("name", ["TooFew", "Fractions"])
def test_anything_but_a_whole_number_per_row_is_an_error(name):
    with pytest.raises(InvalidRecordError, match="one whole number per row: for 2 rows of topic t"):
        placed(loaded(f"{HERE}:{name}"), [b"a", b"b"])


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no_such_module:X", "No module named 'no_such_module'"),
        (f"{HERE}:Missing", "has no attribute 'Missing'"),
        (f"{HERE}:NeedsArguments", "missing 1 required positional argument"),
        (f"{HERE}:NoMethod", "has no method partition; inherit from Partitioner or RecordPartitioner"),
    ],
)
def test_a_class_that_cannot_be_loaded_is_a_config_error(name, reason):
    with pytest.raises(ConfigError, match=reason) as caught:
        loaded(name)
    assert str(caught.value).startswith(f"partitioner.class {name}")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("sys:exit", "is not a class but a builtin_function_or_method"),
        ("builtins:SystemExit", "has no method partition"),
    ],
)
def test_incident_a_partitioner_class_that_names_a_function_ended_the_program(name, reason):
    with pytest.raises(ConfigError, match=reason):
        loaded(name)


def test_a_module_that_exits_when_it_is_imported_is_a_config_error():
    with pytest.raises(ConfigError, match=r"exiting_module:X cannot be loaded: SystemExit\(3\)"):
        loaded("tests.unit.partitioning.exiting_module:X")
