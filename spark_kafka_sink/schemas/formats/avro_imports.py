"""Avro schemas with references: the named types of other subjects, put where they are first named."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, TypeAlias

from spark_kafka_sink.schemas.encoding.avro_schema import BUILT_IN, NAMED, AvroSchema, full_name, name_of
from spark_kafka_sink.schemas.encoding.encoder import InvalidSchemaError

Json: TypeAlias = Any

_MALFORMED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


def with_imports(text: str, imports: Mapping[str, str]) -> str:
    """``imports``: the schemas that ``text`` refers to, by name, each after those that it refers to itself.

    As in Java, ``text`` may name every type that an import defines, nested ones and those in a union too. Raises
    ``InvalidSchemaError``, which names the import.
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
        """The rebuilt fields in the definition of ``name``, if it has some."""
        if "fields" not in node:
            return {}
        inner = name.rpartition(".")[0]
        return {"fields": [{**field, "type": self.schema(field["type"], inner)} for field in node["fields"]]}

    @abstractmethod
    def _used(self, name: str, namespace: str) -> Json: ...

    @abstractmethod
    def _defined(self, name: str, node: Mapping[str, Json]) -> Json: ...


class _Definitions(_Walk):
    """Replaces named types by their names. ``types``: full name → the definition, in which others are only named."""

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
    """Puts each definition in once; later uses name it."""

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
