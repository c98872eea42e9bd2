"""Checks a response's bytes before kio reads them, because of what kio does with bytes that are not a response.

- kio allocates as many elements as an array announces; without that much memory the process dies, with no exception to
  catch. The walk rejects an array whose elements do not fit into the frame, and null for one that must not be null.
- kio cannot read an error code that it does not know, nor anything around it. The walk finds such codes, so that each
  can be replaced by UNKNOWN_SERVER_ERROR and concerns only the one topic, partition or group that has it.
- kio cannot read a tagged field that it does not know, although brokers may add some to any version (KIP-482). The walk
  finds them, so that they can be left out.
- CPU is spent per element, not per byte, and a hostile peer sends the smallest elements that can be encoded. So it
  counts each element and each tagged field with the least size that it has in an honest response, in which names are
  not empty. The sum must not exceed the size of the frame, so that a MiB has hardly more elements than an honest one.

The walk builds nothing and leaves all other faults to kio. ``impossible`` looks at what kio has read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import cache
from itertools import groupby
from types import UnionType
from typing import Any, Final, NamedTuple, TypeAlias, Union, get_args, get_origin

from spark_kafka_sink.network.error_table import KNOWN_CODES, MAX_WARNINGS, error_code

Data: TypeAlias = bytes | bytearray | memoryview

_FIXED_SIZES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "error_code": 2, "int32": 4, "uint32": 4,
    "timedelta_i32": 4, "int64": 8, "uint64": 8, "float64": 8, "timedelta_i64": 8, "datetime_i64": 8, "uuid": 16,
}  # fmt: skip
_CODE_BYTES = _FIXED_SIZES["error_code"]
_KNOWN = frozenset(code & 0xFFFF for code in KNOWN_CODES)
_LENGTH_SIZES = {"string": 2, "bytes": 4, "records": 4}
_MAX_VARINT_SHIFT = 28
_NULL = -1
_ABSENT, _PRESENT = 0xFF, 1

_NAME_BYTES = 4
"""The bytes counted for a string that must not be null. Many different names cannot all be shorter."""
_NEVER_EMPTY = frozenset({"partitions", "results_by_partition", "partition_responses"})
"""Arrays that an honest broker never leaves empty, so an element's least size includes one entry of such an array."""
_TAGGED_FIELD_BYTES = 8
_SLACK_BYTES = 16 * 1024
"""The bytes by which the elements of a small response may be smaller."""
MAX_TAGGED_FIELDS = 16
"""The most tagged fields of one entity. Kafka defines at most four; later brokers may add others."""

_POSSIBLE: Final = {
    "node_id": range(1 << 31),
    "port": range(1, 1 << 16),
    "producer_id": range(1 << 63),
    "producer_epoch": range(1 << 15),
}
"""The numbers of a broker, a coordinator or a producer that a response without an error names."""
_END_TXN: Final = 26
"""The API whose response has -1 for both producer id and epoch if they do not change."""


Cut: TypeAlias = tuple[int, int, int, int]
"""Tagged fields that this client does not know: the offset of the number of its entity's tagged fields, how many of
these are cut out, and where they begin and end. Not a class of its own: a response may have a cut per element.
"""


class Checked(NamedTuple):
    """The result of a walk. ``end``: the offset after the entity, None when the data is not such an entity; kio does
    not read it then.

    ``unknown_codes``: the offsets of error codes that this client does not know. ``cuts``: unknown tagged fields, in
    their order.
    """

    end: int | None
    unknown_codes: Sequence[int] = ()
    cuts: Sequence[Cut] = ()

    def readable(self, data: Data) -> Data:
        """``data`` as kio can read it.

        Raises ``ValueError`` if the walk did not reach its end, because kio must not read bytes that were not checked.

        UNKNOWN_SERVER_ERROR, which is -1, stands for unknown codes, and unknown tagged fields are left out.
        """
        if self.end is None:
            raise ValueError("it ends early")
        if not (self.unknown_codes or self.cuts):
            return data
        changed = bytearray(data)
        for at in self.unknown_codes[:MAX_WARNINGS]:
            error_code(int.from_bytes(data[at : at + _CODE_BYTES], "big", signed=True))  # warns
        for at in self.unknown_codes:
            changed[at] = changed[at + 1] = 0xFF
        kept, behind = [], 0
        for count, fields, start, end in self.cuts:
            changed[count] -= fields
            kept.append(slice(behind, start))
            behind = end
        return b"".join([*map(changed.__getitem__, kept), changed[behind:]])


@dataclasses.dataclass(slots=True)
class _Walk:
    """The state of one walk. ``left``: bytes that further elements may be counted with."""

    left: int
    unknown_codes: list[int] = dataclasses.field(default_factory=list)
    cuts: list[Cut] = dataclasses.field(default_factory=list)


WalkStep: TypeAlias = Callable[[Data, int, _Walk], int]
"""A function from the offset of a field to the offset of the next; raises ``IndexError``, or returns an offset beyond
the end, when the data ends first."""


class _Part(NamedTuple):
    """A field or an entity. ``step`` is None for an error code or another field of a fixed size.

    ``least``: its smallest size in bytes. ``counted``: the size that an element is counted with for it.
    """

    step: WalkStep | None
    least: int
    counted: int
    is_code: bool = False


def check_response(data: Data, offset: int, entity_type: type) -> Checked:
    """Walks over the entity at ``offset``.

    Raises ``ValueError`` for an array that does not fit or must not be null, and for more elements or tagged fields
    than an honest response has.
    """
    walk = _Walk(len(data) + _SLACK_BYTES)
    step = _entity(entity_type).step
    assert step is not None
    try:
        end = step(data, offset, walk)
    except IndexError:
        return Checked(None)
    if end > len(data):
        return Checked(None)
    return Checked(end, walk.unknown_codes, walk.cuts)


def impossible(body: Any) -> str | None:
    """The first impossible number in the body, or in a broker or coordinator of it; None if all are possible."""
    for part in (body, *getattr(body, "brokers", ()), *getattr(body, "coordinators", ())):
        for name in () if getattr(part, "error_code", 0) else _POSSIBLE:
            value = int(getattr(part, name, 1))
            if value in _POSSIBLE[name]:
                continue
            if part.__api_key__ != _END_TXN or not part.producer_id == part.producer_epoch == -1:
                return f"{name} is {value}"
    return None


@cache
def _entity(entity_type: Any) -> _Part:
    flexible: bool = entity_type.__flexible__
    parts: list[_Part] = []
    tagged: dict[int, WalkStep] = {}
    fields = dataclasses.fields(entity_type)
    has_code = any(field.name == "error_code" for field in fields)
    for field in fields:
        part = _field(field, flexible, has_code)
        if "tag" in field.metadata:
            tagged[field.metadata["tag"]] = part.step or _fixed_fields([part])
        else:
            parts.append(part)
    if flexible:
        parts.append(_Part(_tagged_fields(tagged), 1, 1))
    steps = [
        step
        for is_fixed, run in groupby(parts, lambda part: part.step is None)
        for step in ([_fixed_fields([*run])] if is_fixed else [part.step for part in run if part.step is not None])
    ]

    def walk_entity(data: Data, at: int, walk: _Walk) -> int:
        for step in steps:
            at = step(data, at, walk)
        return at

    return _Part(walk_entity, sum(part.least for part in parts), sum(part.counted for part in parts))


def _field(field: dataclasses.Field[Any], flexible: bool, has_code: bool) -> _Part:
    """The step of a field. ``has_code``: whether the field's entity has an error code of its own."""
    kind: Any = field.type
    nullable = False
    if get_origin(kind) in (UnionType, Union):
        nullable = True
        (kind,) = (arg for arg in get_args(kind) if arg is not type(None))
    if get_origin(kind) is tuple:
        element: Any = get_args(kind)[0]
        of_entities = dataclasses.is_dataclass(element)
        part = _entity(element) if of_entities else _primitive(field, flexible, False)
        size = 1 if flexible else 4
        if field.name in _NEVER_EMPTY and not has_code:
            return _Part(_array(part, flexible, nullable, prepaid=1), size, size + part.counted)
        return _Part(_array(part, flexible, nullable), size, size)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        part = _entity(kind)
        return _Part(_nullable(part), 1, 1) if nullable else part
    return _primitive(field, flexible, nullable)


def _primitive(field: dataclasses.Field[Any], flexible: bool, nullable: bool) -> _Part:
    kind = field.metadata["kafka_type"]
    if kind in _FIXED_SIZES:
        return _Part(None, _FIXED_SIZES[kind], _FIXED_SIZES[kind], kind == "error_code")
    size = 1 if flexible else _LENGTH_SIZES[kind]
    counted = size + _NAME_BYTES if kind == "string" and not nullable else size
    if not flexible:
        return _Part(_string if kind == "string" else _sized_bytes, size, counted)
    return _Part(_compact_bytes, size, counted)


def _fixed_fields(parts: Sequence[_Part]) -> WalkStep:
    size = sum(part.least for part in parts)
    codes = [sum(part.least for part in parts[:place]) for place, part in enumerate(parts) if part.is_code]

    def skip(data: Data, at: int, walk: _Walk) -> int:
        return at + size

    def look_at_codes(data: Data, at: int, walk: _Walk) -> int:
        for code in codes:
            start = at + code
            if (data[start] << 8 | data[start + 1]) not in _KNOWN:
                walk.unknown_codes.append(start)
        return at + size

    return look_at_codes if codes else skip


def _string(data: Data, at: int, walk: _Walk) -> int:
    length = data[at] << 8 | data[at + 1]
    return at + 2 + (length if length < 0x8000 else 0)


def _sized_bytes(data: Data, at: int, walk: _Walk) -> int:
    return at + 4 + max(int.from_bytes(data[at : at + 4], "big", signed=True), 0)


def _compact_bytes(data: Data, at: int, walk: _Walk) -> int:
    length = data[at]
    if length > 0x7F:
        length, at = _varint(data, at)
        return at + max(length - 1, 0)
    return at + (length or 1)


def _array(element: _Part, flexible: bool, nullable: bool, prepaid: int = 0) -> WalkStep:
    """The step of an array. ``prepaid``: how many elements are counted with the entity that the array is in."""
    step, least, counted, _ = element

    def walk_array(data: Data, at: int, walk: _Walk) -> int:
        if flexible:
            count = data[at] - 1
            at += 1
            if count >= 0x7F:
                announced, at = _varint(data, at - 1)
                count = announced - 1
        else:
            count = int.from_bytes(data[at : at + 4], "big", signed=True)
            at += 4
        if count <= 0:
            if count == _NULL and not nullable:
                raise ValueError("an array that must not be null is null")
            return at
        if count * least > len(data) - at:
            raise ValueError(f"an array of {count} elements is announced, but {len(data) - at} bytes follow")
        if step is None:
            return at + count * least
        walk.left -= (count - prepaid) * counted
        if walk.left < 0:
            raise ValueError(f"an array of {count} elements is more than a response of {len(data)} bytes should have")
        for _ in range(count):
            at = step(data, at, walk)
        return at

    return walk_array


def _nullable(entity: _Part) -> WalkStep:
    step = entity.step
    assert step is not None

    def walk_nullable(data: Data, at: int, walk: _Walk) -> int:
        if data[at] == _ABSENT:
            return at + 1
        if data[at] != _PRESENT:
            raise ValueError(f"{data[at]} says neither that an entity is there nor that it is not")
        return step(data, at + 1, walk)

    return walk_nullable


def _count_tagged_fields(data: Data, at: int, walk: _Walk) -> None:
    count = data[at]
    if count > MAX_TAGGED_FIELDS:
        raise ValueError(f"an entity has more than {MAX_TAGGED_FIELDS} tagged fields")
    walk.left -= count * _TAGGED_FIELD_BYTES
    if walk.left < 0:
        raise ValueError(f"it has more tagged fields than a response of {len(data)} bytes should have")


def _tagged_fields(steps: dict[int, WalkStep]) -> WalkStep:
    def walk_tagged_fields(data: Data, at: int, walk: _Walk) -> int:
        if not data[at]:
            return at + 1
        _count_tagged_fields(data, at, walk)
        count_at, at = at, at + 1
        cut, fields = at, 0
        for _ in range(data[count_at]):
            start = at
            tag, size, at = data[at], data[at + 1], at + 2
            if tag > 0x7F or size > 0x7F:
                tag, at = _varint(data, start)
                size, at = _varint(data, at)
            if tag not in steps:
                at += size
                fields += 1
                continue
            cuts = len(walk.cuts)
            at = steps[tag](data, at, walk)
            if len(walk.cuts) > cuts:
                # A known field that contains an unknown one is also left out: its size would be wrong, and it is
                # optional.
                del walk.cuts[cuts:]
                fields += 1
                continue
            if fields:
                walk.cuts.append((count_at, fields, cut, start))
            cut, fields = at, 0
        if fields:
            walk.cuts.append((count_at, fields, cut, at))
        return at

    return walk_tagged_fields


def _varint(data: Data, at: int) -> tuple[int, int]:
    value = shift = 0
    while (byte := data[at]) > 0x7F:
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
        if shift > _MAX_VARINT_SHIFT:
            raise IndexError
    return value | byte << shift, at + 1
