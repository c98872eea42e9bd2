"""Avro schemas with references: the named types of other subjects, put where they are first named."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

Json: TypeAlias = Any

_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})


def with_imports(text: str, imports: Sequence[str]) -> str:
    """``imports``: the schemas that ``text`` refers to, each the definition of one named type."""
    if not imports:
        return text
    definitions = {}
    for each in imports:
        definition = json.loads(each)
        if isinstance(definition, dict) and "name" in definition:
            definitions[_full_name(definition["name"], definition.get("namespace") or "")] = definition
    return json.dumps(_Inlining(definitions).schema(json.loads(text), ""))


class _Inlining:
    """Each definition is put in once; later uses name it."""

    def __init__(self, definitions: dict[str, Json]) -> None:
        self._definitions = definitions

    def schema(self, node: Json, namespace: str) -> Json:
        """``namespace``: of the names in ``node``."""
        if isinstance(node, list):
            return [self.schema(each, namespace) for each in node]
        if isinstance(node, str):
            definition = self._definitions.pop(_full_name(node, namespace), None)
            if definition is None:
                definition = self._definitions.pop(node, None)
            # Where it stands now, a definition without a namespace would get the one around it.
            return node if definition is None else self.schema({"namespace": "", **definition}, "")
        if not isinstance(node, dict):
            return node
        if node.get("type") in _NAMED:
            given = node.get("namespace")
            namespace = _full_name(node["name"], namespace if given is None else given).rpartition(".")[0]
        inlined = dict(node)
        for part in ("type", "items", "values"):
            if part in node:
                inlined[part] = self.schema(node[part], namespace)
        if isinstance(node.get("fields"), list):
            inlined["fields"] = [{**field, "type": self.schema(field["type"], namespace)} for field in node["fields"]]
        return inlined


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
