"""Avro schemas: read with the rules of Java's parser, then walked by the planner with names resolved."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

import pyarrow as pa

from spark_kafka_sink.errors import listed, sanitize
from spark_kafka_sink.records.arrays import bytes_column
from spark_kafka_sink.schemas.encoding.encoder import InvalidSchemaError

Json: TypeAlias = Any
Imports: TypeAlias = Sequence[tuple[str, str]]
"""Names and texts of the schemas that another schema refers to. Each comes after the schemas that it refers to
itself."""

NO_DEFAULT: Json = object()

_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED = frozenset({"record", "error", "enum", "fixed"})
_PARTS = {"array": "items", "map": "values"}
_LOGICAL_TYPES = {
    "date": ("int",),
    "decimal": ("bytes", "fixed"),
    "local-timestamp-micros": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-nanos": ("long",),
    "time-micros": ("long",),
    "time-millis": ("int",),
    "timestamp-micros": ("long",),
    "timestamp-millis": ("long",),
    "timestamp-nanos": ("long",),
    "uuid": ("string", "fixed"),
}
"""The types that each logical type may annotate. A duration is written as any other fixed."""
_MAX_NAME_LENGTH: Final = 1 << 16
_MAX_NAMES_SIZE: Final = 1 << 26
_WORDS = {str: "a string", list: "a list", int: "a whole number"}
_COMMENT: Final = re.compile(r'/\*.*?\*/|//[^\r\n]*|("(?:[^"\\]++|\\.)*+"?|/\*.*)', re.DOTALL)
"""A comment. The group matches text that looks like a comment and is not: a string, and a comment without an end."""


@dataclass(frozen=True, slots=True)
class AvroField:
    """A field of a record. ``default``: the value in the JSON, or ``NO_DEFAULT``."""

    name: str
    schema: AvroSchema
    default: Json


class AvroSchema:
    """A schema or a part of one. ``type``: Avro's name of the type, or ``union``.

    ``logical``: the logical type, empty if there is none or if Avro ignores it. ``attributes``: the JSON's attributes.
    """

    def __init__(self, node: Json, names: Mapping[str, Json], known: dict[str, AvroSchema] | None = None) -> None:
        """``known``: the named types that were made before, because a schema may name one many times."""
        if isinstance(node, str) and node not in _PRIMITIVES:
            node = names[node]
        self._names = names
        self._known = {} if known is None else known
        self.branches: Sequence[AvroSchema] = ()
        self.attributes: Mapping[str, Json] = {}
        if isinstance(node, list):
            self.type = "union"
            self.branches = [self._inner(branch) for branch in node]
        elif isinstance(node, str):
            self.type = node
        else:
            self.type = "record" if node["type"] == "error" else node["type"]
            self.attributes = node
        self.logical = self._logical_type()

    @classmethod
    def parse(cls, text: str, imports: Imports = ()) -> AvroSchema:
        """The schema that ``text``, Avro JSON, describes. As in Java, it may use every type that an import defines,
        including types that are nested or in a union. A wrong default is only an error if it is written.

        Raises ``InvalidSchemaError``, which names a faulty import.
        """
        reader = _SchemaReader()
        for name, each in imports:
            try:
                reader.read(each)
            except InvalidSchemaError as error:
                raise InvalidSchemaError([f"its import {name!a:.200} is wrong: {error}"]) from error
        return cls(reader.read(text), reader.types)

    def _inner(self, node: Json) -> AvroSchema:
        if not isinstance(node, str):
            return AvroSchema(node, self._names, self._known)
        if node not in self._known:
            self._known[node] = AvroSchema(node, self._names, self._known)
        return self._known[node]

    @cached_property
    def items(self) -> AvroSchema:
        return self._inner(self.attributes["items"])

    @cached_property
    def values(self) -> AvroSchema:
        return self._inner(self.attributes["values"])

    @cached_property
    def fields(self) -> Sequence[AvroField]:
        return [
            AvroField(field["name"], self._inner(field["type"]), field.get("default", NO_DEFAULT))
            for field in self.attributes["fields"]
        ]

    @cached_property
    def symbols(self) -> Mapping[str, int]:
        """The symbols of an enum, with their numbers."""
        return {symbol: number for number, symbol in enumerate(self.attributes["symbols"])}

    @cached_property
    def symbol_column(self) -> pa.BinaryArray:
        return bytes_column([symbol.encode() for symbol in self.symbols])

    @cached_property
    def null_branch(self) -> int | None:
        """The index of the branch null of a union; None if the union does not have that branch."""
        return next((index for index, branch in enumerate(self.branches) if branch.type == "null"), None)

    @property
    def precision(self) -> int:
        return int(self.attributes["precision"])

    @property
    def scale(self) -> int:
        return int(self.attributes.get("scale", 0))

    @property
    def size(self) -> int:
        return int(self.attributes["size"])

    def __str__(self) -> str:
        """The schema's name in messages, cut to a bounded length."""
        if self.type == "union":
            return f"[{listed(self.branches)}]"
        if self.type in ("array", "map"):
            return _short(f"{self.type} of {self.items if self.type == 'array' else self.values}")
        text = f"{self.type} {_short(str(self.attributes['name']))}" if "name" in self.attributes else self.type
        if self.type == "fixed":
            text += f"({self.size})"
        if self.logical == "decimal":
            return f"{text} decimal({self.precision}, {self.scale})"
        return f"{text} {self.logical}" if self.logical else text

    def _logical_type(self) -> str:
        """The logical type of a node. As in Avro, "" for a logical type that is unknown or does not go with the
        type."""
        logical = self.attributes.get("logicalType")
        if not isinstance(logical, str) or self.type not in _LOGICAL_TYPES.get(logical, ()):
            return ""
        return "" if logical == "decimal" and not _is_decimal(self.attributes) else logical


def _is_decimal(node: Mapping[str, Json]) -> bool:
    """Whether the annotation is valid. Java ignores an invalid one (``LogicalTypes.Decimal.validate``)."""
    precision, scale = node.get("precision"), node.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or precision == 0:
        return False
    return node["type"] != "fixed" or precision <= math.floor(math.log10(2) * (8 * int(node["size"]) - 1))


def without_comments(text: str) -> str:
    """The JSON without the comments that Java's parser takes."""
    return _COMMENT.sub(lambda found: found[1] or " ", text)


def is_name(name: object) -> bool:
    """Whether Avro takes a name (without namespace). Its letters and digits are Unicode's, as in Java."""
    if not isinstance(name, str) or not name or name[0].isdecimal():
        return False
    return all(c == "_" or (c <= "\uffff" and (c.isalpha() or c.isdecimal())) for c in name)


class _SchemaReader:
    """Reads schemas that may name each other's types, by the rules of Java's ``Schema.Parser``.

    ``types``: full name → definition. In a definition, and in what ``read`` returns, a named type is its full name.
    Names may be long and are in each definition, so their length is limited.
    """

    def __init__(self) -> None:
        self.types: dict[str, Json] = {}
        self._named: dict[str, None] = {}
        self._names_size = 0

    def read(self, text: str) -> Json:
        """Raises ``InvalidSchemaError``."""
        try:
            node = json.loads(without_comments(text))
        except (ValueError, RecursionError) as error:
            raise InvalidSchemaError([f"the Avro schema is not JSON ({error}): {_short(text)}"]) from error
        try:
            schema = self._schema(node, "")
            if unknown := [name for name in self._named if name not in self.types]:
                raise ValueError(f"unknown type {_short(unknown[0])}")
        except (ValueError, RecursionError) as error:
            raise InvalidSchemaError([f"not an Avro schema ({sanitize(str(error))}): {_short(text)}"]) from error
        self._named.clear()
        return schema

    def _schema(self, node: Json, namespace: str) -> Json:
        """``namespace``: the namespace of names in ``node`` that have none. Raises ``ValueError``."""
        if isinstance(node, list):
            branches = [self._schema(branch, namespace) for branch in node]
            kinds = list(map(_kind, branches))
            if "union" in kinds or len(set(kinds)) < len(kinds):
                raise ValueError("a union has a type twice, or another union")
            return branches
        if isinstance(node, str):
            return node if node in _PRIMITIVES else self._name(node, namespace)
        kind = _attribute(node, "type")
        if not isinstance(kind, str):
            return self._schema(kind, namespace)
        if kind in _NAMED:
            return self._definition(node, kind, namespace)
        if kind in _PARTS:
            return {**node, _PARTS[kind]: self._schema(_attribute(node, _PARTS[kind]), namespace)}
        return node if kind in _PRIMITIVES else self._name(kind, namespace)

    def _name(self, name: str, namespace: str) -> str:
        """The full name of the type that a name means, in its namespace or without one. The type may be defined
        later."""
        full = self._full_name(name, namespace)
        if full not in self.types and name in self.types:
            return name
        self._named[full] = None
        return full

    def _full_name(self, name: str, namespace: str) -> str:
        """A name with its namespace. A dot in front means that there is none."""
        full = name.removeprefix(".") if "." in name or not namespace else f"{namespace}.{name}"
        self._names_size += len(full)
        if len(full) > _MAX_NAME_LENGTH or self._names_size > _MAX_NAMES_SIZE:
            most = f"{_MAX_NAME_LENGTH >> 10} KiB, or all names more than {_MAX_NAMES_SIZE >> 20} MiB"
            raise ValueError(f"the name {_short(full)} has more than {most}")
        return full

    def _definition(self, node: Mapping[str, Json], kind: str, namespace: str) -> str:
        given, own = node.get("namespace"), _attribute(node, "name", str)
        parts = own.removeprefix(".").split(".")
        if "." not in own and isinstance(given, str):
            namespace = given
            parts += given.split(".") if given else []
        name = self._full_name(own, namespace)
        # The namespace around the definition was checked where it was given.
        if name in _PRIMITIVES or not all(map(is_name, parts)):
            raise ValueError(f"{_short(json.dumps(name))} is not a name for a type")
        if not all(isinstance(alias, str) for alias in _attribute({"aliases": [], **node}, "aliases", list)):
            raise ValueError(f"{_short(name)}: aliases must be strings")
        known = self.types.setdefault(name, node)
        new = {key: value for key, value in node.items() if key != "namespace"} | {"name": name}
        if kind == "fixed":
            if not 0 <= _attribute(node, "size", int) < 1 << 31:
                raise ValueError(f"{_short(name)}: its size is {node['size']}")
        elif kind == "enum":
            _check_names(name, symbols := _attribute(node, "symbols", list))
            if isinstance(default := node.get("default"), str) and default not in symbols:
                raise ValueError(f"{_short(name)}: its default is none of its symbols")
        else:
            if "." in own:
                namespace = name.rpartition(".")[0]
            new["fields"] = [self._field(each, namespace) for each in _attribute(node, "fields", list)]
            _check_names(name, [each["name"] for each in new["fields"]])
        if known is not node and _without_notes(known) != _without_notes(new):
            raise ValueError(f"{_short(name)} is defined again, as another type")
        self.types[name] = new
        return name

    def _field(self, node: Json, namespace: str) -> dict[str, Json]:
        kind = self._schema(_attribute(node, "type"), namespace)
        field = {**node, "name": _attribute(node, "name"), "type": kind}
        if isinstance(field.get("default"), str) and _kind(kind) in ("float", "double"):
            field["default"] = float(field["default"])  # JSON has no NaN
        return field


def _kind(schema: Json) -> Json:
    """The type of a schema that was read, or its name."""
    return "union" if isinstance(schema, list) else schema["type"] if isinstance(schema, dict) else schema


def _without_notes(definition: Mapping[str, Json]) -> Json:
    """The part of a definition that two definitions of a type must have in common."""
    plain = {key: value for key, value in definition.items() if key not in ("doc", "aliases")}
    if isinstance(fields := plain.get("fields"), list):
        plain["fields"] = [_without_notes(field) for field in fields]
    return plain


def _attribute(node: Json, name: str, wanted: type = object) -> Json:
    """An attribute of the node. Raises ``ValueError`` if the node lacks it, or if it is of another type."""
    if not isinstance(node, dict):
        raise ValueError(f"{_short(json.dumps(node))} is not a {'type' if name == 'type' else 'field'}")
    if name not in node:
        raise ValueError(f"{_short(json.dumps(node))} lacks the attribute {name!r}")
    value = node[name]
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise ValueError(f"{node['type']}: {name} must be {_WORDS[wanted]}, but is {_short(json.dumps(value))}")
    return value


def _check_names(of: str, names: Sequence[Json]) -> None:
    """Raises ``ValueError`` for a field or symbol that is not a name, or is there twice."""
    for name in names:
        if not is_name(name):
            raise ValueError(f"{_short(of)}: {_short(json.dumps(name))} is not a name")
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise ValueError(f"{_short(of)}: {_short(json.dumps(twice[0]))} is there twice")


def _short(text: str) -> str:
    return sanitize(text, 100)
