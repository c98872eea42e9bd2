import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.records.arrays import binary_column, timestamp_column
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.encode import header_column, header_section
from spark_kafka_sink.records.sizes import FieldLengths, java_size_estimate, one_java_size_estimate
from spark_kafka_sink.records.varints import encode_varint, varint_size

WORDS = ["ä", None, "", "abcd"]
BYTES = [None if word is None else word.encode() for word in WORDS]
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.binary(),
        pa.large_string(),
        pa.large_binary(),
        pa.string_view(),
        pa.binary_view(),
        pa.dictionary(pa.int32(), pa.string()),
    ],
    ids=str,
)
@pytest.mark.parametrize("cut", [slice(None), slice(1, 3), slice(4, 4)])
def test_every_flavour_of_string_becomes_binary(kind, cut):
    array = pa.array(WORDS).cast(kind)[cut]
    column = binary_column(array)
    assert column.type == pa.binary()
    assert column.to_pylist() == BYTES[cut]


def test_chunks_nulls_and_fixed_sizes_become_binary():
    chunks = pa.chunked_array([pa.array(["a"]), pa.array([None, "b"])])
    assert binary_column(chunks).to_pylist() == [b"a", None, b"b"]
    assert binary_column(pa.chunked_array([], pa.string())).to_pylist() == []
    assert binary_column(pa.nulls(2)).to_pylist() == [None, None]
    assert binary_column(pa.array([b"ab", None], pa.binary(2))).to_pylist() == [b"ab", None]


def test_a_small_slice_far_inside_a_large_array_is_taken():
    far = (1 << 31) + 5
    offsets = np.array([0, far, far + 3], np.int64)
    data = pa.py_buffer(np.zeros(far + 3, np.uint8))  # zero pages: never touched but for the last three bytes
    array = pa.Array.from_buffers(pa.large_binary(), 2, [None, pa.py_buffer(offsets), data])
    assert binary_column(array[1:]).to_pylist() == [bytes(3)]


@pytest.mark.parametrize(
    ("array", "millis"),
    [
        (pa.array([1, None], pa.int64()), [1, 42]),
        (pa.array([1, None], pa.timestamp("s", "UTC")), [1000, 42]),
        (pa.array([1, None], pa.timestamp("ms", "UTC")), [1, 42]),
        (pa.array([1_999, None], pa.timestamp("us", "Europe/Berlin")), [1, 42]),
        (pa.array([1_999_999, None], pa.timestamp("ns", "+02:00")), [1, 42]),
        (pa.array([0, 5_000, None], pa.timestamp("us", "UTC"))[1:], [5, 42]),
        (pa.chunked_array([pa.array([1]), pa.array([None], pa.int64())]), [1, 42]),
        (pa.nulls(2), [42, 42]),
    ],
)
def test_timestamps_become_epoch_milliseconds(array, millis):
    column = timestamp_column(array, default_ms=42)
    assert column.dtype == np.int64
    assert column.tolist() == millis


@pytest.mark.parametrize(
    ("array", "value"),
    [
        (pa.array([0, None, 2**63 // 1000 + 1], pa.timestamp("s", "UTC")), (2**63 // 1000 + 1) * 1000),
        (pa.array([0, None, 2**63], pa.uint64()), 2**63),
    ],
    ids=["seconds", "unsigned"],
)
def test_incident_a_timestamp_beyond_64_bits_of_milliseconds_was_written_as_another_time(array, value):
    with pytest.raises(InvalidRecordError, match=f"Invalid timestamp: {value}. .*at most") as caught:
        timestamp_column(array, default_ms=0)
    assert caught.value.row == 2


def test_the_last_second_that_milliseconds_can_hold_is_taken():
    last = 2**63 // 1000
    assert timestamp_column(pa.array([last, None], pa.timestamp("s", "UTC")), default_ms=3).tolist() == [last * 1000, 3]
    with pytest.raises(InvalidRecordError, match=r"Invalid timestamp: -9223372036854775808000\. ") as caught:
        timestamp_column(pa.array([0, -(2**63)], pa.timestamp("s", "UTC")), default_ms=0)
    assert caught.value.row == 1


def test_a_timestamp_column_of_another_type_is_refused():
    with pytest.raises(InvalidRecordError, match="type string"):
        timestamp_column(pa.array(["2024-01-01"]), default_ms=0)


ROWS = [[("a", b"1")], None, [("b", None), ("é", b"")], []]
SECTIONS = ["0202610231", "00", "0402620104c3a900", "00"]


@pytest.mark.parametrize(
    "kind",
    [
        HEADERS,
        pa.large_list(HEADERS.value_type),
        pa.list_(pa.struct([("value", pa.binary_view()), ("key", pa.large_string())])),
        pa.map_(pa.string(), pa.binary()),
        pa.map_(pa.string(), pa.string()),
    ],
    ids=["list", "large_list", "swapped", "map", "map of strings"],
)
@pytest.mark.parametrize("first", range(5))
def test_headers_become_sections_of_the_record(kind, first):
    rows = ROWS
    if not pa.types.is_map(kind):
        rows = [None if row is None else [{"key": key, "value": value} for key, value in row] for row in ROWS]
    sections = header_column(pa.array(rows, kind)[first:])
    assert sections.null_count == 0
    assert [section.hex() for section in sections.to_pylist()] == SECTIONS[first:]


@pytest.mark.parametrize(
    "rows",
    [
        [[("trace", b"%d" % row), ("source", b"app")] for row in range(300)],
        [[("", b"x")], [("", None)], [("", b"")]],
        [[("long name of a header", bytes(70_000))], [("long name of a header", b"")]],
        [[("ab", b"1"), ("c", b"2")], [("a", b"1"), ("bc", b"2")]],
        [[("ab", b"1")], [("ba", b"1")]],
        [[("a", b"1")], [("a", b"2"), ("a", b"3")], []],
    ],
)
def test_sections_of_rows_that_share_their_names_are_those_of_each_row(rows):
    column = header_column(pa.array([[{"key": k, "value": v} for k, v in row] for row in rows], HEADERS).slice(1))
    assert column.to_pylist() == [header_section([(k.encode(), v) for k, v in row]) for row in rows[1:]]


COUNTING_POOLS = []
"""Arrow crashes if a pool is gone before what was allocated from it."""


@pytest.mark.parametrize(("rows", "width"), [(2_000, 8), (2_000, 120), (1, 100_000)])
def test_incident_rows_with_the_same_header_names_took_a_copy_of_all_values_per_header(rows, width):
    """It was a second and 463 MB for 20 MB of headers, and beyond that an ``ArrowInvalid`` or an ``OverflowError``."""
    size, every = 100, [(b"%d" % header, b"v" * 100) for header in range(width)]
    keys, values = (pa.array(each * rows) for each in zip(*every, strict=True))
    entries = pa.StructArray.from_arrays([keys, values], ["key", "value"])
    array = pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32) * width), entries)
    default = pa.default_memory_pool()
    COUNTING_POOLS.append(counting := pa.proxy_memory_pool(default))
    pa.set_memory_pool(counting)
    try:
        sections = header_column(array)
    finally:
        pa.set_memory_pool(default)
    assert sections[rows - 1].as_py() == header_section(every)
    assert counting.max_memory() < 8 * rows * width * size


def test_headers_above_2_gib_are_refused_before_they_are_joined():
    offsets = pa.py_buffer(np.array([0, 2**30, 2**31 - 1], np.int32))
    values = pa.BinaryArray.from_buffers(pa.binary(), 2, [None, offsets, pa.py_buffer(np.zeros(2**31 - 1, np.uint8))])
    entries = pa.StructArray.from_arrays([pa.array(["a", "a"]), values], ["key", "value"])
    with pytest.raises(InvalidRecordError, match=r"The headers of these 1 rows exceed 2 GiB"):
        header_column(pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), entries))


def test_a_null_list_of_headers_counts_for_none_whatever_it_spans():
    entries = pa.array([{"key": "a", "value": b"1"}, {"key": None, "value": b"2"}, {"key": "c", "value": b"3"}])
    buffers = [pa.py_buffer(b"\x05"), pa.py_buffer(np.array([0, 1, 2, 3], np.int32))]
    array = pa.Array.from_buffers(pa.list_(entries.type), 3, buffers, children=[entries])
    assert [section.hex() for section in header_column(array).to_pylist()] == ["0202610231", "00", "0202630233"]


@pytest.mark.parametrize("entry", [{"key": None, "value": b"v"}, None])
def test_a_null_header_key_is_refused_with_its_row(entry):
    rows = [None, [], [{"key": "a", "value": b""}], [{"key": "b", "value": None}, entry], [{"key": "c", "value": b""}]]
    with pytest.raises(InvalidRecordError, match="Invalid null header key") as caught:
        header_column(pa.array(rows, HEADERS)[1:])
    assert caught.value.row == 2


@pytest.mark.parametrize("kind", [pa.list_(pa.string()), pa.list_(pa.struct([("key", pa.string())])), pa.string()])
def test_headers_of_another_type_are_refused(kind):
    with pytest.raises(InvalidRecordError, match="header"):
        header_column(pa.array([None], kind))


# Sizes of records, and of the varints in them.


def test_the_estimate_is_the_one_java_holds_against_max_request_size():
    # AbstractRecords.estimateSizeInBytesUpperBound of kafka-clients 4.1.1 for the same two records.
    headers = pa.array([[("trace", b"abc")], []], pa.map_(pa.string(), pa.binary()))
    columns = RecordColumns(
        key=pa.array([b"key", None]), value=pa.array([bytes(2_000_000)] * 2), headers=header_column(headers)
    )
    assert java_size_estimate(FieldLengths.of(columns)).tolist() == [2_000_101, 2_000_088]
    assert java_size_estimate(FieldLengths.of(columns.slice(1, 1))).tolist() == [2_000_088]
    assert java_size_estimate(FieldLengths.of(RecordColumns(value=pa.array([bytes(2_000_000)])))).tolist() == [
        2_000_088
    ]
    section = len(header_column(headers)[0].as_py())
    assert one_java_size_estimate(section, (b"key", bytes(2_000_000))) == 2_000_101
    assert one_java_size_estimate(1, (None, bytes(2_000_000))) == 2_000_088


# From Java's ByteUtils.writeVarlong.
KNOWN = {
    0: "00",
    -1: "01",
    1: "02",
    63: "7e",
    -64: "7f",
    64: "8001",
    -65: "8101",
    8191: "fe7f",
    8192: "808001",
    (1 << 20) - 1: "feff7f",
    1 << 20: "80808001",
    (1 << 31) - 1: "feffffff0f",
    -(1 << 31): "ffffffff0f",
    (1 << 63) - 1: "feffffffffffffffff01",
    -(1 << 63): "ffffffffffffffffff01",
}


@pytest.mark.parametrize(("value", "encoded"), KNOWN.items())
def test_one_value_is_encoded_as_java_does(value, encoded):
    assert encode_varint(value).hex() == encoded
    assert varint_size(value) == len(encoded) // 2
