"""Protobuf encoding of an Arrow column, all rows at once.

A descriptor and an Arrow type become a plan, or a list of all mismatches between them. The parts of a plan, which write
the fields, are in ``protobuf_fields.py``.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from spark_kafka_sink.errors import sanitize
from spark_kafka_sink.records.arrays import bytes_column, int32_array, is_any_list
from spark_kafka_sink.records.varints import encode_unsigned_varint
from spark_kafka_sink.schemas.encoding import protobuf_fields as parts
from spark_kafka_sink.schemas.encoding.columns import KernelEncoder, plain_type, type_name
from spark_kafka_sink.schemas.encoding.descriptors import TYPE_NAMES, is_map_entry, is_repeated, message_descriptor
from spark_kafka_sink.schemas.encoding.encoder import Kernel, SchemaMismatchError, column_of
from spark_kafka_sink.schemas.encoding.protobuf_fields import FieldType
from spark_kafka_sink.schemas.encoding.runs import PlannedField, SingleField, with_runs

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor


def plan_protobuf(descriptor_set: bytes, message: str, kind: pa.DataType) -> KernelEncoder:
    """Plans an encoder of structs as a Protobuf message. A field of the struct becomes the message's field of the same
    name.

    ``descriptor_set``: a serialized FileDescriptorSet, as Spark's ``to_protobuf`` takes it. Needs the package
    ``protobuf``; the encoder does not. Raises ``SchemaMismatchError`` with all mismatches, and ``ConfigError`` for the
    descriptor set.
    """
    descriptor, plain = message_descriptor(descriptor_set, message), plain_type(kind)
    if not pt.is_struct(plain):
        raise SchemaMismatchError(
            [f"column type {type_name(plain)} does not fit message {_name(descriptor)}: give a struct"]
        )
    planner = _Planner()
    root = planner.message(descriptor, plain, "")
    if planner.mismatches:
        raise SchemaMismatchError(planner.mismatches)
    return KernelEncoder(kind, root)


def encode_protobuf(
    array: pa.Array | pa.ChunkedArray | pa.Table | pa.RecordBatch, descriptor_set: bytes, message: str
) -> pa.BinaryArray:
    """Each struct as a Protobuf message; null where the struct is null. Columns become fields of the same name.

    ``descriptor_set``: a serialized FileDescriptorSet (``protoc --include_imports --descriptor_set_out``). ``message``:
    the full name. Raises ``SchemaMismatchError`` if the types don't fit, ``UnencodableRowsError`` with all rows that
    cannot be encoded. Needs ``pip install protobuf``.
    """
    column = column_of(array)
    return _plan(descriptor_set, message, column.type).encode(column)


_plan = lru_cache(64)(plan_protobuf)

_VARINT, _DELIMITED = 0, 2
_WIRE_TYPE = 7
_WIRE_TYPES: Final = {
    "fixed64": 1, "sfixed64": 1, "double": 1, "string": _DELIMITED, "bytes": _DELIMITED, "message": _DELIMITED,
    "fixed32": 5, "sfixed32": 5, "float": 5,
}  # fmt: skip
"""The wire types of all types but varints."""

_FLOATS: Final = {"float": (32, 24), "double": (64, 53)}
"""The floating types, each with its bits and the bits of integers that it holds exactly."""

_WRAPPERS: Final = frozenset(
    f"google.protobuf.{each}Value"
    for each in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


class _DoesNotFitError(Exception):
    """A column does not fit its field. The text is a mismatch, with its path."""


class _Planner:
    def __init__(self) -> None:
        self.mismatches: list[str] = []
        self._enums: dict[str, tuple[pa.BinaryArray, pa.Int32Array]] = {}
        """The symbols and numbers of each enum."""

    def message(self, descriptor: Descriptor, kind: pa.StructType, path: str) -> parts.Message:
        names = Counter(field.name for field in kind)
        places = {field.name: index for index, field in enumerate(kind)}
        fields: list[tuple[int, int, Kernel]] = []
        before, of = f"{path}." if path else "", _name(descriptor)
        for name, index in places.items():
            field = descriptor.fields_by_name.get(name)
            if field is None:
                self._add(before + name, f"{of} has no such field ({type_name(kind.field(index).type)})")
            elif names[name] > 1:
                self._add(before + name, f"{names[name]} columns have this name")
            else:
                try:
                    fields.append((field.number, index, self._plan(field, kind.field(index).type, before + name)))
                except _DoesNotFitError as error:
                    self.mismatches.append(str(error))
        for field in descriptor.fields:
            if _is_required(field) and field.name not in names:
                self._add(before + field.name, f"no such column, and {of} requires the field")
        oneofs = []
        for oneof in descriptor.oneofs:
            members = tuple(sorted(places[field.name] for field in oneof.fields if field.name in places))
            if len(members) > 1:
                oneofs.append((before + oneof.name, members))
        by_number = (
            field.plan_field(index) if isinstance(field, parts.Singular) else PlannedField(index, field)
            for _, index, field in sorted(fields, key=lambda each: each[0])
        )
        return parts.Message(with_runs(by_number), tuple(oneofs))

    def _plan(self, field: FieldDescriptor, kind: pa.DataType, path: str) -> Kernel:
        proto_type = TYPE_NAMES[field.type]
        if proto_type == "group":
            raise _DoesNotFitError(
                f"{path}: Protobuf groups cannot be written ({_name(field.message_type)}): leave the column out"
            )
        if field.message_type is not None and is_map_entry(field.message_type):
            return self._map(field, kind, path)
        if not is_repeated(field):
            element = self._kind(field, kind, path)
            return parts.Singular(_tag(field), element, path, field.has_presence, _is_required(field))
        if pt.is_null(kind):
            kind = pa.list_(kind)
        if not is_any_list(kind):
            raise _does_not_fit(path, kind, f"repeated {_type(field)}")
        element = self._kind(field, kind.value_type, f"{path}[]")
        packed = _is_packed(field)
        return parts.Repeated(_tag(field, _DELIMITED if packed else None), element, packed, f"{path}[]")

    def _map(self, field: FieldDescriptor, kind: pa.DataType, path: str) -> Kernel:
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        if pt.is_null(kind):
            kind = pa.map_(pa.null(), pa.null())
        if not pt.is_map(kind):
            raise _does_not_fit(path, kind, f"map<{_type(key)}, {_type(value)}>")
        fields: list[SingleField] = []
        for index, (each, of) in enumerate(((key, kind.key_type), (value, kind.item_type))):
            at = f"{path}.{each.name}"
            element = self._kind(each, of, at)
            single = parts.Singular(_tag(each), element, at, presence=True, required=True)
            fields.append(SingleField(index, single))
        return parts.Map(_tag(field), parts.Message(tuple(fields)), path)

    def _kind(self, field: FieldDescriptor, kind: pa.DataType, path: str) -> FieldType:
        """The part that writes values of the Arrow type ``kind`` as the field's type, for repeated fields and
        others."""
        name = TYPE_NAMES[field.type]
        if pt.is_null(kind):
            return parts.BooleanType()  # has no values
        if name.endswith(("32", "64")) and pt.is_integer(kind):
            return _integer(name, kind, path)
        if name in ("uint64", "fixed64") and pt.is_decimal128(kind) and kind.scale == 0:
            # as Spark reads it
            return parts.IntegerType(path, name, 64 if name == "fixed64" else 0, bounds=_range(False, 64))
        if name in _FLOATS and (pt.is_floating(kind) or pt.is_integer(kind)):
            return _floating(name, kind, path)
        if name == "bool" and pt.is_boolean(kind):
            return parts.BooleanType()
        if name in ("string", "bytes") and (pt.is_string(kind) or pt.is_binary(kind)):
            return parts.BytesType(path, name == "string")
        if name == "enum":
            return self._enum(field.enum_type, kind, path)
        if name == "message":
            return self._message_kind(field, kind, path)
        raise _does_not_fit(path, kind, _type(field))

    def _message_kind(self, field: FieldDescriptor, kind: pa.DataType, path: str) -> FieldType:
        descriptor = field.message_type
        if pt.is_struct(kind):
            return self.message(descriptor, kind, path)
        if descriptor.full_name == "google.protobuf.Timestamp" and pt.is_timestamp(kind):
            if kind.tz is None:
                raise _DoesNotFitError(f"{_does_not_fit(path, kind, _type(field))}: it has no time zone: cast it")
            return parts.Timestamp(path)
        if descriptor.full_name == "google.protobuf.Duration" and pt.is_duration(kind):
            return parts.Duration(path)
        if descriptor.full_name in _WRAPPERS:
            value = descriptor.fields_by_name["value"]
            return parts.Wrapper(_tag(value), self._kind(value, kind, path))
        raise _does_not_fit(path, kind, _type(field))

    def _enum(self, enum: EnumDescriptor, kind: pa.DataType, path: str) -> FieldType:
        if enum.full_name not in self._enums:
            given = {value.name.encode(): value.number for value in enum.values}
            numbers = np.fromiter(given.values(), np.int32, len(given))
            self._enums[enum.full_name] = bytes_column(list(given)), int32_array(numbers)
        symbols, known = self._enums[enum.full_name]
        if pt.is_string(kind):
            return parts.EnumSymbol(path, _name(enum), symbols, known)
        if pt.is_integer(kind) and kind.bit_width - pt.is_signed_integer(kind) < 32:
            return parts.EnumNumber(path, _name(enum), known if enum.is_closed else None)
        raise _does_not_fit(path, kind, f"enum {_name(enum)} (give its symbols as strings, or int)")

    def _add(self, path: str, problem: str) -> None:
        self.mismatches.append(f"{path}: {problem}")


def _integer(name: str, kind: pa.DataType, path: str) -> FieldType:
    """The part that writes a type that holds all numbers of ``kind``. An unsigned type also takes signed numbers from 0
    on.

    Spark has no unsigned integers: it has an integer or a long for uint32, and a long for uint64.
    """
    signed, bits = not name.startswith(("u", "f")), int(name[-2:])
    given, holds = _range(pt.is_signed_integer(kind), kind.bit_width), _range(signed, bits)
    fits = given[0] >= holds[0] and given[1] <= holds[1]
    if not fits and (signed or given[0] == 0):
        raise _narrows(path, kind, name)
    bounds = None if fits else (holds[0], min(holds[1], given[1]))
    return parts.IntegerType(path, name, bits if name in _WIRE_TYPES else 0, name.startswith("sint"), bounds)


def _range(signed: bool, bits: int) -> tuple[int, int]:
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)


def _floating(name: str, kind: pa.DataType, path: str) -> FieldType:
    bits, exact_bits = _FLOATS[name]
    needed = kind.bit_width - pt.is_signed_integer(kind) if pt.is_integer(kind) else kind.bit_width
    fits = needed <= (exact_bits if pt.is_integer(kind) else bits)
    if not fits:
        raise _narrows(path, kind, name)
    return parts.FloatingType(bits)


def _does_not_fit(path: str, kind: pa.DataType, proto_type: str) -> _DoesNotFitError:
    return _DoesNotFitError(f"{path}: column type {type_name(kind)} does not fit Protobuf type {proto_type}")


def _narrows(path: str, kind: pa.DataType, proto_type: str) -> _DoesNotFitError:
    return _DoesNotFitError(
        f"{path}: column type {type_name(kind)} would narrow to Protobuf type {proto_type}: cast it"
    )


def _type(field: FieldDescriptor) -> str:
    """The field's type as a .proto file has it."""
    if field.enum_type is not None:
        return f"enum {_name(field.enum_type)}"
    return _name(field.message_type) if field.message_type is not None else TYPE_NAMES[field.type]


def _name(descriptor: Descriptor | EnumDescriptor) -> str:
    """The full name as messages show it."""
    return sanitize(descriptor.full_name, 200)


def _tag(field: FieldDescriptor, wire_type: int | None = None) -> bytes:
    """The field's tag. ``wire_type``: by default the wire type of the field's type."""
    if wire_type is None:
        wire_type = _WIRE_TYPES.get(TYPE_NAMES[field.type], _VARINT)
    return encode_unsigned_varint(field.number << 3 | wire_type)


def _is_required(field: FieldDescriptor) -> bool:
    if hasattr(field, "is_required"):
        return bool(field.is_required)
    return bool(field.label == field.LABEL_REQUIRED)


def _is_packed(field: FieldDescriptor) -> bool:
    """Whether the field is packed. To find out, the library writes an element, because protobuf 5 has no other way."""
    if TYPE_NAMES[field.type] in ("string", "bytes", "message"):
        return False
    message = import_module("google.protobuf.message_factory").GetMessageClass(field.containing_type)()
    getattr(message, field.name).append(field.enum_type.values[0].number if field.enum_type is not None else 0)
    return bool(message.SerializePartialToString()[0] & _WIRE_TYPE == _DELIMITED)
