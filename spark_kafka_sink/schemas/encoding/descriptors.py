"""Protobuf descriptors, read by the ``protobuf`` library. For the driver, because workers get plans.

A *descriptor set* is a serialized ``FileDescriptorSet``, as ``protoc --include_imports --descriptor_set_out`` writes it
and Spark's ``to_protobuf`` takes it. It may lack the files of ``google/protobuf``, which the library has, and the files
of ``confluent``, which registries know.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.errors import ConfigError, listed

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool


TYPE_NAMES: Final = (
    "", "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group", "message",
    "bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64",
)  # fmt: skip
"""The names of types, by the numbers of ``FieldDescriptorProto.Type``."""

_OF_LIBRARIES: Final = re.compile(r"google/(?:protobuf|type)/(?:\w+/)*\w+\.proto", re.ASCII)
"""The names of files that are imported as modules of Google's packages. No other text of a registry may become a module
name."""

META: Final = "confluent/meta.proto"
DECIMAL: Final = "confluent/type/decimal.proto"

_MESSAGE: Final = "label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name"
_TEXT: Final = "label: LABEL_OPTIONAL type: TYPE_STRING"
_CONFLUENT: Final = {
    DECIMAL: """
        package: "confluent.type"
        message_type {
          name: "Decimal"
          field { name: "value" number: 1 label: LABEL_OPTIONAL type: TYPE_BYTES }
          field { name: "precision" number: 2 label: LABEL_OPTIONAL type: TYPE_UINT32 }
          field { name: "scale" number: 3 label: LABEL_OPTIONAL type: TYPE_INT32 }
        }""",
    META: f"""
        package: "confluent" dependency: "google/protobuf/descriptor.proto"
        message_type {{
          name: "Meta"
          field {{ name: "doc" number: 1 {_TEXT} }}
          field {{
            name: "params" number: 2 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".confluent.Meta.ParamsEntry"
          }}
          field {{ name: "tags" number: 3 label: LABEL_REPEATED type: TYPE_STRING }}
          field {{ name: "rules" number: 4 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".confluent.Rule" }}
          nested_type {{
            name: "ParamsEntry" field {{ name: "key" number: 1 {_TEXT} }} field {{ name: "value" number: 2 {_TEXT} }}
            options {{ map_entry: true }}
          }}
        }}
        message_type {{
          name: "Rule" field {{ name: "name" number: 1 {_TEXT} }} field {{ name: "doc" number: 2 {_TEXT} }}
          field {{ name: "expr" number: 3 {_TEXT} }} field {{ name: "sql" number: 4 {_TEXT} }}
        }}""" + "".join(
        f"""
        extension {{
          name: "{name}_meta" number: 1088 extendee: ".google.protobuf.{options}" {_MESSAGE}: ".confluent.Meta"
        }}"""
        for name, options in (
            ("file", "FileOptions"), ("message", "MessageOptions"), ("field", "FieldOptions"), ("enum", "EnumOptions"),
            ("enum_value", "EnumValueOptions"),
        )
    ),
}  # fmt: skip
"""The files that registries know besides Google's, so schemas import them without a reference.

Java: ``ProtobufSchema.CFLT_META_LOCATION``, ``CFLT_DECIMAL_LOCATION``.
"""


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
        raise ConfigError([f"{message} is the name of {listed(named)}: give the full name"])
    own = reversed(files)  # known files come first
    there = [f"{file.package}.{message.name}".removeprefix(".") for file in own for message in file.message_type]
    raise ConfigError([f"the descriptor set has no message {message}; it has {listed(there) or 'none'}"])


def descriptor_set_of(file: str, name: str = "default.proto", imports: Mapping[str, str] | None = None) -> bytes:
    """A descriptor set made of a registry's responses to ``format=serialized``.

    ``file``: a base64 ``FileDescriptorProto``. ``imports``: the files of its references, by the names that imports use.
    ``name``: the name for a file without one, because the schema's own name in the registry is not known.
    """
    files = library().FileDescriptorSet()
    for at, text in (*(imports or {}).items(), (None, file)):
        parsed = files.file.add()
        try:
            parsed.ParseFromString(base64.b64decode(text, validate=True))
        except (binascii.Error, ValueError, import_module("google.protobuf.message").DecodeError) as error:
            raise ConfigError(
                [f"{at or 'the schema'} is not a serialized Protobuf file (format=serialized): {error}"]
            ) from None
        if at is not None:
            parsed.name = at  # a registry may have given it another name
        elif not parsed.name or parsed.name in (imports or {}):
            parsed.name = name
    data: bytes = files.SerializeToString(deterministic=True)
    ordered_files(data)
    return data


def ordered_files(descriptor_set: bytes) -> list[FileDescriptorProto]:
    """The files of the set and the known files that it lacks, each behind the files that it imports."""
    descriptor_pb2 = library()
    try:
        files: FileDescriptorSet = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set)
    except (import_module("google.protobuf.message").DecodeError, TypeError):
        raise ConfigError(
            ["not a Protobuf descriptor set: make it with protoc --include_imports --descriptor_set_out"]
        ) from None
    if not all(isinstance(name, str) for file in files.file for name in (file.name, *file.dependency)):
        raise ConfigError(["the descriptor set has a file or an import whose name is not UTF-8"])  # bytes then
    by_name = {file.name: file for file in files.file}
    ordered: dict[str, FileDescriptorProto] = {}
    for each in by_name.values():
        _visit(each, by_name, ordered)
    return list(ordered.values())


def known_files(names: Iterable[str]) -> bytes:
    """A descriptor set of the files that are known here, with their imports; empty if none is known."""
    descriptor_pb2 = library()
    found = descriptor_pb2.FileDescriptorSet(file=filter(None, map(known_file, names)))
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
    """Adds the file to ``ordered`` behind its imports. Each file is visited once, even if many files import it."""
    if file.name in importers:
        raise ConfigError([f"the descriptor set has files that import each other: {listed(importers)}"])
    if file.name in ordered:
        return
    for name in file.dependency:
        imported = ordered.get(name) or files.get(name) or known_file(name)
        if imported is None:
            raise ConfigError(
                [f"the descriptor set lacks {name}, which {file.name} imports (protoc --include_imports adds it)"]
            )
        _visit(imported, files, ordered, (*importers, file.name))
    ordered[file.name] = file


def known_file(name: str) -> FileDescriptorProto | None:
    if name in _CONFLUENT:
        made: FileDescriptorProto = import_module("google.protobuf.text_format").Parse(
            _CONFLUENT[name], library().FileDescriptorProto(name=name, syntax="proto3")
        )
        return made
    if not _OF_LIBRARIES.fullmatch(name):
        return None
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
    for file in files:
        try:
            pool.Add(file)
            pool.FindFileByName(file.name)
        except (TypeError, KeyError) as error:
            raise ConfigError([f"{file.name} of the descriptor set is not valid: {error}"]) from None
    return pool


def is_repeated(field: FieldDescriptor) -> bool:
    if hasattr(field, "is_repeated"):  # not in protobuf 5; later ones warn for ``label``
        return bool(field.is_repeated)
    return bool(field.label == field.LABEL_REPEATED)
