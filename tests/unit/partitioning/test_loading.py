from random import Random

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import ClusterSnapshot, Node, TopicInfo
from spark_kafka_sink.errors import ConfigError, InvalidRecordError
from spark_kafka_sink.producer.kafka_partitioners import KEY_HASHES, load_partitioner
from spark_kafka_sink.producer.partitioner import NOT_GIVEN, PartitionLoad
from spark_kafka_sink.records.columns import RecordColumns

CLUSTER = ClusterSnapshot(
    nodes={1: Node(1, "h", 1)}, topics={"t": TopicInfo("t", leaders=(1, 1, -1, 1), leader_epochs=(0, 0, 0, 0))}
)
LOAD = PartitionLoad((0, 1, 3), (0, 0, 0), CLUSTER)
HERE = "tests.unit.partitioning.own_partitioners"


def load(name, **options):
    given = {"bootstrap.servers": "h:1", "partitioner.class": name, **options}
    return load_partitioner(ProducerConfig.parse(given), Random(1))


def partition(partitioner, keys, *, values=None, explicit=None):
    columns = RecordColumns(
        key=pa.array(keys, pa.binary()), value=None if values is None else pa.array(values, pa.binary())
    )
    return partitioner.partition("t", columns, explicit, np.full(len(keys), 10), 4, LOAD).tolist()


@pytest.mark.parametrize("name", KEY_HASHES)
def test_a_key_hash_of_each_name_places_keyed_rows(name):
    keys = [b"21", b"foobar", b"N14228", b"3"]
    assert partition(load(name), keys) == KEY_HASHES[name].partitions(pa.array(keys), 4).tolist()


def test_ignored_keys_are_ignored_under_each_key_hash():
    chooser = load("crc32", **{"partitioner.ignore.keys": True})
    assert len(set(partition(chooser, [b"%d" % number for number in range(20)]))) == 1


def test_a_record_partitioner_of_ones_own_is_asked_row_by_row():
    chooser = load(f"{HERE}:ByLength")
    assert partition(chooser, [b"a", None, b"abc"], values=[b"", b"xy", None]) == [1, 2, 3]


def test_a_record_partitioner_is_not_asked_for_a_row_that_names_its_partition():
    explicit = np.array([3, NOT_GIVEN], np.int32)
    assert partition(load(f"{HERE}:ByLength"), [b"ab", b"ab"], explicit=explicit) == [3, 2]


@pytest.mark.parametrize("name", ["Beyond", "Negative"])
def test_a_partition_that_does_not_exist_is_an_error_naming_the_row(name):
    with pytest.raises(
        InvalidRecordError, match=rf"{HERE}:{name} chose partition -?\d+ for row 1 of topic t"
    ) as caught:
        partition(load(f"{HERE}:{name}"), [b"a", b"b"])
    assert caught.value.row == 1


@pytest.mark.parametrize("name", ["TooFew", "Fractions"])
def test_anything_but_a_whole_number_per_row_is_an_error(name):
    with pytest.raises(InvalidRecordError, match="one whole number per row: for 2 rows of topic t"):
        partition(load(f"{HERE}:{name}"), [b"a", b"b"])


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
        load(name)
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
        load(name)


def test_a_module_that_exits_when_it_is_imported_is_a_config_error():
    with pytest.raises(ConfigError, match=r"exiting_module:X cannot be loaded: SystemExit\(3\)"):
        load("tests.unit.partitioning.exiting_module:X")
