"""Schemas, one class per format: what a registry gets, the name of the record, the encoder of a column.

The driver uses them; a worker does only for topics whose schema the plan does not have. The ``protoc`` of grpcio-tools
compiles .proto text of a registry into a descriptor set in a child process. The text is foreign, so ``protoc`` runs
without plugins, reads only a private folder with the given files and its own ``google/protobuf``, and has limits on its
time, its memory and each file that it writes, its messages among them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pyarrow as pa

from spark_kafka_sink.errors import ConfigError, shown
from spark_kafka_sink.schemas.encoding.avro_schema import AvroSchema, with_imports
from spark_kafka_sink.schemas.encoding.descriptors import (
    descriptor_set_of,
    known_files,
    library,
    message_descriptor,
    message_indexes,
    ordered_files,
)
from spark_kafka_sink.schemas.encoding.encoder import Encoder
from spark_kafka_sink.schemas.encoding.proto_text import proto_files, text_indexes
from spark_kafka_sink.schemas.formats.format_options import ColumnFormat, Format, FormatError
from spark_kafka_sink.schemas.formats.wire_format import PlainEncoder
from spark_kafka_sink.schemas.registry.cache import CachedRegistry
from spark_kafka_sink.schemas.registry.schema import RegisteredSchema, Schema, SchemaReference, SchemaType

_TYPES: Final = {Format.AVRO: SchemaType.AVRO, Format.PROTOBUF: SchemaType.PROTOBUF, Format.JSON: SchemaType.JSON}


class ColumnSchema(ABC):
    """A schema that options give, a column derives or a registry holds."""

    __slots__ = ()

    @property
    @abstractmethod
    def record(self) -> str:
        """The full name of the record or message, or the title of a JSON Schema; "" if it has none."""

    @property
    def message_indexes(self) -> tuple[int, ...]:
        """The message indexes of a Protobuf schema; empty for other formats."""
        return ()

    @abstractmethod
    def encoder(self, kind: pa.DataType, *, for_registry: bool) -> Encoder:
        """Plans the encoder of a column. Raises ``SchemaMismatchError`` if the column does not fit.

        ``for_registry``: whether the values name the schema in a registry.
        """

    @abstractmethod
    def to_register(self, registry: CachedRegistry, *, registers: bool) -> Schema:
        """The schema to send to the registry. Registers its imports first, or looks them up unless ``registers``."""


@dataclass(frozen=True, slots=True)
class AvroColumnSchema(ColumnSchema):
    """Avro JSON without references. ``is_registered``: a registry holds it, so its defaults may be wrong."""

    text: str
    is_registered: bool = False

    @property
    def record(self) -> str:
        schema = AvroSchema.parse(self.text, checks_defaults=False)
        return str(schema.attributes["name"]) if schema.type == "record" else ""

    def encoder(self, kind: pa.DataType, *, for_registry: bool) -> Encoder:
        from spark_kafka_sink.schemas.encoding.avro import plan_avro

        return plan_avro(self.text, kind, for_registry=for_registry, checks_defaults=not self.is_registered)

    def to_register(self, registry: CachedRegistry, *, registers: bool) -> Schema:
        return Schema(SchemaType.AVRO, self.text)


@dataclass(frozen=True, slots=True)
class JsonColumnSchema(ColumnSchema):
    """A JSON Schema. Rows are not compared with it."""

    text: str

    @property
    def record(self) -> str:
        schema = json.loads(self.text)
        return str(schema.get("title") or "") if isinstance(schema, dict) else ""

    def encoder(self, kind: pa.DataType, *, for_registry: bool) -> Encoder:
        return PlainEncoder()

    def to_register(self, registry: CachedRegistry, *, registers: bool) -> Schema:
        return Schema(SchemaType.JSON, self.text)


@dataclass(frozen=True, slots=True)
class ProtobufColumnSchema(ColumnSchema):
    """A message of ``descriptor_set``, which is a serialized FileDescriptorSet.

    ``counts_entries``: whether the message indexes count the entries of maps. As in Java, they do where a registry's
    text writes the entries out (``option map_entry = true``), as Java's own serializers register it.
    """

    descriptor_set: bytes
    message: str
    counts_entries: bool = False

    @property
    def record(self) -> str:
        name: str = message_descriptor(self.descriptor_set, self.message).full_name
        return name

    @property
    def message_indexes(self) -> tuple[int, ...]:
        if not self.counts_entries:
            return text_indexes(self.descriptor_set, self.message)
        return message_indexes(self.descriptor_set, self.message)

    def encoder(self, kind: pa.DataType, *, for_registry: bool) -> Encoder:
        from spark_kafka_sink.schemas.encoding.protobuf import plan_protobuf

        return plan_protobuf(self.descriptor_set, self.message, kind)

    def to_register(self, registry: CachedRegistry, *, registers: bool) -> Schema:
        """The subject of an import is its name, as in Java (``DefaultReferenceSubjectNameStrategy``)."""
        ask = registry.register if registers else registry.lookup
        references: dict[str, SchemaReference] = {}
        *imported, file = proto_files(self.descriptor_set, self.message)
        for each in imported:
            schema = Schema(SchemaType.PROTOBUF, each.text, tuple(references[name] for name in each.imports))
            version = ask(each.name, schema).version
            assert version is not None
            references[each.name] = SchemaReference(each.name, each.name, version)
        return Schema(SchemaType.PROTOBUF, file.text, tuple(references[name] for name in file.imports))


def registered_column_schema(column: ColumnFormat, found: RegisteredSchema, registry: CachedRegistry) -> ColumnSchema:
    """The schema that a registry holds. Raises ``InvalidSchemaError``; ``FormatError`` if its format is another one."""
    schema = found.schema
    if schema.type is not _TYPES[column.format]:
        raise FormatError(
            f"Schema {found.id} of subject {found.subject} is of type {schema.type.value}, but "
            f"{column.option('Format')} is {column.format.value}."
        )
    if column.format is Format.JSON:
        return JsonColumnSchema(schema.text)
    if column.format is Format.AVRO:
        imports = {name: each.text for name, each in registry.imports(schema).items()}
        return AvroColumnSchema(with_imports(schema.text, imports), is_registered=True)
    return _registered_protobuf(column, found, registry)


def _registered_protobuf(column: ColumnFormat, found: RegisteredSchema, registry: CachedRegistry) -> ColumnSchema:
    """The message that the options name, or the first one of the file, as in Java."""
    files, serialized = _descriptor_set(column, found, registry)
    main = ordered_files(files)[-1]
    if column.message is None and not main.message_type:
        raise FormatError(f"Schema {found.id} of subject {found.subject} has no message.")
    message = column.message or f"{main.package}.{main.message_type[0].name}".removeprefix(".")
    what = f"schema {found.id} of subject {found.subject}"
    try:
        descriptor = message_descriptor(files, message)
    except ConfigError as error:
        raise FormatError(f"{column.option('Message')} is looked for in {what}: {error}.") from error
    if descriptor.file.name != main.name and main.message_type:  # Java: a file that only imports stands for the import
        raise FormatError(
            f"{column.option('Message')}: {what} only imports {descriptor.full_name}; give one of its own messages, "
            f"{', '.join(each.name for each in main.message_type)}."
        )
    without_entries = ProtobufColumnSchema(files, message)
    with_entries = replace(without_entries, counts_entries=True)
    if with_entries.message_indexes == without_entries.message_indexes:
        return without_entries
    text = registry.by_id(found.id, found.subject).schema.text if serialized else found.schema.text
    return with_entries if writes_entries_out(text) else without_entries


def _descriptor_set(column: ColumnFormat, found: RegisteredSchema, registry: CachedRegistry) -> tuple[bytes, bool]:
    """The descriptor set of the schema and its imports, and whether the registry serialized it. If not, protoc does."""
    schemas = registry.imports(found.schema, serialized=True)
    imports = {name: each.text for name, each in schemas.items()}
    if all(each.serialized_file() is not None for each in (found.schema, *schemas.values())):
        return descriptor_set_of(found.schema.text, found.subject, imports), True
    what = f"Schema {found.id} of subject {found.subject}"
    if not has_protoc():
        raise FormatError(
            f"{what} is .proto text, because this registry returns no descriptors, and protoc is missing: pip install "
            "grpcio-tools on the driver, and with a column topic on the workers. Or give "
            f"{column.option('DescriptorFile')} and {column.option('Message')} too."
        )
    return compile_proto(found.schema.text, imports, what), False


_TIMEOUT_S: Final = 30
_MAX_MEMORY: Final = 1 << 30  # a schema of 1 MB needs an eighth of it
_MAX_OUTPUT: Final = 16 << 20
_LONGEST_SHOWN: Final = 2000
_COMMAND: Final = f"""
import contextlib, resource, runpy
for name, limit in ("AS", {_MAX_MEMORY}), ("CPU", {_TIMEOUT_S}), ("FSIZE", {_MAX_OUTPUT}), ("CORE", 0):
    with contextlib.suppress(ValueError, OSError):  # the limit is lower already, or the system lacks it
        resource.setrlimit(getattr(resource, f"RLIMIT_{{name}}"), (limit, limit))
runpy.run_module("grpc_tools.protoc", run_name="__main__", alter_sys=True)
"""
"""The child limits itself, because ``preexec_fn`` is not safe in a process with threads."""
_MAP_ENTRY: Final = re.compile(
    r"""//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?|\b(option\s+map_entry\s*=\s*true\s*;)""",
    re.DOTALL,
)
"""Comments and strings are found too, because they may hold the same words; only the option is a group.

Without an end, they go to the end of the text or line: no text takes more time than its length explains."""
_MARK: Final = "_pykafka_map_entry_"
_EDITION: Final = re.compile(r"^[^\S\n]*edition\s*=", re.MULTILINE)
_IMPORTED: Final = re.compile(r"""["']((?:google/type|confluent(?:/type)?)/\w+\.proto)["']""")


def has_protoc() -> bool:
    return find_spec("grpc_tools") is not None


def writes_entries_out(text: str) -> bool:
    """Whether .proto text declares entries of maps as messages. Java's serializers register such text."""
    return any(found[1] for found in _MAP_ENTRY.finditer(text))


def compile_proto(text: str, imports: Mapping[str, str], what: str) -> bytes:
    """The descriptor set of ``text``, whose file comes last. Raises ``FormatError``.

    ``imports``: texts by the names that imports use. ``what``: what errors call the schema.
    """
    return _compiled(text, tuple(imports.items()), what)


@lru_cache(16)  # planned anew for each micro-batch
def _compiled(text: str, imported: tuple[tuple[str, str], ...], what: str) -> bytes:
    imports = dict(imported)
    main = "schema.proto"
    while main in imports:
        main = f"_{main}"
    library = known_files(set(_IMPORTED.findall("\n".join((text, *imports.values())))) - imports.keys())
    with TemporaryDirectory(prefix="spark-kafka-sink-protoc-") as private:
        folder, known, output = Path(private, "files"), Path(private, "known"), Path(private, "output")
        folder.mkdir()
        for name, each in {**imports, main: text}.items():
            _write(folder, name, _marked(each), what)
        known.write_bytes(library)
        arguments = [*([f"--descriptor_set_in={known}"] if library else []), "--include_imports"]
        _run(Path(private), [*arguments, f"--descriptor_set_out={output}", main], what)
        return _with_map_entries(output.read_bytes())


def _marked(text: str) -> str:
    """The text with a mark in each entry of a map that is written out, because protoc refuses ``map_entry``."""
    mark = _MARK if _EDITION.search(text) else f'"{_MARK}"'
    return _MAP_ENTRY.sub(lambda found: f"reserved {mark};" if found[1] else found[0], text)


def _with_map_entries(descriptor_set: bytes) -> bytes:
    """The descriptor set in which each message that has the mark gets the option ``map_entry``."""
    if _MARK.encode() not in descriptor_set:
        return descriptor_set
    files = library().FileDescriptorSet.FromString(descriptor_set)
    messages = [message for file in files.file for message in file.message_type]
    while messages:
        message = messages.pop()
        messages += message.nested_type
        if _MARK in message.reserved_name:
            message.reserved_name.remove(_MARK)
            message.options.map_entry = True
    serialized: bytes = files.SerializeToString()
    return serialized


def _write(folder: Path, name: str, text: str, what: str) -> None:
    parts = name.split("/")
    if not name.isprintable() or "\\" in name or not {"", ".", ".."}.isdisjoint(parts):
        raise FormatError(f"{what} imports {name!a:.200}, which is not a path of a .proto file.")
    path = folder.joinpath(*parts)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise FormatError(f"{what} cannot be compiled: its file {name!a:.200} cannot be written: {reason}.") from error


def _run(private: Path, arguments: list[str], what: str) -> None:
    folder, messages = private / "files", private / "messages"
    # -P: a schema's file is never taken for a module. PYTHONPATH: Spark's files count as for this process.
    command = [sys.executable, "-P", "-c", _COMMAND, f"-I{folder}", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        with messages.open("wb") as file:
            done = subprocess.run(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=file,
                timeout=_TIMEOUT_S,
                check=False,
            )
    except subprocess.TimeoutExpired as error:
        raise FormatError(f"{what} cannot be compiled: protoc did not end within {_TIMEOUT_S} s.") from error
    except OSError as error:
        raise FormatError(f"{what} cannot be compiled: {sys.executable} does not start: {error.strerror}.") from error
    if done.returncode:
        with messages.open("rb") as file:
            said = file.read(_LONGEST_SHOWN).decode(errors="replace").replace(f"{folder}/", "")
        text = shown("; ".join(said.splitlines())) or f"it ended with {done.returncode}"
        raise FormatError(f"{what} cannot be compiled; protoc says: {text}")
