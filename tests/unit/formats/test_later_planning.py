"""Later plannings of an application: responses are kept, replays written with the schemas of their first run."""

import pickle

import pyarrow as pa
import pytest

from spark_kafka_sink.records.columns import TopicColumn
from spark_kafka_sink.schemas.formats.plan import FrameColumn, earlier_schemas, plan_formats
from spark_kafka_sink.schemas.formats.task_formats import TaskFormats
from spark_kafka_sink.schemas.registry.cache import ApplicationFile, CachedRegistry
from spark_kafka_sink.schemas.registry.schema import Schema, Side
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
    return Schema("AVRO", text)


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
