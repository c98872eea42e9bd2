"""Headers of schemas beside the rows' own."""

import pyarrow as pa

from spark_kafka_sink.records.columns import bytes_column
from spark_kafka_sink.schemas.formats.wire_format import with_schema_headers

KEY, VALUE = "__key_schema_id", "__value_schema_id"


def read(array):
    return [[(entry["key"], entry["value"]) for entry in row] for row in array.to_pylist()]


def test_rows_without_headers_get_those_of_their_schemas():
    added = {KEY: bytes_column([b"k", None, None]), VALUE: bytes_column([b"v", b"w", None])}
    assert read(with_schema_headers(None, added, 3)) == [
        [(KEY.encode(), b"k"), (VALUE.encode(), b"v")],
        [(VALUE.encode(), b"w")],
        [],
    ]


def test_they_come_behind_the_headers_of_the_row():
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    own = [[{"key": "a", "value": b"1"}], None, [{"key": "b", "value": None}, {"key": "c", "value": b""}], []]
    headers = pa.array([None, *own], kind).slice(1)
    added = {VALUE: bytes_column([b"v", b"w", None, b"x"])}
    assert read(with_schema_headers(headers, added, 4)) == [
        [(b"a", b"1"), (VALUE.encode(), b"v")],
        [(VALUE.encode(), b"w")],
        [(b"b", None), (b"c", b"")],
        [(VALUE.encode(), b"x")],
    ]


def test_a_map_of_headers_is_taken_too():
    headers = pa.array([[("a", "1")], []], pa.map_(pa.string(), pa.string()))
    added = {KEY: bytes_column([b"k", None])}
    assert read(with_schema_headers(headers, added, 2)) == [[(b"a", b"1"), (KEY.encode(), b"k")], []]
