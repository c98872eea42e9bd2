"""Later plannings of an application: responses are kept, met topics known, replays written with their schemas."""

import pickle

import pyarrow as pa
import pytest

from spark_kafka_sink.records.columns import TopicColumn
from spark_kafka_sink.schemas.formats.plan import FrameColumn, earlier_schemas, plan_formats, with_task_lookups
from spark_kafka_sink.schemas.formats.task_formats import TaskFormats
from spark_kafka_sink.schemas.registry.cache import CachedRegistry, ResponseFiles
from spark_kafka_sink.schemas.registry.schema import Schema, SchemaReference, SchemaType, Side
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.testing.manual_clock import ManualClock
from tests.unit.formats.fake_registry import FakeRegistry

OLD = '{"type":"record","name":"R","fields":[{"name":"a","type":["null","int"],"default":null}]}'
NEW = '{"type":"record","name":"R","fields":[{"name":"a","type":["null","long"],"default":null}]}'
STRUCT = pa.struct([("a", pa.int32())])


@pytest.fixture
def registry(monkeypatch):
    registry = FakeRegistry()
    registry.serve_workers(monkeypatch)
    return registry


@pytest.fixture
def files(tmp_path):
    return ResponseFiles(ManualClock(), tmp_path / "private")


def options(**given):
    named = {name.replace("_", "."): value for name, value in given.items()}
    url = {"schema.registry.url": "http://registry:8081"}
    return SinkOptions.parse({"kafka.bootstrap.servers": "a:1", "valueFormat": "avro", **url, **named}).formats


def plan(registry, files, topic="t", application="app", **given):
    """In a new planning process."""
    formats = options(**given)
    kept = CachedRegistry(registry, formats.registry, files, application)
    planned = plan_formats(formats, {Side.VALUE: FrameColumn(STRUCT)}, topic, kept)
    return pickle.loads(pickle.dumps(with_task_lookups(planned, kept)))


def written(formats, topic="t", earlier=None):
    """The value of one row, and the task."""
    task = TaskFormats(formats, earlier)
    return task.encode(Side.VALUE, pa.array([{"a": 1}], STRUCT), TopicColumn.of(topic)).values[0].as_py(), task


def avro(text):
    return Schema(SchemaType.AVRO, text)


@pytest.mark.parametrize(
    "given",
    [
        {"valueSchema": OLD},
        {"valueSchema": OLD, "auto_register_schemas": "false"},
        {"use_latest_version": "true"},
        {"use_schema_id": "1"},
    ],
)
def test_an_application_asks_once_and_outlives_its_registry(registry, files, given):
    registry.register("t-value", avro(OLD))
    first = plan(registry, files, **given)
    registry.down = True
    assert written(plan(registry, files, **given))[0] == written(first)[0] == b"\0\0\0\0\1\2\2"


def test_that_a_registry_has_guids_is_asked_once(files):
    registry = FakeRegistry(guids=True)
    header = {"valueSchema": OLD, "value_schema_id_serializer": "header"}
    plan(registry, files, topic=None, **header)
    registry.down = True
    plan(registry, files, topic=None, **header)
    assert registry.requests == [("has_guids", "")]


def test_a_new_version_is_taken_when_the_application_starts_again(registry, files):
    latest = {"use_latest_version": "true"}
    registry.register("t-value", avro(OLD))
    plan(registry, files, **latest)
    registry.register("t-value", avro(NEW))
    assert written(plan(registry, files, **latest))[0].startswith(b"\0\0\0\0\1")
    assert written(plan(registry, files, application="next", **latest))[0].startswith(b"\0\0\0\0\2")


def test_another_schema_of_the_same_application_is_another_question(registry, files):
    plan(registry, files, valueSchema=OLD)
    assert written(plan(registry, files, valueSchema=NEW))[0].startswith(b"\0\0\0\0\2")


def test_a_topic_that_a_task_met_is_known_to_later_plans_and_workers(registry, files, monkeypatch):
    formats = plan(registry, files, topic=None, valueSchema=OLD)
    _, task = written(formats, "met")
    CachedRegistry(registry, formats.registry, files, "app").store_task_lookups(task.asked)
    registry.serve_workers(monkeypatch)
    registry.down = True
    value, task = written(plan(registry, files, topic=None, valueSchema=OLD), "met")
    assert value == b"\0\0\0\0\1\2\2"
    assert task.asked == (), "nothing new to keep"


def test_a_topic_whose_latest_schema_imports_others_is_known_while_the_registry_is_down(registry, files, monkeypatch):
    registry.register("city", avro('{"type":"record","name":"geo.City","fields":[{"name":"zip","type":"int"}]}'))
    field = '{"name":"a","type":["int","geo.City"]}'
    text = f'{{"type":"record","name":"R","fields":[{field}]}}'
    registry.register("met-value", Schema(SchemaType.AVRO, text, (SchemaReference("geo.City", "city", 1),)))
    latest = {"use_latest_version": "true"}
    formats = plan(registry, files, topic=None, **latest)
    value, task = written(formats, "met")
    CachedRegistry(registry, formats.registry, files, "app").store_task_lookups(task.asked)
    registry.serve_workers(monkeypatch)
    registry.down = True
    assert written(plan(registry, files, topic=None, **latest), "met")[0] == value == b"\0\0\0\0\2\0\2"


def test_what_many_tasks_asked_for_is_written_once(registry, files, monkeypatch):
    formats = plan(registry, files, topic=None, valueSchema=OLD)
    asked = [each for _ in range(50) for each in written(formats, "met")[1].asked]
    puts = []
    put = ResponseFiles.put
    monkeypatch.setattr(ResponseFiles, "put", lambda self, key, response: (puts.append(key), put(self, key, response)))
    kept = CachedRegistry(registry, formats.registry, files, "app")
    kept.store_task_lookups(asked)
    assert len(asked) == 50
    assert len(puts) == 1
    (identity,) = {each.identity for each in asked}
    assert [each.subject for each in kept.task_lookups(identity)] == ["met-value"]
    assert kept.task_lookups(identity, {"met-value"}) == []


def test_other_options_do_not_share_what_tasks_met(registry, files):
    registry.register("met-value", avro(OLD))
    registry.register("met-value", avro(NEW))
    formats = plan(registry, files, topic=None, use_schema_id="1")
    _, task = written(formats, "met")
    CachedRegistry(registry, formats.registry, files, "app").store_task_lookups(task.asked)
    assert written(plan(registry, files, topic=None, use_schema_id="1"), "met")[0].startswith(b"\0\0\0\0\1")
    assert written(plan(registry, files, topic=None, use_latest_version="true"), "met")[0].startswith(b"\0\0\0\0\2")


def test_a_replay_is_written_with_the_schemas_of_its_first_run(registry, files):
    latest = {"use_latest_version": "true"}
    registry.register("t-value", avro(OLD))
    before = written(plan(registry, files, **latest))[0]
    registry.register("t-value", avro(NEW))
    formats = plan(registry, files, application="next", **latest)
    earlier = earlier_schemas(formats, [(Side.VALUE, "t-value", 1)], registry)
    value, task = written(formats, earlier=earlier)
    assert value == before == b"\0\0\0\0\1\2\2"
    assert task.ids == ((Side.VALUE, "t-value", 1),)
    assert written(formats)[0] == b"\0\0\0\0\2\2\2"


def test_the_same_schemas_need_nothing(registry, files):
    formats = plan(registry, files, valueSchema=OLD)
    del registry.requests[:]
    assert earlier_schemas(formats, [(Side.VALUE, "t-value", 1)], registry) is None
    assert registry.requests == []


def test_an_earlier_schema_that_no_longer_fits_fails_only_the_replay(registry, files):
    registry.register("t-value", avro('{"type":"record","name":"R","fields":[{"name":"gone","type":"int"}]}'))
    earlier = earlier_schemas(plan(registry, files, valueSchema=OLD), [(Side.VALUE, "t-value", 1)], registry)
    assert "The column value does not fit schema 1 of subject t-value" in earlier.fault
