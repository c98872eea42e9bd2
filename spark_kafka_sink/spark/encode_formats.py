"""The stage for ``keyFormat`` and ``valueFormat``: structs become Avro, Protobuf or JSON of their schema. Those that
cannot be encoded become the JSON of Spark's ``to_json``, for their dead letters.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.records.columns import RecordColumns, binary_column, bytes_column
from spark_kafka_sink.schemas.encoding.encoder import Fault, UnencodableRowsError, in_halves
from spark_kafka_sink.schemas.formats.task_formats import EncodedColumn, TaskFormats, with_schema_headers
from spark_kafka_sink.schemas.registry.schema import Side
from spark_kafka_sink.spark.options import NO_TOPIC, Reason
from spark_kafka_sink.spark.rows import SERIALIZATION, FaultKind, RejectedRows, Rows, number_errors, with_row_number

_MOST_ROWS: Final = 1 << 16
"""Rows encoded at once. They stay together, because each append pays for a batch in each partition."""

_HEADERS: Final = {Side.KEY: "__key_schema_id", Side.VALUE: "__value_schema_id"}


class FormatEncoder:
    """Rows of one task. Rejects, or raises for, a row that cannot be encoded. Its dead letter has key and value as
    JSON, and so has that of a row without a topic, which has no schema.

    Rows come out in slices that a worker has memory for, whatever their schema adds to them.
    """

    def __init__(self, formats: TaskFormats, rejects: Collection[Reason] = frozenset()) -> None:
        self._formats = formats
        self._rejects = rejects

    def __call__(self, rows: Rows) -> Iterator[Rows]:
        for start in range(0, max(1, len(rows)), _MOST_ROWS):
            part = rows[start : min(start + _MOST_ROWS, len(rows))]
            with number_errors(part.first_row):
                yield from in_halves(self._encode, part)

    def _encode(self, rows: Rows) -> Rows:
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
            encoded, faults = self._encode_column(side, column, rows)
            fields[side] = encoded.values
            if encoded.headers is not None:
                added[_HEADERS[side]] = encoded.headers
            faults = [fault for fault in faults if fault.row not in not_encoded]
            if faults:
                not_encoded |= {fault.row for fault in faults}
                rows = rows.rejecting_first(self._as_json(_reject(side, faults), given))
        headers = given.headers
        if self._formats.has_headers:
            headers = with_schema_headers(headers, added, len(rows))
        return replace(rows, columns=RecordColumns(fields[Side.KEY], fields[Side.VALUE], headers, given.timestamps))

    def _encode_column(self, side: Side, column: pa.Array, rows: Rows) -> tuple[EncodedColumn, list[Fault]]:
        faults: list[Fault] = []
        try:
            wanted = faults if Reason.ENCODE in self._rejects else None
            return self._formats.encode(side, column, rows.topics, wanted), faults
        except UnencodableRowsError as error:
            kept = rows.kept
            fault = next((fault for fault in error.faults if kept is None or kept[fault.row]), error.faults[0])
            raise with_row_number(InvalidRecordError(_text(side.value, fault)), rows.first_row + fault.row) from None

    def _as_json(self, rejected: RejectedRows, given: RecordColumns) -> RejectedRows:
        """With columns of its own, if these rows are not encoded."""
        if rejected.kind.reason not in NO_TOPIC | {Reason.ENCODE}:
            return rejected
        columns = given.take(rejected.rows)
        fields = {Side.KEY: columns.key, Side.VALUE: columns.value}
        key, value = (
            None if column is None else json_column(column) if side in self._formats.sides else binary_column(column)
            for side, column in fields.items()
        )
        return rejected._replace(columns=replace(columns, key=key, value=value))


def _reject(side: Side, faults: list[Fault]) -> RejectedRows:
    kind = FaultKind(Reason.ENCODE, SERIALIZATION, f"{side.name}_CONVERTER")
    places: npt.NDArray[np.intp] = np.array([fault.row for fault in faults], np.intp)
    field = side.value
    return RejectedRows(kind, places, [_text(field, fault) for fault in faults])


def _text(field: str, fault: Fault) -> str:
    _, path, problem = fault
    return f"{field}.{path}: {problem}" if path else f"{field}: {problem}"


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY: Final = 86_400_000_000
_CYCLE: Final = 146_097 * _DAY
"""Microseconds of 400 years, after which the calendar repeats."""

_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d\d?):?(\d\d)?:?(\d\d)?")
_SHORT_IDS: Final = (
    "ACT=Australia/Darwin AET=Australia/Sydney AGT=America/Argentina/Buenos_Aires ART=Africa/Cairo BST=Asia/Dhaka "
    "AST=America/Anchorage BET=America/Sao_Paulo CAT=Africa/Harare CNT=America/St_Johns CST=America/Chicago "
    "CTT=Asia/Shanghai EAT=Africa/Addis_Ababa ECT=Europe/Paris IET=America/Indiana/Indianapolis IST=Asia/Kolkata "
    "JST=Asia/Tokyo MIT=Pacific/Apia NET=Asia/Yerevan NST=Pacific/Auckland PLT=Asia/Karachi PNT=America/Phoenix "
    "PRT=America/Puerto_Rico PST=America/Los_Angeles SST=Pacific/Guadalcanal VST=Asia/Ho_Chi_Minh"
)
"""Java's ``ZoneId.SHORT_IDS`` that Python does not know."""


def json_column(array: pa.Array) -> pa.BinaryArray:
    """Each value as ``to_json`` writes it with its default options; null where it is null. One value at a time, without
    pandas and pytz, which lack some of Java's time zones.

    Arrow does not tell the fields of a day-time interval, so all are ``DAY TO SECOND``, nor the session's time zone for
    a variant, which is in UTC. Raises nothing.
    """
    return bytes_column([_json(value).encode() if value.is_valid else None for value in array])


def _json(value: pa.Scalar) -> str:
    """A value that cannot be converted is a row of Arrow's IPC format in Base64."""
    try:
        return _convert(value) if value.is_valid else "null"
    except Exception:
        row = pa.RecordBatch.from_arrays([pa.repeat(value, 1)], ["value"]).serialize()
        return f'{{"arrow":"{b64encode(row).decode()}"}}'


def _convert(value: pa.Scalar) -> str:
    kind = value.type
    if pt.is_struct(kind):
        if any(b"variant" in (field.metadata or ()) for field in kind):
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
    return _quote(_json_text(value))


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _object(fields: Iterable[tuple[str, pa.Scalar]]) -> str:
    return f"{{{','.join(f'{_quote(name)}:{_json(value)}' for name, value in fields)}}}"


def _name(key: pa.Scalar) -> str:
    """The name of a map's key. Spark takes the number that is inside a date, a time or an interval."""
    if pt.is_temporal(key.type):
        return str(key.value)
    text = _json(key)
    return str(json.loads(text)) if text[0] == '"' else text


def _variant(value: pa.StructScalar) -> str:
    from pyspark.sql.types import VariantVal

    text = str(VariantVal(**value.as_py()))
    json.loads(text)  # raises for nan, which PySpark writes
    return text


def _json_text(value: pa.Scalar) -> str:
    """The text of a value that is a string in JSON."""
    kind = value.type
    if pt.is_string(kind) or pt.is_large_string(kind):
        return str(value.as_buffer().to_pybytes(), errors="replace")  # Spark's strings may be no UTF-8
    if pt.is_binary(kind) or pt.is_large_binary(kind):
        return b64encode(value.as_py()).decode()
    if pt.is_timestamp(kind):
        text = _iso(value.value, UTC if kind.tz is None else _zone(kind.tz))
        return text.replace("+00:00", "" if kind.tz is None else "Z")
    if pt.is_date32(kind):
        return _iso(value.value * _DAY, UTC).partition("T")[0]
    if pt.is_duration(kind):
        days, rest = divmod(abs(value.value), _DAY)
        return f"INTERVAL '{'-' if value.value < 0 else ''}{days} {_clock(rest)}' DAY TO SECOND"
    return _clock(value.value // 1_000) if pt.is_time64(kind) else str(value)


def _clock(micros: int) -> str:
    """A time of day, without zeros at the end of its fraction."""
    return f"{_EPOCH + timedelta(microseconds=micros):%H:%M:%S.%f}".rstrip("0").rstrip(".")


def _iso(micros: int, zone: tzinfo) -> str:
    """Date, time and offset. Python's years end at 9999: others are moved by cycles of the calendar."""
    moved = micros % _CYCLE + (4 if micros > 0 else -4) * _CYCLE if abs(micros) > 4 * _CYCLE else micros
    at = (_EPOCH + timedelta(microseconds=moved)).astimezone(zone)
    year = at.year + (micros - moved) // _CYCLE * 400
    return f"{'+' if year > 9999 else ''}{year:0{4 + (year < 0)}}{at.isoformat(timespec='milliseconds')[4:]}"


@lru_cache(8)
def _zone(name: str) -> tzinfo:
    """The zone that has this name in Java; UTC where Python has none, so that the text is right in any case."""
    if (match := _OFFSET.fullmatch(name)) is not None:
        hours, minutes, seconds = (int(part or 0) for part in match.groups()[1:])
        offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return timezone(-offset if match[1] == "-" else offset)
    with suppress(Exception):
        found = re.search(rf"\b{re.escape(name)}=(\S+)", _SHORT_IDS)
        return ZoneInfo(name if found is None else found[1])
    return UTC
