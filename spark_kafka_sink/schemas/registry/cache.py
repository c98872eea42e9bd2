"""A registry whose responses the driver keeps: for all micro-batches of an application a response is the first one.

Planning processes end after an idle minute, so the responses are in files. With a column ``topic``, tasks ask for the
topics that planning does not know; commit keeps what they asked for.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import tempfile
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.schemas.registry.registry_options import RegistryOptions
from spark_kafka_sink.schemas.registry.schema import (
    RegisteredSchema,
    Schema,
    UnreadableResponseError,
    read_object,
    registered_schema,
    schema_of,
)

_REGISTER: Final = "register"
_LOOKUP: Final = "lookup"
_LATEST: Final = "latest"
_ID: Final = "id"
_ASKED: Final = "asked by tasks"
_GUIDS: Final = "GUIDs"


class Registry(Protocol):
    """``SchemaRegistry``, or what keeps its responses."""

    def register(self, subject: str, schema: Schema) -> RegisteredSchema: ...
    def lookup(self, subject: str, schema: Schema) -> RegisteredSchema: ...
    def latest(self, subject: str, *, serialized: bool = False) -> RegisteredSchema: ...
    def by_id(self, schema_id: int, subject: str, *, serialized: bool = False) -> RegisteredSchema: ...
    def imports(self, schema: Schema, *, serialized: bool = False) -> dict[str, Schema]: ...
    def has_guids(self) -> bool: ...


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


_log = logging.getLogger("spark_kafka_sink.schema_registry")

_LARGEST: Final = 64_000_000
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_UNUSED_MS: Final = 30 * 24 * 3_600_000
"""Age without a use at which a file is removed."""


class StoredResponse(NamedTuple):
    """``imports``: the schemas that it imports, by the names of the imports."""

    registered: RegisteredSchema
    imports: Mapping[str, Schema]


class ResponseFiles:
    """One file per response, mode 0600, in a folder of this user's own, mode 0700.

    A file or folder that another user could have written, and a file that is cut or strange, counts as absent. No
    method fails: without its files, an application asks the registry again.
    """

    def __init__(self, clock: Clock, folder: Path | None = None) -> None:
        """``folder``: default ``spark-kafka-sink-<uid>`` in the folder for temporary files."""
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
        """What ``put_names`` wrote last, else none."""
        try:
            found = json.loads(_read(self._path(key))) if self._is_private() else []
        except (OSError, ValueError, UnreadableResponseError):
            return []
        return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []

    def put_names(self, key: Sequence[str], names: Sequence[str]) -> None:
        """``key``: another one than those of responses."""
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
        """Once: a folder may have a file per topic."""
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
    """Whole or not at all."""
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
