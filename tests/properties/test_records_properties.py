"""Columns → encode → batch → two readers that share nothing with the encoder: our plain one and kio's."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.records.readers import read_batch

from spark_kafka_sink.common.compression import CODEC_IDS, compress
from spark_kafka_sink.exactly_once.decode import DecodedRecord, decode_batches
from spark_kafka_sink.records.arrays import binary_column
from spark_kafka_sink.records.batch import BatchHeader, stamp_header
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.encode import encode_records, header_column
from spark_kafka_sink.records.sizes import FieldLengths, java_size_estimate, record_size_bounds
from spark_kafka_sink.records.varint_columns import encode_zigzagged, varint_sizes, zigzag
from spark_kafka_sink.records.varints import encode_varint

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
MIB = bytes(1 << 20)
# Among them lengths around which a length's varint grows by a byte.
SOME_BYTES = st.one_of(
    st.none(), st.binary(max_size=20), st.sampled_from([63, 64, 8191, 8192, 32768, 1 << 20]).map(lambda n: MIB[:n])
)
BYTES_KINDS = [pa.binary(), pa.large_binary(), pa.binary_view()]
HEADERS_KIND = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
HEADER_LISTS = st.lists(
    st.tuples(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8), st.one_of(st.none(), st.binary(max_size=8))
    ),
    max_size=3,
)


@dataclass(frozen=True)
class Row:
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None
    timestamp: int

    def as_decoded(self, offset: int) -> DecodedRecord:
        headers = tuple((key.encode(), value) for key, value in self.headers or [])
        return DecodedRecord(offset, self.timestamp, self.key, self.value, headers)


# Whole seconds up to the year 2200, which is what kio's reader can tell.
TIMESTAMPS = st.integers(0, 7_258_118_400).map(lambda seconds: seconds * 1000)
ROWS = st.lists(
    st.builds(Row, SOME_BYTES, SOME_BYTES, st.one_of(st.none(), HEADER_LISTS), TIMESTAMPS), min_size=1, max_size=12
)


def columns_of(rows: list[Row], draw: st.DataObject) -> RecordColumns:
    """The rows as columns: of any kind of bytes, cut out of longer arrays, left out where nothing would be in them."""

    def column(cells: list[bytes | None], label: str) -> pa.BinaryArray:
        kind = draw.draw(st.sampled_from(BYTES_KINDS), label)
        return binary_column(pa.array([b"before", None, *cells, b"after"], pa.binary()).cast(kind)[2:-1])

    headers = [
        None if row.headers is None else [{"key": key, "value": value} for key, value in row.headers] for row in rows
    ]
    array = pa.array([[{"key": "before", "value": None}], *headers], HEADERS_KIND)[1:]
    return RecordColumns(
        key=None if all(row.key is None for row in rows) else column([row.key for row in rows], "kind of the keys"),
        value=column([row.value for row in rows], "kind of the values"),
        headers=header_column(array) if any(row.headers for row in rows) else None,
        timestamps=np.array([row.timestamp for row in rows], np.int64),
    )


def batch_of(columns: RecordColumns, order: np.ndarray, codec: str = "none") -> bytes:
    timestamps = columns.timestamps[order]
    base = int(timestamps[0])
    data, _ = encode_records(columns, np.arange(len(order)), timestamps - base, order)
    payload = compress(codec, None, [data])
    return stamp_header(BatchHeader(CODEC_IDS[codec], len(order), base, int(timestamps.max())), [payload]) + payload


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(rows=ROWS, draw=st.data())
def test_both_readers_find_every_row_as_it_was(rows, draw):
    columns = columns_of(rows, draw)
    order = np.array(draw.draw(st.permutations(range(len(rows))), "order"))
    codec = draw.draw(st.sampled_from(list(CODEC_IDS)), "codec")
    expected = tuple(rows[row].as_decoded(offset) for offset, row in enumerate(order))

    (decoded,) = decode_batches(batch_of(columns, order, codec))
    assert decoded.records == expected

    batch, size = read_batch(plain := batch_of(columns, order), 0)
    assert size == len(plain)
    found = tuple(
        DecodedRecord(
            record.offset,
            int(record.timestamp.timestamp()) * 1000,
            record.key,
            record.value,
            tuple((header.key, header.value) for header in record.headers),
        )
        for record in batch.records
    )
    assert found == expected


@settings(deadline=None)
@given(deltas=st.lists(INT64, min_size=1, max_size=20))
def test_any_timestamp_delta_is_told_exactly(deltas):
    columns = RecordColumns(value=pa.array([b"v"] * len(deltas)))
    data, _ = encode_records(columns, np.arange(len(deltas)), np.array(deltas, np.int64))
    (decoded,) = decode_batches(stamp_header(BatchHeader(0, len(deltas), 0, 0), [data]) + bytes(data))
    assert [record.timestamp for record in decoded.records] == deltas


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows=ROWS, draw=st.data())
def test_no_record_is_larger_than_its_bound_nor_a_lone_batch_than_javas_estimate(rows, draw):
    columns = columns_of(rows, draw)
    highest = draw.draw(st.sampled_from([0, 63, 64, 8191, 8192, 1 << 20]), "highest offset delta")
    offset_deltas = np.array(draw.draw(st.lists(st.integers(0, highest), min_size=len(rows), max_size=len(rows))))
    timestamp_deltas = columns.timestamps - columns.timestamps[0]
    widest = int(varint_sizes(timestamp_deltas).max())
    _, starts = encode_records(columns, offset_deltas, timestamp_deltas)
    assert (np.diff(starts) <= record_size_bounds(FieldLengths.of(columns), highest, widest)).all()
    alone = [len(batch_of(columns, np.array([row]))) for row in range(len(rows))]
    assert (np.array(alone) <= java_size_estimate(FieldLengths.of(columns))).all()


@given(values=st.lists(INT64, max_size=30))
def test_a_column_of_varints_is_that_of_each_value(values):
    column = np.array(values, np.int64)
    encoded = encode_zigzagged(zigzag(column)).to_pylist()
    assert encoded == [encode_varint(value) for value in values]
    assert varint_sizes(column).tolist() == [len(varint) for varint in encoded]
