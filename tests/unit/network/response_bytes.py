"""Bytes of responses in any shape, written from kio's classes without kio's writer, which refuses what is hostile."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import UnionType
from typing import Any, get_args, get_origin

Path = tuple[str, ...]
"""The names of the fields from the response down to one of its fields."""

SIZES = {
    "bool": 1, "int8": 1, "int16": 2, "error_code": 2, "int32": 4, "timedelta_i32": 4, "int64": 8,
    "timedelta_i64": 8, "datetime_i64": 8, "uuid": 16,
}  # fmt: skip


def compact(number: int) -> bytes:
    """An unsigned varint."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def kind_of(each: dataclasses.Field[Any]) -> tuple[Any, Any, bool]:
    """A field's type without None, the type of its elements if it is an array, and whether it may be null."""
    kind: Any = each.type
    nullable = get_origin(kind) is UnionType
    if nullable:
        kind = next(part for part in get_args(kind) if part is not type(None))
    element = get_args(kind)[0] if get_origin(kind) is tuple else None
    return kind, element, nullable


def arrays_of(kind: Any, above: Path = ()) -> Iterator[tuple[Path, bool]]:
    """Every array in an entity, at any depth, and whether it is of entities or strings, which vary in size."""
    for each in dataclasses.fields(kind):
        inner, element, _ = kind_of(each)
        path = (*above, each.name)
        if element is not None:
            yield path, dataclasses.is_dataclass(element) or each.metadata["kafka_type"] == "string"
        if dataclasses.is_dataclass(element or inner):
            yield from arrays_of(element or inner, path)


@dataclass(frozen=True)
class Shape:
    """``counts``: the elements of an array by path, otherwise ``elements``. ``text``: of each string and bytes.

    ``tags``: tagged fields in each entity that no schema knows. ``code``: each error code; ``codes`` of them differ.
    Tagged fields that the schema knows are written only if ``counts`` has an array in them.
    """

    text: bytes = b""
    elements: int = 0
    counts: dict[Path, int] = field(default_factory=dict)
    tags: int = 0
    code: int = 0
    codes: int = 1

    def response(self, kind: Any, size: int = 0) -> bytes:
        """The bytes after the correlation id. Bytes that nothing reads follow up to ``size``."""
        head = b"\0" if kind.__header_schema__.__flexible__ else b""
        return (head + self._entity(kind, (), 0)).ljust(size, b"\0")

    def _entity(self, kind: Any, above: Path, number: int) -> bytes:
        flexible, tagged, written = kind.__flexible__, [], []
        for each in dataclasses.fields(kind):
            path = (*above, each.name)
            if "tag" not in each.metadata:
                written.append(self._field(each, path, flexible, number))
            elif any(wanted[: len(path)] == path for wanted in self.counts):
                value = self._field(each, path, flexible, number)
                tagged.append(compact(each.metadata["tag"]) + compact(len(value)) + value)
        if flexible:
            tagged += [bytes([100, 0])] * self.tags
            written += [compact(len(tagged)), *tagged]
        return b"".join(written)

    def _field(self, each: dataclasses.Field[Any], path: Path, flexible: bool, number: int) -> bytes:
        kind, element, nullable = kind_of(each)
        if element is None:
            if dataclasses.is_dataclass(kind):
                return (b"\1" if nullable else b"") + self._entity(kind, path, number)
            return self._primitive(each, flexible, number, nullable)
        count = self.counts.get(path, self.elements)
        if count > self.codes and dataclasses.is_dataclass(element) and not self.text:
            repeated = b"".join(self._entity(element, path, index) for index in range(self.codes))
            elements = (repeated * (count // self.codes + 1))[: len(repeated) // self.codes * count]
        elif dataclasses.is_dataclass(element):
            elements = b"".join(self._entity(element, path, index) for index in range(count))
        else:
            elements = b"".join(self._primitive(each, flexible, index) for index in range(count))
        return (compact(count + 1) if flexible else count.to_bytes(4, "big")) + elements

    def _primitive(self, each: dataclasses.Field[Any], flexible: bool, number: int, nullable: bool = False) -> bytes:
        kind = each.metadata["kafka_type"]
        if kind == "error_code":
            return (self.code + number % self.codes).to_bytes(2, "big", signed=True)
        if kind == "uuid":
            return (number + 1).to_bytes(16, "big")
        if kind == "bool":
            return bytes([number % 2])
        if kind in SIZES:
            return (number % 100).to_bytes(SIZES[kind], "big")
        size = 4 if kind == "bytes" or kind == "records" else 2
        if nullable or not self.text:
            null = nullable or kind == "records"
            return bytes([0 if null else 1]) if flexible else (-1 if null else 0).to_bytes(size, "big", signed=True)
        text = self.text + b"%d" % number
        return (compact(len(text) + 1) if flexible else len(text).to_bytes(size, "big")) + text
