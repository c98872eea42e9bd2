"""What must be done to a response's bytes for kio to read it: a check of array lengths, and a change of error codes.

kio allocates as many elements as an array announces; without that much memory the process dies, with no exception to
catch. So a walk over the bytes comes first: the frame must hold the least bytes that the announced elements take. The
walk also rejects null for an array that is not nullable. It builds nothing and leaves all other faults to kio.

kio cannot read an error code that it does not know, nor anything around it. A second walk, only where kio failed,
replaces such a code by UNKNOWN_SERVER_ERROR, so that it concerns the one topic, partition or group that has it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from types import UnionType
from typing import Any, TypeAlias, Union, get_args, get_origin

from kio.schema.errors import ErrorCode

from spark_kafka_sink.network.error_table import error_code

Data: TypeAlias = bytes | bytearray | memoryview
Step: TypeAlias = Callable[[Data, int], int]
"""Offset of a field → offset of the next. Raises ``IndexError`` when the data ends first."""

_FIXED_SIZES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "error_code": 2, "int32": 4, "uint32": 4,
    "timedelta_i32": 4, "int64": 8, "uint64": 8, "float64": 8, "timedelta_i64": 8, "datetime_i64": 8, "uuid": 16,
}  # fmt: skip
_UNKNOWN = ErrorCode.unknown_server_error.to_bytes(_FIXED_SIZES["error_code"], "big", signed=True)
_LENGTH_SIZES = {"string": 2, "bytes": 4, "records": 4}
_LONGEST_VARINT_SHIFT = 28
_NULL = -1


def check_arrays(data: Data, offset: int, entity_type: type) -> int | None:
    """The offset after the entity at ``offset``, None when ``data`` is no such entity.

    Raises ``ValueError`` for an array that does not fit or must not be null.
    """
    try:
        return _entity(entity_type, False)[0](data, offset)
    except IndexError:
        return None


def with_known_codes(data: Data, offset: int, entity_type: type) -> bytes | None:
    """A copy of ``data`` whose entity at ``offset`` has only known error codes.

    None if it has no other anyway, or when ``data`` is no such entity.
    """
    changed = bytearray(data)
    try:
        _entity(entity_type, True)[0](changed, offset)
    except (IndexError, ValueError):
        return None
    return None if changed == data else bytes(changed)


@cache
def _entity(entity_type: Any, changes_codes: bool) -> tuple[Step, int]:
    """The step over an entity, and its least size in bytes."""
    flexible: bool = entity_type.__flexible__
    steps: list[Step] = []
    tagged: dict[int, Step] = {}
    least = fixed = 0
    for field in dataclasses.fields(entity_type):
        step, size, is_fixed = _field(field, flexible, changes_codes)
        if "tag" in field.metadata:
            tagged[field.metadata["tag"]] = step
            continue
        least += size
        if is_fixed:
            fixed += size
            continue
        if fixed:
            steps.append(_skip(fixed))
            fixed = 0
        steps.append(step)
    if fixed:
        steps.append(_skip(fixed))
    if flexible:
        steps.append(_tagged_fields(tagged))

    def walk(data: Data, at: int) -> int:
        for step in steps:
            at = step(data, at)
        return at

    return walk, least + flexible


def _field(field: dataclasses.Field[Any], flexible: bool, changes_codes: bool) -> tuple[Step, int, bool]:
    """The step over a field, its least size in bytes, and whether that size is fixed."""
    kind: Any = field.type
    nullable = False
    if get_origin(kind) in (UnionType, Union):
        nullable = True
        (kind,) = (each for each in get_args(kind) if each is not type(None))
    if get_origin(kind) is tuple:
        element: Any = get_args(kind)[0]
        of_entities = dataclasses.is_dataclass(element)
        step, least = _entity(element, changes_codes) if of_entities else _primitive(field, flexible, changes_codes)[:2]
        return _array(step, least, flexible, nullable), 1 if flexible else 4, False
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        step, least = _entity(kind, changes_codes)
        return (_nullable(step), 1, False) if nullable else (step, least, False)
    return _primitive(field, flexible, changes_codes)


def _primitive(field: dataclasses.Field[Any], flexible: bool, changes_codes: bool) -> tuple[Step, int, bool]:
    kind = field.metadata["kafka_type"]
    if kind == "error_code" and changes_codes:
        return _change_code, _FIXED_SIZES[kind], False
    if kind in _FIXED_SIZES:
        return _skip(_FIXED_SIZES[kind]), _FIXED_SIZES[kind], True
    length_size = _LENGTH_SIZES[kind]
    return (_compact_bytes, 1, False) if flexible else (_sized_bytes(length_size), length_size, False)


def _change_code(data: Data, at: int) -> int:
    end = _within(data, at + _FIXED_SIZES["error_code"])
    if error_code(int.from_bytes(data[at:end], "big", signed=True)) is ErrorCode.unknown_server_error:
        assert isinstance(data, bytearray)
        data[at:end] = _UNKNOWN
    return end


def _skip(size: int) -> Step:
    def skip(data: Data, at: int) -> int:
        return _within(data, at + size)

    return skip


def _sized_bytes(length_size: int) -> Step:
    def skip(data: Data, at: int) -> int:
        start = _within(data, at + length_size)
        return _within(data, start + max(int.from_bytes(data[at:start], "big", signed=True), 0))

    return skip


def _compact_bytes(data: Data, at: int) -> int:
    length, at = _varint(data, at)
    return _within(data, at + max(length - 1, 0))


def _array(element: Step, least: int, flexible: bool, nullable: bool) -> Step:
    def walk(data: Data, at: int) -> int:
        if flexible:
            announced, at = _varint(data, at)
            count = announced - 1
        else:
            at = _within(data, at + 4)
            count = int.from_bytes(data[at - 4 : at], "big", signed=True)
        if count == _NULL and not nullable:
            raise ValueError("an array is null that must not be")
        if count * least > len(data) - at:
            raise ValueError(f"an array of {count} elements is announced, and {len(data) - at} bytes follow")
        for _ in range(count):
            at = element(data, at)
        return at

    return walk


def _nullable(step: Step) -> Step:
    def walk(data: Data, at: int) -> int:
        return at + 1 if data[at] > 0x7F else step(data, at + 1)

    return walk


def _tagged_fields(steps: dict[int, Step]) -> Step:
    def walk(data: Data, at: int) -> int:
        count, at = _varint(data, at)
        for _ in range(count):
            tag, at = _varint(data, at)
            size, at = _varint(data, at)
            end = _within(data, at + size)
            if tag in steps:
                end = steps[tag](data, at)
            at = end
        return at

    return walk


def _varint(data: Data, at: int) -> tuple[int, int]:
    value = shift = 0
    while (byte := data[at]) > 0x7F:
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
        if shift > _LONGEST_VARINT_SHIFT:
            raise IndexError
    return value | byte << shift, at + 1


def _within(data: Data, end: int) -> int:
    if end > len(data):
        raise IndexError
    return end
