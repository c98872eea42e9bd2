"""The stage for ``keyFormat`` and ``valueFormat``: structs become Avro, Protobuf or JSON of their schema. Structs that
cannot be encoded become JSON that Spark's ``from_json`` reads, for their dead letters.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from spark_kafka_sink.records.arrays import binary_column, bytes_column, null_mask
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.schemas.encoding.encoder import EncodingFault, in_halves
from spark_kafka_sink.schemas.formats.task_formats import TaskFormats, with_schema_headers
from spark_kafka_sink.schemas.registry.schema import Side
from spark_kafka_sink.spark.options import NO_TOPIC, Reason
from spark_kafka_sink.spark.rows import SERIALIZATION, FaultKind, RejectedRows, TaskRows, number_errors, reject

_MAX_ROWS: Final = 1 << 16
"""The most rows encoded at once. They stay together, because each append pays for a batch in each partition."""

_HEADERS: Final = {Side.KEY: "__key_schema_id", Side.VALUE: "__value_schema_id"}


class FormatEncoder:
    """The stage that encodes the rows of one task. A row that cannot be encoded is rejected, or the task fails. Its
    dead letter has key and value as JSON, and so has the dead letter of a row without a topic, for which there is no
    schema.

    Rows come out in slices that fit a worker's memory, even if their schema adds much to them.
    """

    def __init__(self, formats: TaskFormats, rejects: Collection[Reason] = frozenset()) -> None:
        self._formats = formats
        self._rejects = rejects

    def __call__(self, rows: TaskRows) -> Iterator[TaskRows]:
        for start in range(0, max(1, len(rows)), _MAX_ROWS):
            part = rows[start : min(start + _MAX_ROWS, len(rows))]
            with number_errors(part.first_row):
                yield from in_halves(self._encode, part)

    def _encode(self, rows: TaskRows) -> TaskRows:
        given = rows.columns
        fields = {Side.KEY: given.key, Side.VALUE: given.value}
        not_encoded = {
            place for rejected in rows.rejected if rejected.kind.reason in NO_TOPIC for place in rejected.rows.tolist()
        }
        rows = replace(rows, rejected=tuple(self._as_json(rejected, given) for rejected in rows.rejected))
        added: dict[str, pa.BinaryArray] = {}
        for side, column in fields.items():
            if column is None or side not in self._formats.sides:
                continue
            if len(not_encoded) == len(rows):
                fields[side] = pa.nulls(len(rows), pa.binary())
                continue
            faults: list[EncodingFault] = []
            encoded = self._formats.encode(side, column, rows.topics, faults)
            fields[side] = encoded.values
            if encoded.headers is not None:
                added[_HEADERS[side]] = encoded.headers
            faults = [fault for fault in faults if fault.row not in not_encoded]
            if faults:
                not_encoded |= {fault.row for fault in faults}
                kind = FaultKind(Reason.ENCODE, SERIALIZATION, f"{side.name}_CONVERTER")
                places, texts = np.array([fault.row for fault in faults]), [_text(side.value, each) for each in faults]
                with number_errors(rows.first_row):
                    found = reject(self._rejects, kind, places, texts)
                rows = rows.rejecting_first(self._as_json(found, given))
        headers = given.headers
        if self._formats.has_headers:
            headers = with_schema_headers(headers, added, len(rows))
        return replace(rows, columns=RecordColumns(fields[Side.KEY], fields[Side.VALUE], headers, given.timestamps))

    def _as_json(self, rejected: RejectedRows, given: RecordColumns) -> RejectedRows:
        """The rejected rows with JSON columns of their own, if they are not encoded."""
        if rejected.kind.reason not in NO_TOPIC | {Reason.ENCODE}:
            return rejected
        columns = given.take(rejected.rows)
        fields = {Side.KEY: columns.key, Side.VALUE: columns.value}
        key, value = (
            None if column is None else json_column(column) if side in self._formats.sides else binary_column(column)
            for side, column in fields.items()
        )
        return rejected._replace(columns=replace(columns, key=key, value=value))


def _text(field: str, fault: EncodingFault) -> str:
    _, path, problem = fault
    return f"{field}.{path}: {problem}" if path else f"{field}: {problem}"


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY: Final = 86_400_000_000
"""A day in microseconds."""


def json_column(array: pa.Array) -> pa.BinaryArray:
    """Each value as JSON that Spark's ``from_json`` reads with the column's type; null where it is null.

    Raises nothing. Timestamps are in UTC in every session's time zone, binary is Base64, and NaN and infinity are
    strings. A day-time interval is ``DAY TO SECOND``, because Arrow does not know its fields. A date or time outside
    the years 1 to 9999, which Python does not have, is Arrow's number as a string.
    """
    return bytes_column([None if text is None else text.encode() for text in _texts(array)])


def _texts(array: pa.Array) -> list[str | None]:
    """``_json`` of each value, None where it is null. Of structs, column by column: in a fifth of the time."""
    kind = array.type
    if pt.is_string(kind):
        values = binary_column(array).to_pylist()
        return [None if value is None else _quote(value.decode(errors="replace")) for value in values]
    if not pt.is_struct(kind) or _is_variant(kind):
        return [_json(value) if value.is_valid else None for value in array]
    fields = [(_quote(field.name), _texts(each)) for field, each in zip(kind, array.flatten(), strict=True)]
    inner = [",".join([f"{name}:{texts[row]}" for name, texts in fields if texts[row]]) for row in range(len(array))]
    return [None if missing else f"{{{text}}}" for missing, text in zip(null_mask(array), inner, strict=True)]


def _json(value: pa.Scalar) -> str:
    kind = value.type
    if not value.is_valid:
        return "null"
    if pt.is_struct(kind):
        if _is_variant(kind):
            with suppress(Exception):  # its bytes may be no variant: then it is a struct of binary
                return _variant(value)
        fields = ((field.name, value[index]) for index, field in enumerate(kind))
        return _object((name, inner) for name, inner in fields if inner.is_valid)
    if pt.is_map(kind):
        return _object((_name(entry[0]), entry[1]) for entry in value.values)
    if pt.is_list(kind):
        return f"[{','.join(map(_json, value.values))}]"
    if pt.is_boolean(kind):
        return str(value).lower()
    if pt.is_integer(kind) or pt.is_decimal(kind):
        return str(value.as_py())
    if pt.is_floating(kind):
        number = str(np.float32(value.as_py()) if pt.is_float32(kind) else value.as_py())
        return {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}.get(number, number)
    try:
        text = _text_of(value)
    except Exception:  # such as Python's calendar, which ends with the year 9999
        text = str(getattr(value, "value", kind))
    return _quote(text)


def _is_variant(kind: pa.StructType) -> bool:
    return any(b"variant" in (field.metadata or ()) for field in kind)


_quote: Final = json.JSONEncoder(ensure_ascii=False).encode
"""A ``json.dumps`` that does not make an encoder for each text."""


def _object(fields: Iterable[tuple[str, pa.Scalar]]) -> str:
    return f"{{{','.join(f'{_quote(name)}:{_json(value)}' for name, value in fields)}}}"


def _name(key: pa.Scalar) -> str:
    """The name of a map's key."""
    text = _json(key)
    return str(json.loads(text)) if text[0] == '"' else text


def _variant(value: pa.StructScalar) -> str:
    from pyspark.sql.types import VariantVal

    text = str(VariantVal(**value.as_py()))
    json.loads(text)  # raises for nan, which PySpark writes
    return text


def _text_of(value: pa.Scalar) -> str:
    """The text of a value that is a string in JSON. Timestamps are not converted by ``as_py``, because that needs their
    zone."""
    kind = value.type
    if pt.is_string(kind) or pt.is_large_string(kind):
        return str(value.as_buffer().to_pybytes(), errors="replace")  # Spark's strings may be no UTF-8
    if pt.is_binary(kind) or pt.is_large_binary(kind):
        return b64encode(value.as_py()).decode()
    if pt.is_timestamp(kind):
        text = (_EPOCH + timedelta(microseconds=value.value)).isoformat()
        return text.replace("+00:00", "" if kind.tz is None else "Z")
    if pt.is_duration(kind):
        days, rest = divmod(abs(value.value), _DAY)
        sign, time = "-" if value.value < 0 else "", _EPOCH + timedelta(microseconds=rest)
        return f"INTERVAL '{sign}{days} {time:%H:%M:%S.%f}' DAY TO SECOND"
    return str(value)
