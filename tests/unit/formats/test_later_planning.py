"""Later plannings of an application: responses are kept, replays written with the schemas of their first run."""

import pickle

import pyarrow as pa
import pytest

from spark_kafka_sink.records.columns import TopicColumn
from spark_kafka_sink.schemas.formats.plan import FrameColumn, earlier_schemas, plan_formats
from spark_kafka_sink.schemas.formats.task_formats import TaskFormats
from spark_kafka_sink.schemas.registry.cache import ApplicationFile, CachedRegistry
from spark_kafka_sink.schemas.registry.schema import Schema, SchemaReference, SchemaType, Side
from tests.support.manual_clock import ManualClock
from tests.unit.formats.fake_registry import FakeRegistry, formats_of

OLD = '{"type":"record","name":"R","fields":[{"name":"a","type":["null","int"],"default":null}]}'
NEW = '{"type":"record","name":"R","fields":[{"name":"a","type":["null","long"],"default":null}]}'
STRUCT = pa.struct([("a", pa.int32())])


@pytest.fixture
def registry():
    return FakeRegistry()


def plan(registry, folder, application="app", **given):
    """In a new planning process."""
    formats = formats_of(**given)
    file = ApplicationFile(application, ManualClock(), folder / "private")
    cached = CachedRegistry(registry, formats.registry, file)
    return pickle.loads(pickle.dumps(plan_formats(formats, {Side.VALUE: FrameColumn(STRUCT)}, "t", cached)))


def written(formats, earlier=None):
    """The value of one row, and the task."""
    task = TaskFormats(formats, earlier)
    return task.encode(Side.VALUE, pa.array([{"a": 1}], STRUCT), TopicColumn.of("t")).values[0].as_py(), task


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
def test_an_application_asks_once_and_outlives_its_registry(registry, tmp_path, given):
    registry.register("t-value", avro(OLD))
    first = plan(registry, tmp_path, **given)
    registry.down = True
    assert written(plan(registry, tmp_path, **given))[0] == written(first)[0] == b"\0\0\0\0\1\2\2"


def test_a_new_version_is_taken_when_the_application_starts_again(registry, tmp_path):
    latest = {"use_latest_version": "true"}
    registry.register("t-value", avro(OLD))
    plan(registry, tmp_path, **latest)
    registry.register("t-value", avro(NEW))
    assert written(plan(registry, tmp_path, **latest))[0].startswith(b"\0\0\0\0\1")
    assert written(plan(registry, tmp_path, application="next", **latest))[0].startswith(b"\0\0\0\0\2")


def test_another_schema_of_the_same_application_is_another_question(registry, tmp_path):
    plan(registry, tmp_path, valueSchema=OLD)
    assert written(plan(registry, tmp_path, valueSchema=NEW))[0].startswith(b"\0\0\0\0\2")


def test_a_topic_whose_latest_schema_imports_others_is_known_while_the_registry_is_down(registry, tmp_path):
    registry.register("city", avro('{"type":"record","name":"geo.City","fields":[{"name":"zip","type":"int"}]}'))
    field = '{"name":"a","type":["int","geo.City"]}'
    text = f'{{"type":"record","name":"R","fields":[{field}]}}'
    registry.register("t-value", Schema(SchemaType.AVRO, text, (SchemaReference("geo.City", "city", 1),)))
    latest = {"use_latest_version": "true"}
    value, _ = written(plan(registry, tmp_path, **latest))
    registry.down = True
    assert written(plan(registry, tmp_path, **latest))[0] == value == b"\0\0\0\0\2\0\2"


def test_a_replay_is_written_with_the_schemas_of_its_first_run(registry, tmp_path):
    latest = {"use_latest_version": "true"}
    registry.register("t-value", avro(OLD))
    before = written(plan(registry, tmp_path, **latest))[0]
    registry.register("t-value", avro(NEW))
    formats = plan(registry, tmp_path, application="next", **latest)
    earlier = earlier_schemas(formats, [(Side.VALUE, "t-value", 1)], registry)
    value, task = written(formats, earlier=earlier)
    assert value == before == b"\0\0\0\0\1\2\2"
    assert task.ids == ((Side.VALUE, "t-value", 1),)
    assert written(formats)[0] == b"\0\0\0\0\2\2\2"


def test_the_same_schemas_need_nothing(registry, tmp_path):
    formats = plan(registry, tmp_path, valueSchema=OLD)
    del registry.requests[:]
    assert earlier_schemas(formats, [(Side.VALUE, "t-value", 1)], registry) is None
    assert registry.requests == []


def test_an_earlier_schema_that_no_longer_fits_fails_only_the_replay(registry, tmp_path):
    registry.register("t-value", avro('{"type":"record","name":"R","fields":[{"name":"gone","type":"int"}]}'))
    earlier = earlier_schemas(plan(registry, tmp_path, valueSchema=OLD), [(Side.VALUE, "t-value", 1)], registry)
    assert "The column value does not fit schema 1 of subject t-value" in earlier.fault
