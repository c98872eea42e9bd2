"""The responses of a registry: one cache per process and application, and the file that the driver's processes share.

A response holds until the application ends, so all rows of an application are written alike, and a new version of a
schema is taken when the application starts again. A worker's cache is in memory and lives as long as the worker: if
caches expired at different times, two workers could write one subject with two ids, and the commit would refuse the
batch again and again. Spark plans each micro-batch in a process of the driver that ends after an idle minute, so the
driver's responses are also in a private file.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Final, TypeVar

from spark_kafka_sink.common.clock import Clock, SystemClock
from spark_kafka_sink.common.model import RegistryId
from spark_kafka_sink.common.plain_json import UNREADABLE, parse, plain
from spark_kafka_sink.schemas.registry.registry import Registry, RegistryOptions
from spark_kafka_sink.schemas.registry.schema import RegisteredSchema, Schema

_T = TypeVar("_T")
_log = logging.getLogger("spark_kafka_sink.schema_registry")

_MAX_REGISTRIES: Final = 64
"""The most registries and files that a process keeps, because a long-lived driver runs many applications."""
_LARGEST: Final = 256_000_000
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_warned: Final[set[Path]] = set()

_UNUSED_MS: Final = 30 * 24 * 3_600_000
"""The time (ms) after which an unused file is removed."""


@lru_cache(_MAX_REGISTRIES)
def cached_registry(options: RegistryOptions, application: str, *, on_driver: bool = False) -> CachedRegistry:
    """The cache of this process. ``application``: the id of the application's run."""
    registry: Registry = resolve_name(options.client)(options, SystemClock())
    return CachedRegistry(registry, options, application_file(application) if on_driver else None)


@lru_cache(_MAX_REGISTRIES)
def application_file(application: str) -> ApplicationFile:
    return ApplicationFile(application, SystemClock())


class CachedRegistry:
    """Asks a registry each question once. Errors are not cached. Methods raise the same errors as the registry's
    methods.

    ``file``: the file of the driver's processes, None in a worker. For one thread at a time.
    """

    def __init__(self, registry: Registry, options: RegistryOptions, file: ApplicationFile | None = None) -> None:
        self._registry = registry
        self._file = file
        self._scope = options.scope
        self._responses: dict[tuple[str, ...], Any] = {}

    def register(self, subject: str, schema: Schema, topic: str = "") -> RegisteredSchema:
        return self._find(
            ("register", subject, *_name(schema)), lambda: self._registry.register(subject, schema, topic)
        )

    def lookup(self, subject: str, schema: Schema) -> RegisteredSchema:
        return self._find(("lookup", subject, *_name(schema)), lambda: self._registry.lookup(subject, schema))

    def latest(self, subject: str, *, serialized: bool = False) -> RegisteredSchema:
        key = ("latest", subject, f"{serialized}")
        return self._find(key, lambda: self._registry.latest(subject, serialized=serialized))

    def by_id(self, schema_id: RegistryId, subject: str, *, serialized: bool = False) -> RegisteredSchema:
        key = ("id", f"{schema_id}", subject, f"{serialized}")
        return self._find(key, lambda: self._registry.by_id(schema_id, subject, serialized=serialized))

    def imports(self, schema: Schema, *, serialized: bool = False) -> Mapping[str, Schema]:
        """The schemas that ``schema`` imports. A reference names a version, which never changes."""
        key = ("imports", f"{serialized}", json.dumps(schema.references))
        return dict(
            self._answer(key, _IMPORTS, lambda: (*self._registry.imports(schema, serialized=serialized).items(),))
        )

    def _find(self, key: tuple[str, ...], ask: Callable[[], RegisteredSchema]) -> RegisteredSchema:
        return self._answer(key, RegisteredSchema, ask)

    def _answer(self, key: tuple[str, ...], kind: Any, ask: Callable[[], _T]) -> _T:
        """The answer to a question, from the cache if it was asked before. ``kind``: the type of the answer."""
        if key not in self._responses and self._file is not None:
            value = self._file.get((*self._scope, *key))
            if value is not None:
                with suppress(*UNREADABLE):
                    self._responses[key] = parse(kind, value)
        if key not in self._responses:
            self._responses[key] = ask()
            if self._file is not None:
                self._file.add((*self._scope, *key), self._responses[key])
        answer: _T = self._responses[key]
        return answer


_IMPORTS: Final = tuple[tuple[str, Schema], ...]


def _name(schema: Schema) -> tuple[str, ...]:
    return schema.type, schema.text, json.dumps(schema.references)


class ApplicationFile:
    """Notes that the driver's processes of one application leave for each other: a file of mode 0600, in a folder of
    mode 0700.

    Each line has the digest of a key, and a value. Lines are only added, each in one write, so writers need no lock,
    and the last line of a key counts. A file or folder that another user could have written counts as absent, and so
    does a line that is cut or strange. No method fails, because the registry can be asked again.
    """

    def __init__(self, application: str, clock: Clock, folder: Path | None = None) -> None:
        """``folder``: by default ``spark-kafka-sink-<uid>`` in the folder for temporary files."""
        self._clock = clock
        self._folder = folder or Path(tempfile.gettempdir(), f"spark-kafka-sink-{os.geteuid()}")
        self._path = self._folder / f"{_digest([application])}.jsonl"
        self._values: dict[str, Any] = {}
        self._end = 0  # position after the lines that were read

    def get(self, key: Sequence[str]) -> Any:
        """The JSON value of the key; None without one."""
        try:
            self._read()
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                _log.warning("%s is not used: %s", self._path, error)
        return self._values.get(_digest(key))

    def add(self, key: Sequence[str], value: Any, *, alone: bool = False) -> None:
        """Adds an entry. ``value``: a value that ``plain_json`` can write. ``alone``: whether it replaces all others,
        for new readers."""
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            if not self._path.exists():
                self._remove_unused()
            descriptor = self._open(os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            try:
                if alone:
                    os.ftruncate(descriptor, 0)
                if os.fstat(descriptor).st_size < _LARGEST:
                    # The line break in front ends a line that a process could not write whole.
                    os.write(descriptor, f"\n{json.dumps([_digest(key), value], default=plain)}\n".encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            if self._path not in _warned:
                _warned.add(self._path)
                _log.warning("%s cannot be written, so each micro-batch asks again: %s", self._path, error)

    def _read(self) -> None:
        """Reads the lines that were added since the last call."""
        with os.fdopen(self._open(os.O_RDONLY), "rb") as file:
            os.utime(file.fileno())
            file.seek(self._end)
            content = file.read(_LARGEST)
        end = content.rfind(b"\n") + 1
        self._end += end
        for line in filter(None, content[:end].split(b"\n")):
            try:
                digest, value = json.loads(line)
                self._values[digest] = value
            except (ValueError, TypeError, RecursionError) as error:
                _log.warning("a line of %s is not used: %s", self._path, error)

    def _open(self, flags: int) -> int:
        """Opens the file and returns its descriptor. Raises ``OSError``, for example if file or folder belong to
        another user."""
        folder = self._folder.lstat()
        if not stat.S_ISDIR(folder.st_mode) or not _is_own(folder):
            raise PermissionError("its folder is not private to this user")
        descriptor = os.open(self._path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or not _is_own(found):
            os.close(descriptor)
            raise PermissionError("it is not a file of this user's own")
        return descriptor

    def _remove_unused(self) -> None:
        oldest = (self._clock.epoch_ms() - _UNUSED_MS) / 1000.0
        for file in self._folder.iterdir():
            with suppress(OSError):
                if file.lstat().st_mtime < oldest:
                    file.unlink()


def _is_own(found: os.stat_result) -> bool:
    return found.st_uid == os.geteuid() and not found.st_mode & _OTHERS


def _digest(key: Sequence[str]) -> str:
    return sha256(json.dumps(list(key)).encode()).hexdigest()
