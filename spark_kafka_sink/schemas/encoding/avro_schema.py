"""Avro schemas: parsed by fastavro, then walked by the planner with names resolved.

``with_imports`` resolves references: it puts the named types of other subjects where a schema first names them.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from spark_kafka_sink.schemas.encoding.encoder import InvalidSchemaError

Json: TypeAlias = Any
NO_DEFAULT: Json = object()

_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_COMPLEX = frozenset({"record", "error", "enum", "array", "map", "fixed"})
BUILT_IN = _PRIMITIVES | _COMPLEX
NAMED = frozenset({"record", "error", "enum", "fixed"})
_LOGICAL_TYPES = {
    "date": ("int",),
    "decimal": ("bytes", "fixed"),
    "duration": ("fixed",),
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
"""The types that each logical type may annotate."""
_FIXED_SIZES = {"duration": 12, "uuid": 16}
_ATTRIBUTES: Mapping[str, tuple[type, str]] = {
    "name": (str, "a string"),
    "fields": (list, "a list"),
    "symbols": (list, "a list"),
    "size": (int, "a whole number"),
}


@dataclass(frozen=True, slots=True)
class AvroField:
    """A field of a record. ``default``: as the JSON has it, or ``NO_DEFAULT``."""

    name: str
    schema: AvroSchema
    default: Json


class AvroSchema:
    """A schema or a part of one. ``type``: Avro's name of the type, or ``union``.

    ``logical``: the logical type, empty if there is none or one that Avro ignores. ``attributes``: as the JSON has
    them.
    """

    __slots__ = ("_names", "attributes", "branches", "logical", "type")

    def __init__(self, node: Json, names: Mapping[str, Json]) -> None:
        if isinstance(node, str) and node not in _PRIMITIVES:
            node = names[node]
        self._names = names
        self.branches: Sequence[AvroSchema] = ()
        self.attributes: Mapping[str, Json] = {}
        if isinstance(node, list):
            self.type = "union"
            self.branches = [AvroSchema(each, names) for each in node]
        elif isinstance(node, str):
            self.type = node
        else:
            self.type = "record" if node["type"] == "error" else node["type"]
            self.attributes = node
        self.logical = self._logical_type()

    @classmethod
    def parse(cls, text: str, *, checks_defaults: bool = True) -> AvroSchema:
        """The schema that ``text``, Avro JSON, describes.

        ``checks_defaults`` is false for a schema that a registry holds, whose defaults Java does not check either.

        Raises ``InvalidSchemaError`` if ``text`` is not a valid Avro schema, and ``ImportError`` if fastavro is not
        installed.
        """
        try:
            from fastavro import parse_schema
            from fastavro.schema import SchemaParseException, UnknownType
        except ImportError as error:
            raise ImportError("Avro needs fastavro: pip install fastavro") from error
        try:
            node = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidSchemaError([f"the Avro schema is not JSON ({error}): {_short(text)}"]) from error
        names: dict[str, Json] = {}
        prepared = _Preparation()
        try:
            plain = prepared.schema(node, "")
            names.update(dict.fromkeys(prepared.fallbacks, "null"))
            parsed = parse_schema(plain, names, _ignore_default_error=not checks_defaults)
            names.update({name: names[of] for name, of in prepared.fallbacks.items()})
            return cls(parsed, names)
        except UnknownType as error:
            raise InvalidSchemaError([f"not an Avro schema (unknown type {error.name}): {_short(text)}"]) from error
        except KeyError as error:
            raise InvalidSchemaError([f"the Avro schema lacks the attribute {error}: {_short(text)}"]) from error
        except (SchemaParseException, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            raise InvalidSchemaError([f"not an Avro schema ({error}): {_short(text)}"]) from error

    @property
    def items(self) -> AvroSchema:
        """The items of an array."""
        return AvroSchema(self.attributes["items"], self._names)

    @property
    def values(self) -> AvroSchema:
        """The values of a map."""
        return AvroSchema(self.attributes["values"], self._names)

    @property
    def fields(self) -> Sequence[AvroField]:
        """The fields of a record."""
        return [
            AvroField(each["name"], AvroSchema(each["type"], self._names), each.get("default", NO_DEFAULT))
            for each in self.attributes["fields"]
        ]

    @property
    def null_branch(self) -> int | None:
        """The index of the branch null of a union; None if the union does not have that branch."""
        return next((index for index, branch in enumerate(self.branches) if branch.type == "null"), None)

    @property
    def precision(self) -> int:
        """The precision of a decimal."""
        return int(self.attributes["precision"])

    @property
    def scale(self) -> int:
        """The scale of a decimal."""
        return int(self.attributes.get("scale", 0))

    @property
    def size(self) -> int:
        """The size of a fixed in bytes."""
        return int(self.attributes["size"])

    def __str__(self) -> str:
        """The schema's name in messages."""
        if self.type == "union":
            return f"[{', '.join(map(str, self.branches))}]"
        if self.type in ("array", "map"):
            return f"{self.type} of {self.items if self.type == 'array' else self.values}"
        text = f"{self.type} {self.attributes['name']}" if "name" in self.attributes else self.type
        if self.type == "fixed":
            text += f"({self.size})"
        if self.logical == "decimal":
            return f"{text} decimal({self.precision}, {self.scale})"
        return f"{text} {self.logical}" if self.logical else text

    def _logical_type(self) -> str:
        """Avro ignores a logical type that it does not know or that does not go with the type."""
        logical = self.attributes.get("logicalType")
        if not isinstance(logical, str) or self.type not in _LOGICAL_TYPES.get(logical, ()):
            return ""
        if self.type == "fixed" and self.size != _FIXED_SIZES.get(logical, self.size):
            return ""
        return "" if logical == "decimal" and not self.attributes.get("precision") else logical


def full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def name_of(node: Mapping[str, Json], namespace: str) -> str:
    """The full name of a named type. ``namespace``: the one around the type."""
    given = node.get("namespace")
    return full_name(node["name"], namespace if given is None else given)


class _Preparation:
    """Rewrites a schema that Java's parser accepts so that fastavro accepts it, too.

    A name is looked up in its namespace, then in the null namespace. ``fallbacks``: full name that fastavro will look
    up → the type of the null namespace that it stands for.
    """

    def __init__(self) -> None:
        self.fallbacks: dict[str, str] = {}
        self._defined: set[str] = set()

    def schema(self, node: Json, namespace: str) -> Json:
        """The schema for fastavro, which is stricter than Java.

        Unwraps types such as ``{"type": {"type": "int"}}``, and drops decimal annotations that are invalid.

        Raises ``ValueError`` for JSON that fastavro does not look at.
        """
        if isinstance(node, list):
            return [self.schema(each, namespace) for each in node]
        if isinstance(node, str):
            full = full_name(node, namespace)
            if full != node and full not in self._defined and node in self._defined:
                self.fallbacks[full] = node
            return node
        if isinstance(node, dict) and "type" not in node:
            return node
        if not isinstance(node, dict):
            raise ValueError(f"{_short(json.dumps(node))} is not a type")
        kind = node["type"]
        if not isinstance(kind, str) or kind not in BUILT_IN:
            return self.schema(kind, namespace)
        _check_attributes(node, kind)
        if kind in NAMED and "name" in node:
            name = name_of(node, namespace)
            self._defined.add(name)
            self.fallbacks.pop(name, None)
            namespace = name.rpartition(".")[0]
        plain = {
            key: self.schema(value, namespace) if key in ("items", "values") else value for key, value in node.items()
        }
        if isinstance(node.get("fields"), list):
            plain["fields"] = [
                {**field, "type": self.schema(field["type"], namespace)}
                if isinstance(field, dict) and "type" in field
                else field
                for field in node["fields"]
            ]
        if plain.get("logicalType") == "decimal" and not _is_decimal(plain):
            del plain["logicalType"]
        return plain


def _is_decimal(node: Mapping[str, Json]) -> bool:
    """Whether the annotation is valid. Java ignores one that is not (``LogicalTypes.Decimal.validate``)."""
    precision, scale = node.get("precision"), node.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or precision == 0:
        return False
    size = node.get("size")
    return node["type"] != "fixed" or type(size) is not int or precision <= math.floor(math.log10(2) * (8 * size - 1))


def _check_attributes(node: Mapping[str, Json], kind: str) -> None:
    """Raises ``ValueError`` for an attribute of the wrong type, and ``KeyError`` for a missing one."""
    if kind in ("record", "error"):
        node["fields"]
    for name, (wanted, words) in _ATTRIBUTES.items():
        if name in node and type(node[name]) is not wanted:
            raise ValueError(f"{kind}: {name} must be {words}, but is {_short(json.dumps(node[name]))}")
    for field in node.get("fields", ()):
        if isinstance(field, dict) and not isinstance(name := field.get("name", ""), str):
            raise ValueError(f"{kind}: the name of a field must be a string, but is {_short(json.dumps(name))}")


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}…"


_MALFORMED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


def with_imports(text: str, imports: Mapping[str, str]) -> str:
    """The schema ``text`` with the definitions of the types that it takes from ``imports``.

    ``imports``: the schemas that ``text`` refers to, by name, each after those that it refers to itself. As in Java,
    ``text`` may use every type that an import defines, also nested ones and those in a union. Raises
    ``InvalidSchemaError``, which names the faulty import.
    """
    if not imports:
        return text
    definitions = _Definitions()
    for name, each in imports.items():
        try:
            definitions.schema(json.loads(each), "")
        except _MALFORMED as error:
            raise _faulty(name, error) from error
    try:
        whole = json.dumps(_Inlining(definitions.types).schema(json.loads(text), ""))
    except _MALFORMED as error:
        raise InvalidSchemaError([f"not an Avro schema ({error})"]) from error
    try:
        AvroSchema.parse(whole, checks_defaults=False)
    except InvalidSchemaError:
        _find_faulty(imports)
        raise
    return whole


def _find_faulty(imports: Mapping[str, str]) -> None:
    """Raises ``InvalidSchemaError`` for the first import that is wrong by itself."""
    earlier: dict[str, str] = {}
    for name, each in imports.items():
        try:
            AvroSchema.parse(with_imports(each, earlier), checks_defaults=False)
        except InvalidSchemaError as error:
            raise _faulty(name, error) from error
        earlier[name] = each


def _faulty(name: str, error: Exception) -> InvalidSchemaError:
    return InvalidSchemaError([f"its import {name!a:.200} is wrong: {error}"])


class _Walk(ABC):
    """Rebuilds a schema. A subclass says what stands for the use and for the definition of a named type."""

    def schema(self, node: Json, namespace: str) -> Json:
        """The schema rebuilt. ``namespace``: the one of the names in ``node``."""
        if isinstance(node, list):
            return [self.schema(each, namespace) for each in node]
        if isinstance(node, str):
            return self._used(node, namespace)
        kind = node["type"]
        if isinstance(kind, str) and kind in NAMED:
            return self._defined(name_of(node, namespace), node)
        parts = [part for part in ("type", "items", "values") if part in node]
        return {**node, **{part: self.schema(node[part], namespace) for part in parts}}

    def _fields(self, name: str, node: Mapping[str, Json]) -> dict[str, Json]:
        """The rebuilt fields in the definition of ``name``; empty if the type has no fields."""
        if "fields" not in node:
            return {}
        inner = name.rpartition(".")[0]
        return {"fields": [{**field, "type": self.schema(field["type"], inner)} for field in node["fields"]]}

    @abstractmethod
    def _used(self, name: str, namespace: str) -> Json: ...

    @abstractmethod
    def _defined(self, name: str, node: Mapping[str, Json]) -> Json: ...


class _Definitions(_Walk):
    """Replaces named types by their names. ``types``: full name → the definition, which only names other types."""

    def __init__(self) -> None:
        self.types: dict[str, Json] = {}

    def _used(self, name: str, namespace: str) -> str:
        full = full_name(name, namespace)
        return name if name in BUILT_IN or (full not in self.types and name in self.types) else full

    def _defined(self, name: str, node: Mapping[str, Json]) -> str:
        if name in self.types:
            raise ValueError(f"it defines {name} again")
        definition = {key: value for key, value in node.items() if key != "namespace"} | {"name": name}
        if "." not in name:
            definition["namespace"] = ""  # where it is put, it would get the one around it
        self.types[name] = definition
        definition.update(self._fields(name, node))
        return name


class _Inlining(_Walk):
    """Puts each definition where it is first used; later uses only name it."""

    def __init__(self, definitions: dict[str, Json]) -> None:
        self._definitions = definitions
        self._own: set[str] = set()

    def _used(self, name: str, namespace: str) -> Json:
        full = full_name(name, namespace)
        if name in BUILT_IN or full in self._own:
            return name
        definition = self._definitions.pop(full, None) or self._definitions.pop(name, None)
        return name if definition is None else self.schema(definition, "")

    def _defined(self, name: str, node: Mapping[str, Json]) -> Json:
        self._own.add(name)
        return {**node, **self._fields(name, node)}
