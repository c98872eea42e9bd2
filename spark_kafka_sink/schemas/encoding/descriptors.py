"""Protobuf descriptors, read by the ``protobuf`` library. For the driver, because workers get plans.

A *descriptor set* is a serialized ``FileDescriptorSet``, as ``protoc --include_imports --descriptor_set_out`` writes it
and Spark's ``to_protobuf`` takes it. It may lack the files of ``google/protobuf``, which the library has, and those of
``confluent``, which registries know.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.errors import ConfigError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool


TYPE_NAMES: Final = (
    "", "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group", "message",
    "bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64",
)  # fmt: skip
"""By the numbers of ``FieldDescriptorProto.Type``."""

_OF_LIBRARIES: Final = re.compile(r"google/(?:protobuf|type)/(?:\w+/)*\w+\.proto", re.ASCII)
"""Such a name is imported as a module, so no other text of a registry may become one."""

META: Final = "confluent/meta.proto"
DECIMAL: Final = "confluent/type/decimal.proto"

_OPTION_NUMBER: Final = 1088
_EXTENDED: Final = {
    "file_meta": "FileOptions",
    "message_meta": "MessageOptions",
    "field_meta": "FieldOptions",
    "enum_meta": "EnumOptions",
    "enum_value_meta": "EnumValueOptions",
}


def message_descriptor(descriptor_set: bytes, message: str) -> Descriptor:
    """The message with this full name, or with this name if only one file has it at its top (as in Spark)."""
    files = ordered_files(descriptor_set)
    pool = pool_of(files)
    try:
        return pool.FindMessageTypeByName(message.removeprefix("."))
    except KeyError:
        pass
    named = [
        f"{file.package}.{each.name}".removeprefix(".")
        for file in files
        for each in file.message_type
        if each.name == message
    ]
    if len(named) == 1:
        return pool.FindMessageTypeByName(named[0])
    if named:
        raise ConfigError([f"{message} is the name of {' and '.join(named)}: give the full name"])
    there = [f"{file.package}.{each.name}".removeprefix(".") for file in files for each in file.message_type]
    raise ConfigError([f"the descriptor set has no message {message}; it has {', '.join(there) or 'none'}"])


def message_indexes(descriptor_set: bytes, message: str) -> tuple[int, ...]:
    """The path to the message within its file: its index at the top, then in each nested one (Java: MessageIndexes)."""
    descriptor = message_descriptor(descriptor_set, message)
    indexes: list[int] = []
    while descriptor.containing_type is not None:
        indexes.append(list(descriptor.containing_type.nested_types).index(descriptor))
        descriptor = descriptor.containing_type
    top = list(descriptor.file.message_types_by_name).index(descriptor.name)
    return (top, *reversed(indexes))


def descriptor_set_of(file: str, name: str = "default.proto", imports: Mapping[str, str] | None = None) -> bytes:
    """A descriptor set made of a registry's responses to ``format=serialized``.

    ``file``: a base64 ``FileDescriptorProto``. ``imports``: those of its references, by the names that imports use.
    ``name``: the name for a file without one, because the schema's own name in the registry is not known.
    """
    files = library().FileDescriptorSet()
    for at, text in (*(imports or {}).items(), (None, file)):
        parsed = files.file.add()
        try:
            parsed.ParseFromString(base64.b64decode(text, validate=True))
        except (binascii.Error, ValueError, _decode_error()) as error:
            raise ConfigError(
                [f"{at or 'the schema'} is not a serialized Protobuf file (format=serialized): {error}"]
            ) from None
        if at is not None:
            parsed.name = at  # a registry may have given it another one
        elif not parsed.name or parsed.name in (imports or {}):
            parsed.name = name
    data: bytes = files.SerializeToString(deterministic=True)
    ordered_files(data)
    return data


def ordered_files(descriptor_set: bytes) -> list[FileDescriptorProto]:
    """The files of the set and the known files that it lacks, each behind those that it imports."""
    descriptor_pb2 = library()
    try:
        files: FileDescriptorSet = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set)
    except (_decode_error(), TypeError):
        raise ConfigError(
            ["not a Protobuf descriptor set: make it with protoc --include_imports --descriptor_set_out"]
        ) from None
    if not all(isinstance(name, str) for each in files.file for name in (each.name, *each.dependency)):
        raise ConfigError(["the descriptor set has a file or an import whose name is not UTF-8"])  # bytes then
    by_name = {each.name: each for each in files.file}
    ordered: dict[str, FileDescriptorProto] = {}
    for each in by_name.values():
        _visit(each, by_name, ordered)
    return list(ordered.values())


def known_files(names: Iterable[str]) -> bytes:
    """A descriptor set of those files that are known here, with their imports; empty if none is known."""
    descriptor_pb2 = library()
    found = descriptor_pb2.FileDescriptorSet(file=filter(None, map(_known_file, names)))
    files = descriptor_pb2.FileDescriptorSet(file=ordered_files(found.SerializeToString()))
    data: bytes = files.SerializeToString(deterministic=True)
    return data


def library() -> ModuleType:
    """The module ``descriptor_pb2``. Raises ``ConfigError`` without the package ``protobuf``."""
    try:
        return import_module("google.protobuf.descriptor_pb2")
    except ImportError:
        raise ConfigError(["Protobuf needs the package protobuf on the driver: pip install protobuf"]) from None


def _visit(
    file: FileDescriptorProto,
    files: Mapping[str, FileDescriptorProto],
    ordered: dict[str, FileDescriptorProto],
    importers: tuple[str, ...] = (),
) -> None:
    """Adds the file to ``ordered`` behind what it imports. Each file is visited once, however many import it."""
    if file.name in importers:
        raise ConfigError([f"the descriptor set has files that import each other: {', '.join(importers)}"])
    if file.name in ordered:
        return
    for name in file.dependency:
        imported = ordered.get(name) or files.get(name) or _known_file(name)
        if imported is None:
            raise ConfigError(
                [f"the descriptor set lacks {name}, which {file.name} imports (protoc --include_imports adds it)"]
            )
        _visit(imported, files, ordered, (*importers, file.name))
    ordered[file.name] = file


def _known_file(name: str) -> FileDescriptorProto | None:
    if not _OF_LIBRARIES.fullmatch(name):
        return confluent_file(name)
    try:
        module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    except ImportError:
        return None
    file: FileDescriptorProto = library().FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    return file


def is_map_entry(descriptor: Descriptor) -> bool:
    """Whether the message is the entry that a map field consists of."""
    return bool(descriptor.GetOptions().map_entry)


def pool_of(files: Iterable[FileDescriptorProto]) -> DescriptorPool:
    pool = import_module("google.protobuf.descriptor_pool").DescriptorPool()
    for each in files:
        try:
            pool.Add(each)
            pool.FindFileByName(each.name)
        except (TypeError, KeyError) as error:
            raise ConfigError([f"{each.name} of the descriptor set is not valid: {error}"]) from None
    return pool


def _decode_error() -> type[Exception]:
    error: type[Exception] = import_module("google.protobuf.message").DecodeError
    return error


def is_repeated(field: FieldDescriptor) -> bool:
    if hasattr(field, "is_repeated"):  # not in protobuf 5; later ones warn for ``label``
        return bool(field.is_repeated)
    return bool(field.label == field.LABEL_REPEATED)


def confluent_file(name: str) -> FileDescriptorProto | None:
    """A file that registries know besides those of Google, so schemas import it without a reference; else None.

    Java: ``ProtobufSchema.CFLT_META_LOCATION``, ``CFLT_DECIMAL_LOCATION``.
    """
    file: FileDescriptorProto = library().FileDescriptorProto(name=name, syntax="proto3")
    if name == DECIMAL:
        file.package = "confluent.type"
        _add_fields(file.message_type.add(name="Decimal"), {"value": "BYTES", "precision": "UINT32", "scale": "INT32"})
        return file
    if name != META:
        return None
    file.package = "confluent"
    file.dependency.append("google/protobuf/descriptor.proto")
    meta = file.message_type.add(name="Meta")
    _add_fields(
        meta,
        {"doc": "STRING", "params": ".confluent.Meta.ParamsEntry", "tags": "STRING", "rules": ".confluent.Rule"},
        repeated=("params", "tags", "rules"),
    )
    entry = meta.nested_type.add(name="ParamsEntry")
    _add_fields(entry, {"key": "STRING", "value": "STRING"})
    entry.options.map_entry = True
    _add_fields(file.message_type.add(name="Rule"), dict.fromkeys(("name", "doc", "expr", "sql"), "STRING"))
    for option, extended in _EXTENDED.items():
        file.extension.add(
            name=option,
            number=_OPTION_NUMBER,
            extendee=f".google.protobuf.{extended}",
            label="LABEL_OPTIONAL",
            type="TYPE_MESSAGE",
            type_name=".confluent.Meta",
        )
    return file


def _add_fields(message: DescriptorProto, types: dict[str, str], repeated: tuple[str, ...] = ()) -> None:
    """Adds fields, numbered from 1. ``types``: the type of each field by name; a message's is its full name."""
    for number, (name, kind) in enumerate(types.items(), 1):
        is_message = kind.startswith(".")
        field = message.field.add(
            name=name,
            number=number,
            label="LABEL_REPEATED" if name in repeated else "LABEL_OPTIONAL",
            type="TYPE_MESSAGE" if is_message else f"TYPE_{kind}",
        )
        if is_message:
            field.type_name = kind
