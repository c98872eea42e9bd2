"""A task's columns: one encoder for many topics, topics with schemas of their own, rows that cannot be encoded."""

import pyarrow as pa
import pytest

from spark_kafka_sink.errors import RegistryError
from spark_kafka_sink.schemas.encoding.encoder import UnencodableRowsError
from spark_kafka_sink.schemas.formats.format_options import FormatError
from spark_kafka_sink.schemas.formats.task_formats import TaskFormats
from spark_kafka_sink.schemas.registry.schema import Schema, Side
from spark_kafka_sink.spark.pipeline import topic_column
from tests.unit.formats.fake_registry import FakeRegistry
from tests.unit.formats.test_planning import STRUCT, plan

LONG = '{"type":"record","name":"R","fields":[{"name":"a","type":["null","long"]}]}'
INT = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'


@pytest.fixture
def registry(monkeypatch):
    """The registry of planning and of the worker."""
    registry = FakeRegistry()
    registry.serve_workers(monkeypatch)
    return registry


def encode(formats, numbers, topics):
    rows = pa.array([None if number is None else {"a": number} for number in numbers], STRUCT)
    return formats.encode(Side.VALUE, rows, topic_column(pa.array(list(topics)))).values.to_pylist()


def prefix(number):
    return b"\0" + number.to_bytes(4, "big")


def test_each_topic_has_its_id_and_the_registry_is_asked_once_per_worker(registry):
    registry.register("b-value", Schema("AVRO", '"string"'))
    registry.register("b-value", Schema("AVRO", '"bytes"'))
    formats = plan(registry, topic=None, valueSchema=LONG)
    assert encode(TaskFormats(formats), [1, None, 2], "aba") == [prefix(3) + b"\2\2", None, prefix(3) + b"\2\4"]
    del registry.requests[:]
    second = TaskFormats(formats)
    assert encode(second, [1, 2], "ab") == [prefix(3) + b"\2\2", prefix(3) + b"\2\4"]
    assert registry.requests == []
    assert second.ids == ((Side.VALUE, "a-value", 3), (Side.VALUE, "b-value", 3))


def test_topics_whose_latest_versions_differ_are_encoded_apart_and_put_back(registry):
    registry.register("a-value", Schema("AVRO", LONG))
    registry.register("b-value", Schema("AVRO", INT))
    formats = TaskFormats(plan(registry, topic=None, use_latest_version="true"))
    assert encode(formats, [1, 2, 3, 4, None], "abbab") == [
        prefix(1) + b"\2\2",
        prefix(2) + b"\4",
        prefix(2) + b"\6",
        prefix(1) + b"\2\x08",
        None,
    ]


def test_the_faulty_rows_of_every_encoder_are_told(registry):
    registry.register("a-value", Schema("AVRO", INT))
    registry.register("b-value", Schema("AVRO", INT.replace('"R"', '"S"')))
    formats = TaskFormats(plan(registry, topic=None, use_latest_version="true"))
    rows = pa.array([{"a": None}, {"a": None}, {"a": 3}, {"a": None}], STRUCT)
    with pytest.raises(UnencodableRowsError) as raised:
        formats.encode(Side.VALUE, rows, topic_column(pa.array(["b", "a", "b", "b"])))
    assert [fault.row for fault in raised.value.faults] == [0, 1, 3]


def test_a_topic_first_met_while_the_registry_is_down_fails_and_others_do_not(registry):
    formats = plan(registry, topic=None, valueSchema=LONG)
    encode(TaskFormats(formats), [1], "a")
    registry.down = True
    assert encode(TaskFormats(formats), [1], "a") == [prefix(1) + b"\2\2"]
    of_task = TaskFormats(formats)
    for _ in range(2):
        with pytest.raises(RegistryError, match="does not respond"):
            encode(of_task, [1], "b")
    registry.down = False
    assert encode(of_task, [1], "b") == [prefix(1) + b"\2\2"]


def test_a_derived_schema_that_a_topics_registry_refuses_points_at_an_explicit_one(registry):
    registry.refuses = True
    formats = plan(registry, topic=None, derived=LONG)
    with pytest.raises(FormatError, match="no field has a default: give valueSchema with a default for each new field"):
        encode(TaskFormats(formats), [1], "a")
    with pytest.raises(RegistryError, match=r"incompatible with an earlier schema\.$"):
        encode(TaskFormats(plan(registry, topic=None, valueSchema=LONG)), [1], "a")
