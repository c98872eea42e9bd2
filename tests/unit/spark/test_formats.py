"""Planning of formats as Spark asks for it: once per process, Spark names of types, one warning without a registry."""

import pickle
import tempfile
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark import SparkFiles
from pyspark.sql import types as t

from spark_kafka_sink.errors import RegistryError
from spark_kafka_sink.exactly_once.values import Entry, EntryState, SchemaId
from spark_kafka_sink.records.columns import TopicColumn
from spark_kafka_sink.schemas.formats.format_options import FormatError
from spark_kafka_sink.schemas.formats.task_formats import TaskFormats
from spark_kafka_sink.schemas.registry.cache import CachedRegistry, application_file
from spark_kafka_sink.schemas.registry.schema import Schema, Side
from spark_kafka_sink.spark import formats as module
from spark_kafka_sink.spark.application import name_application
from spark_kafka_sink.spark.commit_message import KafkaCommitMessage, PartitionWrite
from spark_kafka_sink.spark.formats import (
    derive_schema,
    learn_topics,
    plan_column_formats,
    with_earlier_schemas,
)
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.schema import RowLayout, SchemaError, encoded_fields
from tests.unit.formats.fake_registry import FakeRegistry

STRUCT = t.StructType([t.StructField("a", t.LongType())])


@pytest.fixture
def lines(monkeypatch, tmp_path):
    """The driver's lines."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    lines = []
    monkeypatch.setattr(module, "announce", lambda text, level: lines.append(text))
    end_process()
    yield lines
    end_process()


def end_process():
    """What comes now is in a new process, as far as the cached answers go."""
    module._plans.clear()
    application_file.cache_clear()


def options(**given):
    return SinkOptions.parse({"kafka.bootstrap.servers": "a:1", "topic": "t", "valueFormat": "avro", **given})


def fields(kind, given, **others):
    schema = t.StructType(
        [t.StructField(name, other) for name, other in others.items()] + [t.StructField("value", kind)]
    )
    layout = RowLayout.of(schema, "t", None, given.formats)
    return encoded_fields(schema, layout, given.formats)


def test_incident_rows_as_json_text_became_avro_strings_without_a_word(lines):
    """``to_json(struct(*)) AS value`` with valueFormat=avro registered ``["string","null"]``."""
    given = options()
    plan_column_formats(given, fields(t.StringType(), given))
    plan_column_formats(given, fields(t.StringType(), given))
    assert [line.partition(",")[0] for line in lines][1:] == ["The column value is a string"]


def test_a_plan_is_made_once_and_the_warning_is_one(lines):
    given = options()
    plan = plan_column_formats(given, fields(STRUCT, given))
    assert plan_column_formats(options(), fields(STRUCT, given)) is plan
    assert [line.partition(",")[0] for line in lines] == ["schema.registry.url is not set"]
    assert plan_column_formats(given, fields(t.StructType([t.StructField("a", t.IntegerType())]), given)) is not plan


def test_incident_a_drivers_plans_were_kept_without_a_bound(lines):
    used = options(topic="used")
    plan = plan_column_formats(used, fields(STRUCT, used))
    for number in range(2 * module._MAX_PLANS):
        given = options(topic=f"t{number}")
        plan_column_formats(given, fields(STRUCT, given))
        assert plan_column_formats(used, fields(STRUCT, used)) is plan
    assert len(module._plans) == module._MAX_PLANS
    assert application_file.cache_info().maxsize


def test_the_warning_is_one_for_all_planning_processes_of_an_application(lines, monkeypatch):
    given = options()
    for application in ("first", "first", "second"):
        monkeypatch.setattr(SparkFiles, "_root_directory", application)
        end_process()
        plan_column_formats(given, fields(STRUCT, given))
    assert len(lines) == 2


def test_a_file_that_was_corrected_is_read_again(lines, tmp_path):
    path = tmp_path / "schema.avsc"
    path.write_text('{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}')
    given = options(valueSchemaFile=str(path))
    with pytest.raises(FormatError, match=f"^The column value does not fit valueSchemaFile {path}:"):
        plan_column_formats(given, fields(STRUCT, given))
    for kind in ("long", "double"):
        path.write_text(f'{{"type":"record","name":"R","fields":[{{"name":"a","type":["null","{kind}"]}}]}}')
        plan = plan_column_formats(given, fields(STRUCT, given))
        rows = pa.array([{"a": 1}], plan.columns[Side.VALUE].kind)
        encoded = TaskFormats(plan).encode(Side.VALUE, rows, TopicColumn.of("t")).values
        assert len(encoded[0].as_py()) == {"long": 2, "double": 9}[kind], "with a union's branch"
    assert plan_column_formats(given, fields(STRUCT, given)) is plan


@pytest.mark.parametrize(
    "kind", [t.YearMonthIntervalType(), t.VariantType(), t.MapType(t.NullType(), t.NullType(), False)]
)
def test_a_type_without_a_format_is_named_as_spark_names_it(lines, kind):
    given = options()
    with pytest.raises(FormatError, match=kind.simpleString()) as raised:
        plan_column_formats(given, fields(t.StructType([t.StructField("x", kind)]), given))
    assert isinstance(raised.value, pickle.PickleError)


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        ({"valueFormat": "protobuf", "valueDescriptorFile": "x", "valueMessage": "M"}, t.LongType(),
         "The column value has the type bigint, but valueFormat takes a struct"),
        ({"valueFormat": "json", "valueSchema": "{}", "schema.registry.url": "http://r"}, STRUCT,
         "value attribute unsupported type struct<a:bigint>. value must be a(n) string or binary"),
        ({"keyFormat": "avro"}, STRUCT, "keyFormat=avro needs a column key, which is missing"),
    ],
)  # fmt: skip
def test_columns_have_the_type_that_their_format_takes(given, kind, text):
    parsed = options(**given)
    with pytest.raises(SchemaError) as raised:
        fields(kind, parsed)
    assert str(raised.value).startswith(text)


def test_a_bare_schema_takes_any_type_and_a_void_key_is_no_column(lines):
    given = options(keyFormat="avro")
    found = fields(t.StringType(), given, key=t.NullType())
    assert list(found) == [Side.VALUE]
    assert list(plan_column_formats(given, found).columns) == [Side.VALUE]


def test_incident_a_second_application_of_a_process_wrote_the_first_ones_version(lines, monkeypatch):
    registry = FakeRegistry()
    given = options(**{"schema.registry.url": "http://registry:8081", "use.latest.version": "true"})
    monkeypatch.setattr(
        module, "cached_registry", cache(lambda options, application, on_driver: CachedRegistry(registry, options))
    )
    found = []
    for application, version in (("a", "long"), ("a", "float"), ("b", "double")):
        schema = f'{{"type":"record","name":"R","fields":[{{"name":"a","type":"{version}"}}]}}'
        registry.register("t-value", Schema("AVRO", schema))
        name_application(SimpleNamespace(sparkContext=SimpleNamespace(applicationId=application)))
        plan = plan_column_formats(given, fields(t.StructType([t.StructField("a", t.IntegerType())]), given))
        found.append(plan.columns[Side.VALUE].known["t-value"].schema_id)
    assert found == [1, 1, 3]


def test_a_registry_that_was_down_for_a_replay_is_asked_again(lines, monkeypatch):
    registry = FakeRegistry()
    new = '{"type":"record","name":"R","fields":[{"name":"a","type":"long"}]}'
    old = new.replace("long", "double")
    written = registry.register("t-value", Schema("AVRO", old)).id
    given = options(valueSchema=new, **{"schema.registry.url": "http://registry:8081"})
    cached = CachedRegistry(registry, given.formats.registry)
    monkeypatch.setattr(module, "cached_registry", lambda options, application, on_driver: cached)
    plan = plan_column_formats(given, fields(STRUCT, given))
    entry = Entry("query", 7, EntryState.INTENT, (), schemas=(SchemaId("value", "t-value", written),))
    registry.down = True
    assert "does not respond" in with_earlier_schemas(plan, {"query": entry}).earlier["query"].fault
    registry.down = False
    found = with_earlier_schemas(plan, {"query": entry}).earlier["query"]
    assert found.fault is None
    assert found.uses[Side.VALUE]["t-value"].schema_id == written
    del registry.requests[:]
    assert with_earlier_schemas(plan, {"query": entry}).earlier["query"] == found
    assert registry.requests == []


class Application:
    """A query whose processes end between its micro-batches, as after an idle minute: planner, worker and committer."""

    def __init__(self, registry, monkeypatch, topic=None, **given):
        """``topic``: None for topics in a column."""
        self.options = replace(options(**{"schema.registry.url": "http://registry:8081"} | given), topic=topic)
        self._registry = registry
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(module, "cached_registry", cache(self._driver_registry))

    def _driver_registry(self, options, application, on_driver):
        assert on_driver
        return CachedRegistry(self._registry, options, application_file(application))

    def plan(self):
        end_process()
        module.cached_registry.cache_clear()
        self._registry.serve_workers(self._monkeypatch)
        return pickle.loads(pickle.dumps(plan_column_formats(self.options, fields(STRUCT, self.options))))

    def micro_batch(self, *topics):
        """The value of a row in each topic."""
        plan = self.plan()
        rows = pa.array([{"a": 1}], plan.columns[Side.VALUE].kind)
        task = TaskFormats(plan)
        values = [task.encode(Side.VALUE, rows, TopicColumn.of(topic)).values[0].as_py() for topic in topics]
        self.plan()
        writes = tuple(PartitionWrite(topic, 0, 1, 9, 0, 0) for topic in topics)
        learn_topics(self.options, fields(STRUCT, self.options), [KafkaCommitMessage(writes), None])
        return values


LONG = '{"type":"record","name":"R","fields":[{"name":"a","type":["null","long"]}]}'


@pytest.mark.parametrize(
    "given",
    [
        {"valueSchema": LONG},
        {"valueSchema": LONG, "auto.register.schemas": "false"},
        {"use.latest.version": "true"},
        {"use.schema.id": "1"},
    ],
)
@pytest.mark.parametrize("topic", ["t", None], ids=["of an option", "in a column"])
def test_a_registry_that_is_down_stops_no_query_whose_processes_ended(lines, monkeypatch, topic, given):
    registry = FakeRegistry()
    for subject in ("t-value", "new-value"):
        registry.register(subject, Schema("AVRO", LONG))
    query = Application(registry, monkeypatch, topic=topic, **given)
    first = query.micro_batch("t")
    registry.down = True
    assert query.micro_batch("t") == query.micro_batch("t") == first
    if topic is None:
        with pytest.raises(RegistryError, match="does not respond"):
            query.micro_batch("new")
    registry.down = False
    assert query.micro_batch("t") == first


def test_a_topic_that_was_written_keeps_its_version_until_the_application_ends(lines, monkeypatch):
    registry = FakeRegistry()
    registry.register("t-value", Schema("AVRO", LONG))
    query = Application(registry, monkeypatch, **{"use.latest.version": "true"})
    first = query.micro_batch("t")
    registry.register("t-value", Schema("AVRO", LONG.replace("long", "double")))
    assert query.micro_batch("t") == first
    monkeypatch.setattr(SparkFiles, "_root_directory", "started again")
    assert query.micro_batch("t") != first


def test_a_query_registers_nothing_for_the_topics_of_another_one(lines, monkeypatch):
    registry = FakeRegistry()
    Application(registry, monkeypatch, valueSchema=LONG).micro_batch("of one")
    other = Application(registry, monkeypatch, valueSchema=LONG.replace("long", "double"))
    other.micro_batch("of the other")
    assert list(other.plan().columns[Side.VALUE].known) == ["of the other-value"]
    assert {subject for _, subject in registry.requests} == {"of one-value", "of the other-value"}


def test_a_registry_that_is_down_after_the_tasks_does_not_fail_the_commit(lines, monkeypatch):
    registry = FakeRegistry()
    query = Application(registry, monkeypatch, valueSchema=LONG)
    messages = [KafkaCommitMessage((PartitionWrite("t", 0, 1, 9, 0, 0),))]
    registry.down = True
    learn_topics(query.options, fields(STRUCT, query.options), messages)
    assert query.plan().columns[Side.VALUE].known == {}
    registry.down = False
    learn_topics(query.options, fields(STRUCT, query.options), messages)
    assert list(query.plan().columns[Side.VALUE].known) == ["t-value"]


def test_all_that_avro_has_no_type_or_name_for_is_in_one_error():
    inner = t.StructType([t.StructField("a b", t.IntegerType()), t.StructField("v", t.VariantType())])
    kind = t.StructType(
        [
            t.StructField("lines", t.ArrayType(inner)),
            t.StructField("x", t.IntegerType()),
            t.StructField("x", t.StringType()),
        ]
    )
    with pytest.raises(SchemaError) as raised:
        derive_schema("value", kind, False)
    assert str(raised.value) == (
        "No Avro schema can be derived for column value. Change the column, or give valueSchema:\n"
        "- value.lines[].a b: Avro names have letters, digits and _ only, and no digit first\n"
        "- value.lines[].v: Avro has no type for variant\n"
        "- value.x: there is more than one field of this name"
    )
