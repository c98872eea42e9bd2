"""Values as JSON of Spark's ``to_json``, for dead letters of rows that could not be encoded.

One value at a time, without pandas and pytz, which lack some of Java's time zones.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from spark_kafka_sink.records.columns import bytes_column

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
    """Each value as ``to_json`` writes it with its default options; null where it is null.

    Arrow does not tell the fields of a day-time interval, so all are ``DAY TO SECOND``, nor the session's time zone for
    a variant, which is in UTC. Raises nothing.
    """
    return bytes_column([_json(value).encode() if value.is_valid else None for value in array])


def _json(value: pa.Scalar) -> str:
    """A value that cannot be converted is a row of Arrow's IPC format in Base64."""
    try:
        return _converted(value) if value.is_valid else "null"
    except Exception:
        row = pa.RecordBatch.from_arrays([pa.repeat(value, 1)], ["value"]).serialize()
        return f'{{"arrow":"{b64encode(row).decode()}"}}'


def _converted(value: pa.Scalar) -> str:
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
    return _quoted(_text(value))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _object(fields: Iterable[tuple[str, pa.Scalar]]) -> str:
    return f"{{{','.join(f'{_quoted(name)}:{_json(value)}' for name, value in fields)}}}"


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


def _text(value: pa.Scalar) -> str:
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
