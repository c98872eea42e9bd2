"""Protobuf descriptors by the ``protobuf`` library. For the driver: workers have plans.

A *descriptor set* is a serialized ``FileDescriptorSet``, as ``protoc --include_imports --descriptor_set_out`` writes it
and Spark's ``to_protobuf`` takes it. It may lack the files of ``google/protobuf``, which the library has, and those of
``confluent``, which registries know.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.encoding.confluent_files import confluent_file
from spark_kafka_sink.errors import ConfigError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import Message

_LIBRARIES: Final = ("google/protobuf/", "google/type/")


def message_descriptor(descriptor_set: bytes, message: str) -> Descriptor:
    """The message of this full name; or of this name, if only one file has it at its top (as in Spark's functions)."""
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
    """The way to the message within its file: the index at the top, then of each nested one (Java: MessageIndexes)."""
    descriptor = message_descriptor(descriptor_set, message)
    indexes: list[int] = []
    while descriptor.containing_type is not None:
        indexes.append(list(descriptor.containing_type.nested_types).index(descriptor))
        descriptor = descriptor.containing_type
    top = list(descriptor.file.message_types_by_name).index(descriptor.name)
    return (top, *reversed(indexes))


def descriptor_set_of(file: str, name: str = "default.proto", imports: Mapping[str, str] | None = None) -> bytes:
    """The descriptor set of what a registry answers to ``format=serialized``.

    ``file``: a base64 ``FileDescriptorProto``; ``imports``: the same of its references, by the names that imports use.
    The schema's own name in the registry is not known: ``name`` is used if the file has none.
    """
    files = library().FileDescriptorSet()
    for at, text in (*(imports or {}).items(), (None, file)):
        parsed = files.file.add()
        try:
            parsed.ParseFromString(base64.b64decode(text, validate=True))
        except (binascii.Error, ValueError, _decode_error()) as error:
            raise ConfigError(
                [f"{at or 'the schema'} is not a serialized Protobuf file (format=serialized): {error}"]
            ) from error
        if at is not None:
            parsed.name = at  # a registry may have given it another one
        elif not parsed.name or parsed.name in (imports or {}):
            parsed.name = name
    data: bytes = files.SerializeToString(deterministic=True)
    ordered_files(data)
    return data


def ordered_files(descriptor_set: bytes) -> list[FileDescriptorProto]:
    """The files, each behind those that it imports; with the known ones that the set lacks."""
    descriptor_pb2 = library()
    try:
        files: FileDescriptorSet = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set)
    except _decode_error() as error:
        raise ConfigError(
            ["not a Protobuf descriptor set: make it with protoc --include_imports --descriptor_set_out"]
        ) from error
    by_name = {each.name: each for each in files.file}
    ordered: dict[str, FileDescriptorProto] = {}
    for each in by_name.values():
        for file in _behind_imports(each, by_name, ()):
            ordered.setdefault(file.name, file)
    return list(ordered.values())


def known_files(names: Iterable[str]) -> bytes:
    """The descriptor set of those of the files that are known here, with their imports; empty if none is."""
    descriptor_pb2 = library()
    found = descriptor_pb2.FileDescriptorSet(file=filter(None, map(_known_file, names)))
    files = descriptor_pb2.FileDescriptorSet(file=ordered_files(found.SerializeToString()))
    data: bytes = files.SerializeToString(deterministic=True)
    return data


def library() -> ModuleType:
    """The module ``descriptor_pb2``."""
    try:
        return import_module("google.protobuf.descriptor_pb2")
    except ImportError:
        raise ConfigError(
            ["Protobuf needs the package protobuf on the driver: pip install 'spark-kafka-sink[protobuf]'"]
        ) from None


def _behind_imports(
    file: FileDescriptorProto, files: Mapping[str, FileDescriptorProto], importers: tuple[str, ...]
) -> Iterator[FileDescriptorProto]:
    if file.name in importers:
        raise ConfigError([f"the descriptor set has files that import each other: {', '.join(importers)}"])
    for name in file.dependency:
        imported = files.get(name) or _known_file(name)
        if imported is None:
            raise ConfigError(
                [f"the descriptor set lacks {name}, which {file.name} imports (protoc --include_imports adds it)"]
            )
        yield from _behind_imports(imported, files, (*importers, file.name))
    yield file


def _known_file(name: str) -> FileDescriptorProto | None:
    if not name.startswith(_LIBRARIES):
        return confluent_file(name)
    try:
        module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    except ImportError:
        return None
    file: FileDescriptorProto = library().FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    return file


def is_map_entry(descriptor: Descriptor) -> bool:
    """The message that a map field consists of."""
    return bool(descriptor.GetOptions().map_entry)


def pool_of(files: Iterable[FileDescriptorProto]) -> DescriptorPool:
    pool = import_module("google.protobuf.descriptor_pool").DescriptorPool()
    for each in files:
        try:
            pool.Add(each)
            pool.FindFileByName(each.name)
        except (TypeError, KeyError) as error:
            raise ConfigError([f"{each.name} of the descriptor set is not valid: {error}"]) from error
    return pool


def _decode_error() -> type[Exception]:
    error: type[Exception] = import_module("google.protobuf.message").DecodeError
    return error


def descriptor_set_with(descriptor: Descriptor) -> bytes:
    """A descriptor set with the file of a generated class' message and all that it imports."""
    files: dict[str, bytes] = {}

    def visit(file: FileDescriptor) -> None:
        if file.name not in files:
            for each in file.dependencies:
                visit(each)
            files[file.name] = file.serialized_pb

    visit(descriptor.file)
    whole = library().FileDescriptorSet()
    for data in files.values():
        whole.file.add().ParseFromString(data)
    serialized: bytes = whole.SerializeToString(deterministic=True)
    return serialized


def message_class(descriptor_set: bytes, message: str) -> type[Message]:
    """A class of the message, as protoc generates it."""
    made: type[Message] = import_module("google.protobuf.message_factory").GetMessageClass(
        message_descriptor(descriptor_set, message)
    )
    return made


def differing_fields(descriptor: Descriptor, other: Descriptor) -> list[str]:
    """The fields of a message that a reader of ``other`` would not read as they are, as ``address.city``."""
    if descriptor is other:
        return []
    differing: list[str] = []
    seen: set[str] = set()

    def visit(one: Descriptor, two: Descriptor, path: str) -> None:
        if one.full_name in seen:
            return
        seen.add(one.full_name)
        for field in one.fields:
            same = two.fields_by_number.get(field.number)
            here = f"{path}{field.name}"
            if same is None or _shape_of(field) != _shape_of(same):
                differing.append(here)
            elif field.message_type is not None:
                visit(field.message_type, same.message_type, f"{here}.")

    if descriptor.full_name != other.full_name:
        return [f"its name, {other.full_name}"]
    visit(descriptor, other, "")
    return differing


def _shape_of(field: FieldDescriptor) -> tuple[object, ...]:
    enum = field.enum_type
    values = None if enum is None else frozenset((each.name, each.number) for each in enum.values)
    return field.name, field.type, is_repeated(field), values


def is_repeated(field: FieldDescriptor) -> bool:
    if hasattr(field, "is_repeated"):  # not in protobuf 5; later ones warn for ``label``
        return bool(field.is_repeated)
    return bool(field.label == field.LABEL_REPEATED)
