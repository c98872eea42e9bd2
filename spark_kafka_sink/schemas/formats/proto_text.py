"""The .proto text of a schema registry: printed from descriptors, and compiled into them.

``protoc`` makes the same descriptor of the printed text, except for comments and the order within a message: oneofs
stand behind other fields, and entries of maps (and groups) behind other nested messages. Java's deserializer numbers
nested messages without these entries, the deserializer of confluent-kafka with them. In this order both get the same
numbers.

The text of a registry is foreign, so the ``protoc`` of grpcio-tools compiles it in a child process without plugins. It
reads only a private folder with the given files and its own ``google/protobuf``, and has limits on its time, its memory
and each file that it writes, its messages among them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from spark_kafka_sink.errors import ConfigError, listed, sanitize
from spark_kafka_sink.schemas.encoding.descriptors import (
    DECIMAL,
    META,
    TYPE_NAMES,
    is_map_entry,
    known_files,
    library,
    message_descriptor,
    ordered_files,
    pool_of,
)
from spark_kafka_sink.schemas.encoding.encoder import InvalidSchemaError
from spark_kafka_sink.schemas.formats.format_options import FormatError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.descriptor_pb2 import (
        DescriptorProto,
        EnumDescriptorProto,
        FieldDescriptorProto,
        FileDescriptorProto,
        ServiceDescriptorProto,
    )

_GOOGLE: Final = {
    "type": (
        "calendar_period", "color", "date", "datetime", "dayofweek", "decimal", "expr", "fraction", "interval",
        "latlng", "money", "month", "phone_number", "postal_address", "quaternion", "timeofday",
    ),
    "protobuf": (
        "any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp",
        "type", "wrappers",
    ),
}  # fmt: skip
KNOWN_IMPORTS: Final = frozenset(
    [META, DECIMAL, *(f"google/{folder}/{name}.proto" for folder, names in _GOOGLE.items() for name in names)]
)
"""The files that every registry has (Java: ``ProtobufSchema.knownTypes``), so they are not registered."""

_MAX_FIELD, _MAX_MESSAGE_SET_FIELD, _MAX_ENUM = (1 << 29) - 1, (1 << 31) - 2, (1 << 31) - 1
_LABELS: Final = ("", "optional ", "required ", "repeated ")
_EDITION_2023: Final = 1000
_GROUP, _STRING, _BYTES, _REPEATED = 10, 9, 12, 3


class ProtoFile(NamedTuple):
    """A .proto file. ``name``: the name by which other files import it. ``imports``: the imports that must be
    registered before it."""

    name: str
    text: str
    imports: tuple[str, ...]


def proto_files(descriptor_set: bytes, message: str) -> list[ProtoFile]:
    """The files to register for a message, each behind its imports, without the files that every registry has.

    Raises ``ConfigError`` for a later edition than 2023, because its text has statements that descriptors lack.
    """
    files = {file.name: file for file in ordered_files(descriptor_set)}
    needed = _with_imports(message_descriptor(descriptor_set, message).file.name, files)
    printer = _Printer(pool_of(files.values()))
    return [
        ProtoFile(name, printer.file(file), tuple(each for each in file.dependency if each not in KNOWN_IMPORTS))
        for name, file in files.items()
        if name in needed
    ]


def message_indexes(descriptor_set: bytes, message: str, *, counts_entries: bool) -> tuple[int, ...]:
    """The path to the message within its file: the index at the top, then the index within each message (Java:
    MessageIndexes). For example, the first message nested in the second message of a file is [1, 0].

    ``counts_entries``: whether entries of maps and groups count, which .proto text does not declare as messages.
    """
    return tuple(_indexes(message_descriptor(descriptor_set, message), counts_entries))


def message_number(descriptor_set: bytes, message: str) -> int:
    """The message's place among all messages of its file, entries of maps too, in the order of their full names (AWS's
    ``MessageIndexFinder``). For example, of ``M`` and its nested ``B`` and ``A``, ``M.B`` is 2.

    Raises ``InvalidSchemaError`` for a file that imports others than Protobuf's own, or that Amazon's deserializer
    cannot read, or in which it may take the number for that of another message: its
    ``FileDescriptorUtils.isParentLevelType`` counts a nested message twice if there is no package, or if its name has
    the package a second time, as ``shop.Workshop.Item`` has. As there, the package is a regular expression.
    """
    descriptor = message_descriptor(descriptor_set, message)
    file = descriptor.file
    imported = [each.name for each in file.dependencies if not each.name.startswith("google/protobuf/")]
    if imported:
        raise InvalidSchemaError([f"it imports {listed(imported)}, but this registry takes one file: join them"])
    found = list(file.message_types_by_name.values())
    for each in found:  # grows meanwhile
        found += each.nested_types
    is_edition = library().FileDescriptorProto.FromString(file.serialized_pb).syntax == "editions"
    if is_edition or any(field.type == _GROUP for each in found for field in each.fields):
        raise InvalidSchemaError(["Amazon's deserializer reads no groups and no editions"])
    nested = [each.full_name for each in found if each.containing_type is not None and not is_map_entry(each)]
    if any(not file.package or len(re.split(file.package, name)) > 2 for name in nested):
        raise InvalidSchemaError([
            f"Amazon's deserializer may take {descriptor.full_name} for another message, because it counts nested "
            "ones twice if the file has no package, or one that is part of their names: give it another package"
        ])  # fmt: skip
    return sorted(each.full_name for each in found).index(descriptor.full_name)


def _indexes(descriptor: Descriptor, counts_entries: bool) -> Iterator[int]:
    parent, file = descriptor.containing_type, descriptor.file
    if parent is not None:
        yield from _indexes(parent, counts_entries)
        siblings, fields = parent.nested_types, [*parent.fields, *parent.extensions]
    else:
        siblings, fields = file.message_types_by_name.values(), file.extensions_by_name.values()
    # In editions, a field of this type has message_encoding = DELIMITED, and its message is declared as any other.
    is_edition = library().FileDescriptorProto.FromString(file.serialized_pb).syntax == "editions"
    groups = set() if is_edition else {field.message_type.full_name for field in fields if field.type == _GROUP}
    declared = [each for each in siblings if counts_entries or not (is_map_entry(each) or each.full_name in groups)]
    if descriptor not in declared:
        raise ConfigError([f"{descriptor.full_name} is an entry of a map or a group: give a message"])
    yield declared.index(descriptor)


def _with_imports(name: str, files: dict[str, FileDescriptorProto]) -> set[str]:
    needed, unseen = {name}, [name]
    while unseen:
        imported = {each for each in files[unseen.pop()].dependency if each not in KNOWN_IMPORTS}
        unseen += imported - needed
        needed |= imported
    return needed


class _Printer:
    """Prints descriptors as lines. ``pool`` knows the extensions that are custom options."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._syntax = ""
        self._text_encoding = import_module("google.protobuf.text_encoding")
        self._text_format = import_module("google.protobuf.text_format")

    def file(self, file: FileDescriptorProto) -> str:
        self._syntax = file.syntax or "proto2"
        lines = [f'syntax = "{self._syntax}";']
        if self._syntax == "editions":
            edition = library().Edition.Name(file.edition).removeprefix("EDITION_")
            if file.edition > _EDITION_2023:
                raise ConfigError([
                    f"{file.name} has edition {edition}, whose text cannot be made of a descriptor: use 2023, or "
                    "register the text yourself, with auto.register.schemas=false and use.latest.version=true"
                ])  # fmt: skip
            lines = [f'edition = "{edition}";']
        if file.package:
            lines.append(f"package {file.package};")
        publics, weak = set(file.public_dependency), set(file.weak_dependency)
        for index, name in enumerate(file.dependency):
            public = "public " * (index in publics) + "weak " * (index in weak)
            lines.append(f"import {public}{self._quote(name)};")
        lines += self._option_lines(file.options)
        lines += self._types(file.message_type, file.enum_type, file.extension, f".{file.package}".rstrip("."))
        for service in file.service:
            lines += self._service(service)
        return "\n".join(lines) + "\n"

    def _types(
        self,
        messages: Iterable[DescriptorProto],
        enums: Iterable[EnumDescriptorProto],
        extensions: Iterable[FieldDescriptorProto],
        scope: str,
        groups: Iterable[str] = (),
    ) -> list[str]:
        """The lines of what a file or a message declares, without its fields. ``groups``: the types that its fields
        declare."""
        named = {f"{scope}.{message.name}": message for message in messages}
        declared = {*groups, *(extension.type_name for extension in extensions if extension.type == _GROUP)}
        lines: list[str] = []
        for name, message in named.items():
            if name not in declared and not message.options.map_entry:
                body = _indent(self._message_body(message, name))
                lines += [f"message {message.name} {{", *body, "}"]
        for enum in enums:
            lines += self._enum(enum)
        for extension in extensions:
            lines += [f"extend {extension.extendee} {{", *_indent(self._field(extension, named)), "}"]
        return lines

    def _message_body(self, message: DescriptorProto, name: str) -> list[str]:
        groups = [field.type_name for field in message.field if field.type == _GROUP]
        lines = self._option_lines(message.options)
        lines += self._types(message.nested_type, message.enum_type, message.extension, name, groups)
        largest = _MAX_MESSAGE_SET_FIELD if message.options.message_set_wire_format else _MAX_FIELD
        for extensions in message.extension_range:
            numbers = _range(extensions.start, extensions.end - 1, largest)
            lines.append(f"extensions {numbers}{self._write_options(extensions.options)};")
        lines += self._write_reserved(
            [_range(reserved.start, reserved.end - 1, largest) for reserved in message.reserved_range],
            message.reserved_name,
        )
        return lines + self._fields(message, {f"{name}.{nested.name}": nested for nested in message.nested_type})

    def _fields(self, message: DescriptorProto, nested: Mapping[str, DescriptorProto]) -> list[str]:
        lines: list[str] = []
        members: dict[int, list[str]] = {}
        for field in message.field:
            if not field.HasField("oneof_index") or field.proto3_optional:
                lines += self._field(field, nested)
            else:
                members.setdefault(field.oneof_index, []).extend(self._field(field, nested, in_oneof=True))
        for index, printed in members.items():
            oneof = message.oneof_decl[index]
            lines += [f"oneof {oneof.name} {{", *_indent([*self._option_lines(oneof.options), *printed]), "}"]
        return lines

    def _field(
        self, field: FieldDescriptorProto, nested: Mapping[str, DescriptorProto], in_oneof: bool = False
    ) -> list[str]:
        """The line of a field. ``nested``: the messages that the field may declare."""
        label = "" if in_oneof else self._label(field)
        kind = field.type_name or TYPE_NAMES[field.type]
        declared = nested.get(field.type_name)
        if declared is not None and declared.options.map_entry:
            key, value = declared.field
            label = ""
            kind = f"map<{TYPE_NAMES[key.type]}, {value.type_name or TYPE_NAMES[value.type]}>"
        options = [*self._specials(field), *self._options(field.options)]
        bracketed = f" [{', '.join(options)}]" if options else ""
        if declared is None or field.type != _GROUP:
            return [f"{label}{kind} {field.name} = {field.number}{bracketed};"]
        body = _indent(self._message_body(declared, field.type_name))
        return [f"{label}group {declared.name} = {field.number}{bracketed} {{", *body, "}"]

    def _label(self, field: FieldDescriptorProto) -> str:
        if self._syntax == "proto2" or field.proto3_optional or field.label == _REPEATED:
            return _LABELS[field.label]
        return ""

    def _specials(self, field: FieldDescriptorProto) -> Iterator[str]:
        """The default and the JSON name: .proto text writes them as options, but FieldOptions has no such fields."""
        if field.HasField("default_value"):
            value = field.default_value
            if field.type == _STRING:
                value = self._quote(value)
            elif field.type == _BYTES:
                value = f'"{value}"'
            yield f"default = {value}"
        if field.json_name and field.json_name != _json_name(field.name):
            yield f"json_name = {self._quote(field.json_name)}"

    def _enum(self, enum: EnumDescriptorProto) -> list[str]:
        body = self._option_lines(enum.options)
        for value in enum.value:
            body.append(f"{value.name} = {value.number}{self._write_options(value.options)};")
        body += self._write_reserved(
            [_range(reserved.start, reserved.end, _MAX_ENUM) for reserved in enum.reserved_range], enum.reserved_name
        )
        return [f"enum {enum.name} {{", *_indent(body), "}"]

    def _service(self, service: ServiceDescriptorProto) -> list[str]:
        body = self._option_lines(service.options)
        for method in service.method:
            given = "stream " * method.client_streaming + method.input_type
            returned = "stream " * method.server_streaming + method.output_type
            options = _indent(self._option_lines(method.options))
            body += [f"rpc {method.name} ({given}) returns ({returned})", *(["{", *options, "}"] if options else [";"])]
        return [f"service {service.name} {{", *_indent(body), "}"]

    def _write_reserved(self, ranges: list[str], names: Iterable[str]) -> list[str]:
        lines = [f"reserved {', '.join(ranges)};"] if ranges else []
        quoted = [name if self._syntax == "editions" else self._quote(name) for name in names]
        return [*lines, f"reserved {', '.join(quoted)};"] if quoted else lines

    def _option_lines(self, options: Any) -> list[str]:
        return [f"option {option};" for option in self._options(options)]

    def _write_options(self, options: Any) -> str:
        printed = list(self._options(options))
        return f" [{', '.join(printed)}]" if printed else ""

    def _options(self, options: Any) -> Iterator[str]:
        name = options.DESCRIPTOR.full_name
        try:
            known = self._pool.FindMessageTypeByName(name)
        except KeyError:
            known = None  # without descriptor.proto there are no custom options
        if known is not None:
            kind = import_module("google.protobuf.message_factory").GetMessageClass(known)
            options = kind.FromString(options.SerializeToString())
        for field, value in options.ListFields():
            label = f"({field.full_name})" if field.is_extension else field.name
            if label == "map_entry":
                continue
            is_list = not isinstance(value, str | bytes) and hasattr(value, "__len__")
            for each in value if is_list else [value]:
                yield f"{label} = {self._value(field, each)}"

    def _value(self, field: FieldDescriptor, value: Any) -> str:
        if field.message_type is not None:
            return f"{{ {self._text_format.MessageToString(value, as_one_line=True)} }}"
        if field.enum_type is not None:
            return str(field.enum_type.values_by_number[value].name)
        if isinstance(value, bool):
            return str(value).lower()
        return self._quote(value) if isinstance(value, str | bytes) else str(value)

    def _quote(self, value: str | bytes) -> str:
        return f'"{self._text_encoding.CEscape(value.encode() if isinstance(value, str) else value, as_utf8=False)}"'


def _range(first: int, last: int, largest: int) -> str:
    if first == last:
        return str(first)
    return f"{first} to {'max' if last >= largest else last}"


def _json_name(name: str) -> str:
    """The JSON name that ``protoc`` gives a field unless the file has another one."""
    first, *others = name.split("_")
    return first + "".join(other[:1].upper() + other[1:] for other in others)


def _indent(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]


_TIMEOUT_S: Final = 30
_MAX_MEMORY: Final = 1 << 30  # a schema of 1 MB needs an eighth of it
_MAX_OUTPUT: Final = 16 << 20
_MAX_SHOWN_BYTES: Final = 2000
_COMMAND: Final = f"""
import contextlib, resource, runpy
for name, limit in ("AS", {_MAX_MEMORY}), ("CPU", {_TIMEOUT_S}), ("FSIZE", {_MAX_OUTPUT}), ("CORE", 0):
    with contextlib.suppress(ValueError, OSError):  # the limit is lower already, or the system lacks it
        resource.setrlimit(getattr(resource, f"RLIMIT_{{name}}"), (limit, limit))
runpy.run_module("grpc_tools.protoc", run_name="__main__", alter_sys=True)
"""
"""The child's program. It limits itself, because ``preexec_fn`` is not safe in a process with threads."""
_MAP_ENTRY: Final = re.compile(
    r"""//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?|\b(option\s+map_entry\s*=\s*true\s*;)""",
    re.DOTALL,
)
"""The option ``map_entry``, which is the group. Comments and strings are found, too, because they may have the same
words.

A comment or string without an end extends to the end of the text or line, so the time is linear in the length of the
text."""
_MARK: Final = "_pykafka_map_entry_"
_EDITION: Final = re.compile(r"^[^\S\n]*edition\s*=", re.MULTILINE)
_IMPORTED: Final = re.compile(r"""["']((?:google/type|confluent(?:/type)?)/\w+\.proto)["']""")


def writes_entries_out(text: str) -> bool:
    """Whether .proto text declares entries of maps as messages. Java's serializers register such text."""
    return any(found[1] for found in _MAP_ENTRY.finditer(text))


@lru_cache(16)  # planned again for each micro-batch
def compile_proto(text: str, imported: tuple[tuple[str, str], ...], what: str) -> bytes:
    """The descriptor set of ``text``, whose file comes last. Raises ``FormatError``.

    ``imported``: the name that imports use, and the text, of each file. ``what``: the name of the schema in errors.
    """
    imports = dict(imported)
    main = "schema.proto"
    while main in imports:
        main = f"_{main}"
    library = known_files(set(_IMPORTED.findall("\n".join((text, *imports.values())))) - imports.keys())
    with TemporaryDirectory(prefix="spark-kafka-sink-protoc-") as private:
        folder, known, output = Path(private, "files"), Path(private, "known"), Path(private, "output")
        folder.mkdir()
        for name, each in {**imports, main: text}.items():
            _write(folder, name, _mark_map_entries(each), what)
        known.write_bytes(library)
        arguments = [*([f"--descriptor_set_in={known}"] if library else []), "--include_imports"]
        _run(Path(private), [*arguments, f"--descriptor_set_out={output}", main], what)
        return _with_map_entries(output.read_bytes())


def _mark_map_entries(text: str) -> str:
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
            said = file.read(_MAX_SHOWN_BYTES).decode(errors="replace").replace(f"{folder}/", "")
        text = sanitize("; ".join(said.splitlines())) or f"it ended with {done.returncode}"
        raise FormatError(f"{what} cannot be compiled; protoc says: {text}")
