"""Avro schemas with references: the named types of other subjects, put where they are first named."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from spark_kafka_sink.encoding.avro_schema import BUILT_IN, NAMED, AvroSchema, full_name, name_of
from spark_kafka_sink.encoding.encoder import InvalidSchemaError

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
            definitions.add(json.loads(each), "")
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


class _Definitions:
    """``types``: full name → the definition, in which other named types are only named."""

    def __init__(self) -> None:
        self.types: dict[str, Json] = {}

    def add(self, node: Json, namespace: str) -> Json:
        """``node`` with its named types replaced by their names."""
        if isinstance(node, list):
            return [self.add(each, namespace) for each in node]
        if isinstance(node, str):
            return self._resolved(node, namespace)
        if not _is_named(node):
            return {**node, **{part: self.add(node[part], namespace) for part in _parts(node)}}
        name = name_of(node, namespace)
        if name in self.types:
            raise ValueError(f"it defines {name} again")
        definition = {key: value for key, value in node.items() if key != "namespace"} | {"name": name}
        if "." not in name:
            definition["namespace"] = ""  # where it is put, it would get the one around it
        self.types[name] = definition
        if "fields" in node:
            inner = name.rpartition(".")[0]
            definition["fields"] = [{**field, "type": self.add(field["type"], inner)} for field in node["fields"]]
        return name

    def _resolved(self, name: str, namespace: str) -> str:
        full = full_name(name, namespace)
        return name if name in BUILT_IN or (full not in self.types and name in self.types) else full


class _Inlining:
    """Each definition is put in once; later uses name it."""

    def __init__(self, definitions: dict[str, Json]) -> None:
        self._definitions = definitions
        self._own: set[str] = set()

    def schema(self, node: Json, namespace: str) -> Json:
        """``namespace``: of the names in ``node``."""
        if isinstance(node, list):
            return [self.schema(each, namespace) for each in node]
        if isinstance(node, str):
            return self._named(node, namespace)
        if not _is_named(node):
            return {**node, **{part: self.schema(node[part], namespace) for part in _parts(node)}}
        name = name_of(node, namespace)
        self._own.add(name)
        inner = name.rpartition(".")[0]
        if "fields" not in node:
            return node
        return {**node, "fields": [{**field, "type": self.schema(field["type"], inner)} for field in node["fields"]]}

    def _named(self, name: str, namespace: str) -> Json:
        full = full_name(name, namespace)
        if name in BUILT_IN or full in self._own:
            return name
        definition = self._definitions.pop(full, None) or self._definitions.pop(name, None)
        return name if definition is None else self.schema(definition, "")


def _is_named(node: Mapping[str, Json]) -> bool:
    kind = node["type"]
    return isinstance(kind, str) and kind in NAMED


def _parts(node: Mapping[str, Json]) -> list[str]:
    return [part for part in ("type", "items", "values") if part in node]
