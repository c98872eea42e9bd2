"""A registry whose responses the driver keeps: for all micro-batches of an application a response is the first one.

Planning processes end after an idle minute, so the responses are in files. With a column ``topic``, tasks ask for the
topics that planning does not know; commit keeps what they asked for.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from spark_kafka_sink.schemas.registry.registry_options import RegistryOptions
from spark_kafka_sink.schemas.registry.responses import ResponseFiles, StoredResponse
from spark_kafka_sink.schemas.registry.schema import RegisteredSchema, Schema

if TYPE_CHECKING:
    from spark_kafka_sink.schemas.formats.column_schema import Registry

_REGISTER: Final = "register"
_LOOKUP: Final = "lookup"
_LATEST: Final = "latest"
_ID: Final = "id"
_ASKED: Final = "asked by tasks"
_GUIDS: Final = "GUIDs"


class TaskLookup(NamedTuple):
    """What a task asked for. ``identity``: of its column's plan. ``imports``: the schemas that it imports, by name."""

    identity: str
    registered: RegisteredSchema
    imports: Mapping[str, Schema]


class CachedRegistry:
    """A ``Registry``. ``application``: the id of its run."""

    def __init__(self, registry: Registry, options: RegistryOptions, files: ResponseFiles, application: str) -> None:
        self._registry = registry
        self._files = files
        urls = [url.address for url in options.urls]
        self._key = [application, *urls, f"normalize={options.normalize_schemas}"]
        self._imports: dict[Schema, dict[str, Schema]] = {}

    def register(self, subject: str, schema: Schema) -> RegisteredSchema:
        key = [_REGISTER, subject, *_named(schema)]
        return self._kept(key) or self._keep(key, self._registry.register(subject, schema))

    def lookup(self, subject: str, schema: Schema) -> RegisteredSchema:
        key = [_LOOKUP, subject, *_named(schema)]
        return self._kept(key) or self._keep(key, self._registry.lookup(subject, schema))

    def latest(self, subject: str, *, serialized: bool = False) -> RegisteredSchema:
        key = [_LATEST, subject, f"{serialized}"]
        return self._kept(key) or self._keep_whole(
            key, self._registry.latest(subject, serialized=serialized), serialized=serialized
        )

    def by_id(self, schema_id: int, subject: str, *, serialized: bool = False) -> RegisteredSchema:
        key = [_ID, f"{schema_id}", subject, f"{serialized}"]
        return self._kept(key) or self._keep_whole(
            key, self._registry.by_id(schema_id, subject, serialized=serialized), serialized=serialized
        )

    def imports(self, schema: Schema, *, serialized: bool = False) -> dict[str, Schema]:
        if schema not in self._imports:
            self._imports[schema] = self._registry.imports(schema, serialized=serialized)
        return self._imports[schema]

    def has_guids(self) -> bool:
        """Whether the registry has GUIDs. Only a yes is cached, because planning fails otherwise."""
        key = [*self._key, _GUIDS]
        if not self._files.names(key):
            if not self._registry.has_guids():
                return False
            self._files.put_names(key, [_GUIDS])
        return True

    def store_task_lookups(self, schemas: Iterable[TaskLookup]) -> None:
        """What tasks asked for: many of them the same."""
        subjects: dict[str, set[str]] = {}
        for identity, registered, imports in schemas:
            of_identity = subjects.setdefault(identity, set())
            if registered.subject not in of_identity:
                of_identity.add(registered.subject)
                key = [*self._key, _ASKED, identity, registered.subject]
                self._files.put(key, StoredResponse(registered, imports))
        for identity, new in subjects.items():
            key = [*self._key, _ASKED, identity]
            self._files.put_names(key, sorted({*self._files.names(key), *new}))

    def asked(self, identity: str, known: Container[str] = ()) -> list[RegisteredSchema]:
        """What tasks of plans with this identity asked for. ``known``: subjects to leave out."""
        subjects = self._files.names([*self._key, _ASKED, identity])
        found = (self._kept([_ASKED, identity, subject]) for subject in subjects if subject not in known)
        return [each for each in found if each is not None]

    def _kept(self, key: list[str]) -> RegisteredSchema | None:
        stored = self._files.get([*self._key, *key])
        if stored is None:
            return None
        if stored.imports:
            self._imports[stored.registered.schema] = dict(stored.imports)
        return stored.registered

    def _keep(self, key: list[str], found: RegisteredSchema) -> RegisteredSchema:
        self._files.put([*self._key, *key], StoredResponse(found, {}))
        return found

    def _keep_whole(self, key: list[str], found: RegisteredSchema, *, serialized: bool) -> RegisteredSchema:
        imports = self.imports(found.schema, serialized=serialized)
        self._files.put([*self._key, *key], StoredResponse(found, imports))
        return found


def _named(schema: Schema) -> list[str]:
    return [schema.type.value, schema.text, json.dumps(schema.references)]
