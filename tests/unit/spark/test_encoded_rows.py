"""The stage ``encode`` with formats, and where a row's number comes from."""

import zlib

import pyarrow as pa
import pytest

from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.records.varints import encode_varint
from spark_kafka_sink.schemas.encoding.encoder import LARGEST_SLICE
from spark_kafka_sink.schemas.formats.plan import FrameColumn, plan_formats
from spark_kafka_sink.schemas.formats.task_formats import TaskFormats
from spark_kafka_sink.schemas.registry.schema import Side
from spark_kafka_sink.spark import encode_formats as module
from spark_kafka_sink.spark.encode_raw import RawEncoder
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.row_reader import RowReader
from spark_kafka_sink.spark.rows import run_stages
from spark_kafka_sink.spark.schema import RowLayout
from tests.unit.encoding.protos import proto3
from tests.unit.formats.fake_registry import FakeRegistry

STRUCT = pa.struct([("a", pa.string())])
SCHEMA = '{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}'


def encoder(layout, topic="t", registry=None, **given):
    url = {} if registry is None else {"schema.registry.url": "http://registry:8081"}
    named = {name.replace("_", "."): value for name, value in given.items()}
    base = {"kafka.bootstrap.servers": "a:1", "valueFormat": "avro", "valueSchema": SCHEMA}
    options = SinkOptions.parse({**base, **url, **named}).formats
    frame = {Side.VALUE: FrameColumn(STRUCT)}
    formats = TaskFormats(plan_formats(options, frame, topic, registry))
    return RowReader(layout, topic), module.FormatEncoder(formats), RawEncoder()


def batch(*values, kind=STRUCT, **columns):
    rows = [None if value is None else {"a": value} for value in values]
    arrays = {**{name: pa.array(each) for name, each in columns.items()}, "value": pa.array(rows, kind)}
    return pa.RecordBatch.from_arrays([*arrays.values()], [*arrays])


def run(stages, *batches):
    """Key, value and headers of each part."""
    read, *encode = stages
    parts, first_row = [], 0
    for batch in batches:
        for rows in read(batch, first_row):
            parts += [
                {
                    name: column.to_pylist()
                    for name in ("key", "value", "headers")
                    if (column := getattr(each.columns, name)) is not None
                }
                for each in run_stages(encode, rows)
            ]
        first_row += batch.num_rows
    return parts


def test_columns_that_are_not_written_are_left_out():
    encoded = encoder(RowLayout(value=2, key=1))
    assert run(encoded, batch("x", None, other=[1, 2], key=["k", None])) == [
        {"value": [b"\2x", None], "key": [b"k", None]}
    ]


def test_the_time_zone_of_the_session_does_not_matter(tmp_path):
    """Spark's Arrow batches have it in their type; planning does not know it."""
    path = tmp_path / "descriptors"
    path.write_bytes(proto3("message M { google.protobuf.Timestamp at = 1; }"))
    at = '{"name":"at","type":{"type":"long","logicalType":"timestamp-micros"}}'
    schema = f'{{"type":"record","name":"R","fields":[{at}]}}'
    planned = pa.struct([("at", pa.timestamp("us", "UTC"))])
    rows = pa.array([{"at": 1_000_000}], pa.struct([("at", pa.timestamp("us", "Europe/Berlin"))]))
    for given, value in (
        ({"valueSchema": schema}, b"\x80\x89z"),
        ({"valueFormat": "protobuf", "valueDescriptorFile": str(path), "valueMessage": "M"}, b"\n\2\x08\1"),
    ):
        options = SinkOptions.parse({"kafka.bootstrap.servers": "a:1", "valueFormat": "avro", **given}).formats
        plan = plan_formats(options, {Side.VALUE: FrameColumn(planned)}, "t", None)
        encoded = RowReader(RowLayout(value=0), "t"), module.FormatEncoder(TaskFormats(plan))
        assert run(encoded, pa.RecordBatch.from_arrays([rows], ["value"])) == [{"value": [value]}]


def test_a_row_that_cannot_be_encoded_is_numbered_in_the_task():
    missing = pa.array([{"a": "x"}, {"a": "y"}, {"a": "z"}, {"a": None}], STRUCT)
    batches = [batch("p", "q"), pa.RecordBatch.from_arrays([missing], ["value"])]
    with pytest.raises(InvalidRecordError, match=r"^value\.a: .* \(row 5 of the task, counted from 0\)$"):
        run(encoder(RowLayout(value=0)), *batches)


def test_incident_a_batch_of_many_small_rows_that_grow_was_encoded_as_one_column(monkeypatch):
    """It had more than 2 GiB."""
    monkeypatch.setattr(module, "_MAX_ROWS", 2)
    parts = run(encoder(RowLayout(value=0)), batch("v", "w", "x", "y", "z"))
    assert [part["value"] for part in parts] == [[b"\2v", b"\2w"], [b"\2x", b"\2y"], [b"\2z"]]


def test_incident_rows_of_a_schema_were_appended_in_parts_that_were_too_small_for_batches():
    """Each part pays for a batch in each partition: with 1,000 partitions, tasks took three times as long."""
    (part,) = run(encoder(RowLayout(value=0)), batch(*map(str, range(30_000))))
    assert part["value"][29_999] == b"\n29999"


@pytest.mark.slow  # five gigabytes pass through it
def test_incident_a_default_made_more_than_4_gib_of_a_batch_and_other_bytes_of_its_rows():
    default = "x" * 900_000
    field = f'{{"name":"b","type":"string","default":"{default}"}}'
    read, *encode = encoder(RowLayout(value=0), valueSchema=SCHEMA.replace("]}", f",{field}]}}"))
    (rows,) = read(batch(*map(str, range(5_000))), 0)
    ends = zlib.crc32(encode_varint(len(default)) + default.encode())
    row = 0
    for part in run_stages(encode, rows):
        assert part.columns.value.nbytes <= LARGEST_SLICE
        assert part.first_row == row
        for value in part.columns.value:
            number, data = str(row), value.as_buffer()
            assert bytes(data[: 1 + len(number)]) == encode_varint(len(number)) + number.encode()
            assert zlib.crc32(data[1 + len(number) :]) == ends
            row += 1
    assert row == 5_000


def test_the_header_of_a_schema_is_added_where_the_frame_has_none():
    registry = FakeRegistry(guids=True)
    encoded = encoder(RowLayout(value=0), registry=registry, value_schema_id_serializer="header")
    (rows,) = run(encoded, batch("x", None))
    assert rows["value"] == [b"\2x", None]
    guid = b"\1" + (1).to_bytes(16, "big")
    header = b"\x02" + bytes([2 * 17]) + b"__value_schema_id" + bytes([2 * 17]) + guid
    assert rows["headers"] == [header, b"\0"]


# ``json_column``: rows that could not be encoded, as JSON in their dead letters. tests/spark reads it with Spark.

_NESTED = pa.struct([("a", pa.struct([("b", pa.int32())])), ("c", pa.list_(pa.string()))])
_SUMMER = 1_782_000_000_123_456


def texts(array: pa.Array) -> list[str | None]:
    return [None if each is None else each.decode() for each in module.json_column(array).to_pylist()]


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (pa.large_string(), "null", '"null"'),
        (pa.map_(pa.list_(pa.int8()), pa.bool_()), [([1], True)], '{"[1]":true}'),
        (pa.struct([("50 %s", pa.string())]), {"50 %s": "%d"}, '{"50 %s":"%d"}'),
        (_NESTED, {"a": {"b": None}, "c": ["x", None]}, '{"a":{},"c":["x",null]}'),
        (pa.timestamp("us", "No/Where"), _SUMMER, '"2026-06-21T00:00:00.123456Z"'),
    ],
    ids=str,
)
def test_a_value_is_json_and_null_is_null(kind: pa.DataType, value: object, text: str) -> None:
    rows = pa.array([None, value, None, value], kind)
    assert texts(rows) == [None, text, None, text]
    assert texts(rows.slice(1, 2)) == [text, None]
    assert texts(rows.slice(0, 0)) == []


def test_fields_under_a_null_struct_do_not_show() -> None:
    fields = pa.array([1, 2], pa.int32())
    validity = pa.py_buffer(b"\2")
    rows = pa.StructArray.from_buffers(pa.struct([("f", pa.int32())]), 2, [validity], children=[fields])
    assert texts(rows) == [None, '{"f":2}']


def test_a_value_that_cannot_be_converted_fails_no_task() -> None:
    """No variant has these bytes, and Python no year 10000."""
    fields = [pa.field("value", pa.binary()), pa.field("metadata", pa.binary(), metadata={"variant": "true"})]
    rows = pa.array([{"value": b"\xff", "metadata": b""}], pa.struct(fields))
    late = pa.array([2**63 - 1], pa.timestamp("us", "UTC"))
    day = pa.array([2_932_897], pa.date32())
    (text,) = texts(pa.StructArray.from_arrays([rows, late, day], ["v", "t", "d"]))
    assert text == '{"v":{"value":"/w==","metadata":""},"t":"9223372036854775807","d":"2932897"}'
