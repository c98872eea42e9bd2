"""The files that schema registries know beside Google's: schemas import them without a reference.

Java: ``ProtobufSchema.CFLT_META_LOCATION``, ``CFLT_DECIMAL_LOCATION``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

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


def confluent_file(name: str) -> FileDescriptorProto | None:
    """None for other names."""
    library = import_module("google.protobuf.descriptor_pb2")
    file: FileDescriptorProto = library.FileDescriptorProto(name=name, syntax="proto3")
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
    """Numbered from 1. ``types``: by name; of messages their full name."""
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
