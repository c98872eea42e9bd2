"""What a registry said: one cache per process, and the files in which the driver's processes share theirs.

A response holds until the application ends, so all rows of an application are written alike, and a new version of a
schema is taken when the application starts again. A worker ends with its application, so its cache is memory only.
Spark plans each micro-batch in a process of the driver that ends after an idle minute: a later process finds the
responses in private files. With a column ``topic``, tasks look up topics that planning does not know. Their look-ups
reach the driver's ``commit``, which stores them in these files for later plans.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import tempfile
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from spark_kafka_sink.common.clock import Clock, SystemClock
from spark_kafka_sink.schemas.registry.registry_options import RegistryOptions
from spark_kafka_sink.schemas.registry.schema import (
    RegisteredSchema,
    Schema,
    UnreadableResponseError,
    read_object,
    registered_schema,
    schema_of,
)

if TYPE_CHECKING:
    from spark_kafka_sink.schemas.registry.client import SchemaRegistry

_REGISTER: Final = "register"
_LOOKUP: Final = "lookup"
_LATEST: Final = "latest"
_ID: Final = "id"
_LOOKED_UP: Final = "asked by tasks"
_GUIDS: Final = "GUIDs"

_log = logging.getLogger("spark_kafka_sink.schema_registry")

_LARGEST: Final = 64_000_000
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_UNUSED_MS: Final = 30 * 24 * 3_600_000
"""A file that was not used for this time is removed."""


@lru_cache(16)
def cached_registry(options: RegistryOptions, application: str = "") -> CachedRegistry:
    """The cache of this process. ``application``: the id of the application's run on the driver; empty in a worker."""
    from spark_kafka_sink.schemas.registry.client import SchemaRegistry

    clock = SystemClock()
    registry = SchemaRegistry(options, clock)
    return CachedRegistry(registry, options, ResponseFiles(clock) if application else None, application)


class TaskLookup(NamedTuple):
    """A schema that a task looked up.

    ``identity``: the one of its column's plan. ``imports``: the schemas that it imports, by the names of the imports.
    """

    identity: str
    registered: RegisteredSchema
    imports: Mapping[str, Schema]


class CachedRegistry:
    """Asks a registry each question once. Errors are not cached. Methods raise what those of the registry raise.

    ``files`` and ``application`` are those of a process of the driver. For one thread at a time.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        options: RegistryOptions,
        files: ResponseFiles | None = None,
        application: str = "",
    ) -> None:
        self._registry = registry
        self._files = files
        self._scope = (application, *(url.address for url in options.urls), f"normalize={options.normalize_schemas}")
        self._responses: dict[tuple[str, ...], RegisteredSchema] = {}
        self._imports: dict[Schema, Mapping[str, Schema]] = {}

    def register(self, subject: str, schema: Schema) -> RegisteredSchema:
        key = (_REGISTER, subject, *_named(schema))
        return self._found(key) or self._store(key, self._registry.register(subject, schema))

    def lookup(self, subject: str, schema: Schema) -> RegisteredSchema:
        key = (_LOOKUP, subject, *_named(schema))
        return self._found(key) or self._store(key, self._registry.lookup(subject, schema))

    def latest(self, subject: str, *, serialized: bool = False) -> RegisteredSchema:
        key = (_LATEST, subject, f"{serialized}")
        return self._found(key) or self._store_whole(
            key, self._registry.latest(subject, serialized=serialized), serialized=serialized
        )

    def by_id(self, schema_id: int, subject: str, *, serialized: bool = False) -> RegisteredSchema:
        key = (_ID, f"{schema_id}", subject, f"{serialized}")
        return self._found(key) or self._store_whole(
            key, self._registry.by_id(schema_id, subject, serialized=serialized), serialized=serialized
        )

    def imports(self, schema: Schema, *, serialized: bool = False) -> Mapping[str, Schema]:
        """The schemas that ``schema`` imports. A reference names a version, which never changes."""
        if schema not in self._imports:
            self._imports[schema] = self._registry.imports(schema, serialized=serialized)
        return self._imports[schema]

    def has_guids(self) -> bool:
        """For the driver: whether the registry has GUIDs. Only a yes is cached, because planning fails otherwise."""
        assert self._files is not None
        key = (*self._scope, _GUIDS)
        if not self._files.names(key):
            if not self._registry.has_guids():
                return False
            self._files.put_names(key, [_GUIDS])
        return True

    def store_task_lookups(self, lookups: Iterable[TaskLookup]) -> None:
        """For the driver: later plans know these schemas. Tasks look up many of the same; each is stored once."""
        assert self._files is not None
        subjects: dict[str, set[str]] = {}
        for identity, registered, imports in lookups:
            of_identity = subjects.setdefault(identity, set())
            if registered.subject not in of_identity:
                of_identity.add(registered.subject)
                self._store((_LOOKED_UP, identity, registered.subject), registered, imports)
        for identity, new in subjects.items():
            key = (*self._scope, _LOOKED_UP, identity)
            self._files.put_names(key, sorted({*self._files.names(key), *new}))

    def task_lookups(self, identity: str, known: Container[str] = ()) -> list[RegisteredSchema]:
        """For the driver: what tasks looked up for plans with this identity. ``known``: subjects to leave out."""
        assert self._files is not None
        subjects = self._files.names((*self._scope, _LOOKED_UP, identity))
        found = (self._found((_LOOKED_UP, identity, subject)) for subject in subjects if subject not in known)
        return [each for each in found if each is not None]

    def _found(self, key: tuple[str, ...]) -> RegisteredSchema | None:
        if key not in self._responses:
            stored = None if self._files is None else self._files.get((*self._scope, *key))
            if stored is None:
                return None
            self._remember(key, stored)
        return self._responses[key]

    def _store_whole(self, key: tuple[str, ...], found: RegisteredSchema, *, serialized: bool) -> RegisteredSchema:
        """Stores a schema that the registry chose, in files with its imports."""
        imports = {} if self._files is None else self.imports(found.schema, serialized=serialized)
        return self._store(key, found, imports)

    def _store(
        self, key: tuple[str, ...], found: RegisteredSchema, imports: Mapping[str, Schema] = MappingProxyType({})
    ) -> RegisteredSchema:
        response = StoredResponse(found, imports)
        self._remember(key, response)
        if self._files is not None:
            self._files.put((*self._scope, *key), response)
        return found

    def _remember(self, key: tuple[str, ...], response: StoredResponse) -> None:
        self._responses[key] = response.registered
        if response.imports:
            self._imports[response.registered.schema] = response.imports


def _named(schema: Schema) -> tuple[str, ...]:
    return schema.type.value, schema.text, json.dumps(schema.references)


class StoredResponse(NamedTuple):
    """A response as the files have it. ``imports``: the schemas that it imports, by the names of the imports."""

    registered: RegisteredSchema
    imports: Mapping[str, Schema]


class ResponseFiles:
    """One file per response, mode 0600, in a folder of this user's own, mode 0700.

    A file or folder that another user could have written counts as absent, and so does a file that is cut or strange.
    No method fails, because an application without files can ask the registry again.
    """

    def __init__(self, clock: Clock, folder: Path | None = None) -> None:
        """``folder``: by default ``spark-kafka-sink-<uid>`` in the folder for temporary files."""
        self._clock = clock
        self._folder = folder or Path(tempfile.gettempdir(), f"spark-kafka-sink-{os.geteuid()}")
        self._has_looked_for_unused = False

    def get(self, key: Sequence[str]) -> StoredResponse | None:
        """``key``: application id, URLs, subject, and the options that lead to the response."""
        if not self._is_private():
            return None
        try:
            return _parsed(_read(self._path(key)))
        except (OSError, UnreadableResponseError) as error:
            if not isinstance(error, FileNotFoundError):
                _log.warning("%s is not used: %s", self._path(key), error)
            return None

    def put(self, key: Sequence[str], response: StoredResponse) -> None:
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            if not self._is_private():
                _log.warning("%s is not private to this user: each micro-batch asks the registry.", self._folder)
                return
            self._remove_unused()
            _write(self._path(key), _text(response))
        except OSError as error:
            _log.warning("%s cannot be written, each micro-batch asks the registry: %s", self._folder, error)

    def names(self, key: Sequence[str]) -> list[str]:
        """The names that ``put_names`` wrote last; empty if there are none."""
        try:
            found = json.loads(_read(self._path(key))) if self._is_private() else []
        except (OSError, ValueError, UnreadableResponseError):
            return []
        return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []

    def put_names(self, key: Sequence[str], names: Sequence[str]) -> None:
        """Replaces the names of ``key``, which must not be the key of a response."""
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            if self._is_private():
                _write(self._path(key), json.dumps(list(names)))
        except OSError as error:
            _log.warning("%s cannot be written, tasks ask the registry again: %s", self._folder, error)

    def _path(self, key: Sequence[str]) -> Path:
        return self._folder / f"{sha256(json.dumps(list(key)).encode()).hexdigest()}.json"

    def _is_private(self) -> bool:
        try:
            found = self._folder.lstat()
        except OSError:
            return False
        return stat.S_ISDIR(found.st_mode) and _is_own(found)

    def _remove_unused(self) -> None:
        """Removes old files. Only once, because there may be a file for each topic."""
        if self._has_looked_for_unused:
            return
        self._has_looked_for_unused = True
        oldest = (self._clock.epoch_ms() - _UNUSED_MS) / 1000.0
        for file in self._folder.iterdir():
            with suppress(OSError):
                if file.lstat().st_mtime < oldest:
                    file.unlink()


def _is_own(found: os.stat_result) -> bool:
    return found.st_uid == os.geteuid() and not found.st_mode & _OTHERS


def _read(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or not _is_own(found) or found.st_size > _LARGEST:
            raise UnreadableResponseError("is not a file of this user's own")
        os.utime(descriptor)
        return file.read(_LARGEST)


def _write(path: Path, text: str) -> None:
    """Writes the whole file or nothing."""
    descriptor, scratch = tempfile.mkstemp(dir=path.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        os.replace(scratch, path)
    except BaseException:
        os.unlink(scratch)
        raise


def _text(response: StoredResponse) -> str:
    registered, imports = response
    return json.dumps({
        "subject": registered.subject,
        "version": registered.version,
        "id": registered.id,
        "guid": None if registered.guid is None else str(UUID(bytes=registered.guid)),
        "rules": list(registered.rules),
        **_shown(registered.schema),
        "imports": {name: _shown(schema) for name, schema in imports.items()},
    })  # fmt: skip


def _shown(schema: Schema) -> dict[str, Any]:
    references = [reference._asdict() for reference in schema.references]
    return {"schema": schema.text, "schemaType": schema.type.value, "references": references}


def _parsed(content: bytes) -> StoredResponse:
    parsed = read_object(content)
    subject, imports, rules = (parsed.get(name) for name in ("subject", "imports", "rules"))
    if not isinstance(subject, str) or not isinstance(imports, dict) or not isinstance(rules, list):
        raise UnreadableResponseError("has no subject, imports or rules")
    registered = registered_schema(parsed, subject)._replace(rules=tuple(map(str, rules)))
    return StoredResponse(registered, {name: schema_of(each) for name, each in imports.items()})
