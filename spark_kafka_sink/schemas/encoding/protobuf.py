"""Protobuf encoding of an Arrow column, all rows at once.

A descriptor and an Arrow type become a plan, or a list of all mismatches between them. The parts of a plan, which write
the fields, are in ``protobuf_fields.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.types as pt

from spark_kafka_sink.errors import InvalidRecordError, shown
from spark_kafka_sink.records.columns import is_any_list
from spark_kafka_sink.records.sizes import encode_unsigned_varint
from spark_kafka_sink.schemas.encoding.columns import plain_type, type_name
from spark_kafka_sink.schemas.encoding.descriptors import TYPE_NAMES, is_map_entry, is_repeated, message_descriptor
from spark_kafka_sink.schemas.encoding.encoder import Fault, SchemaMismatchError, column_of
from spark_kafka_sink.schemas.encoding.protobuf_fields import (
    Boolean,
    Bytes,
    Duration,
    EnumNumber,
    EnumSymbol,
    Floating,
    Integer,
    Kind,
    Map,
    Message,
    Repeated,
    Singular,
    Timestamp,
    Wrapper,
)
from spark_kafka_sink.schemas.encoding.row_writer import Kernel
from spark_kafka_sink.schemas.encoding.runs import PlannedField, SingleField, with_runs
from spark_kafka_sink.schemas.encoding.slices import encode_rows

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor


@dataclass(frozen=True, slots=True)
class ProtobufEncoder:
    """An ``Encoder`` of structs as one Protobuf message type."""

    kind: pa.DataType
    message: str
    root: Message

    @classmethod
    def plan(cls, descriptor_set: bytes, message: str, kind: pa.DataType) -> ProtobufEncoder:
        """Struct fields of ``kind`` become the fields of the same name of ``message``.

        ``descriptor_set``: a serialized FileDescriptorSet, as Spark's ``to_protobuf`` takes it. Needs the package
        ``protobuf``; the encoder does not. Raises ``SchemaMismatchError``, and ``ConfigError`` for the descriptor set.
        """
        descriptor = message_descriptor(descriptor_set, message)
        return cls(kind, descriptor.full_name, plan_message(descriptor, kind))

    def encode(
        self, array: pa.Array | pa.ChunkedArray, prefix: bytes = b"", faults: list[Fault] | None = None
    ) -> pa.BinaryArray:
        """Implements ``Encoder``, and also takes chunked arrays."""
        if array.type != self.kind and plain_type(array.type) != plain_type(self.kind):
            raise InvalidRecordError(
                shown(f"the encoder was planned for {type_name(self.kind)}, the column is {type_name(array.type)}")
            )
        return encode_rows(self.root, array, prefix, faults)


def encode_protobuf(
    array: pa.Array | pa.ChunkedArray | pa.Table | pa.RecordBatch, descriptor_set: bytes, message: str
) -> pa.BinaryArray:
    """Each struct as a Protobuf message; null where the struct is null. Columns become fields of the same name.

    ``descriptor_set``: a serialized FileDescriptorSet (``protoc --include_imports --descriptor_set_out``). ``message``:
    the full name. Raises ``SchemaMismatchError`` if the types don't fit, ``UnencodableRowsError`` with all rows that
    cannot be encoded. Needs ``pip install protobuf``.
    """
    column = column_of(array)
    return _planned(descriptor_set, message, column.type).encode(column)


@lru_cache(64)
def _planned(descriptor_set: bytes, message: str, kind: pa.DataType) -> ProtobufEncoder:
    return ProtobufEncoder.plan(descriptor_set, message, kind)


_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5
_WIRE_TYPE = 7


class _Integers(NamedTuple):
    signed: bool
    bits: int
    wire_type: int


_INTEGERS: Final = {
    "int32": _Integers(True, 32, _VARINT),
    "int64": _Integers(True, 64, _VARINT),
    "uint32": _Integers(False, 32, _VARINT),
    "uint64": _Integers(False, 64, _VARINT),
    "sint32": _Integers(True, 32, _VARINT),
    "sint64": _Integers(True, 64, _VARINT),
    "fixed32": _Integers(False, 32, _FIXED32),
    "fixed64": _Integers(False, 64, _FIXED64),
    "sfixed32": _Integers(True, 32, _FIXED32),
    "sfixed64": _Integers(True, 64, _FIXED64),
}
_FLOATS: Final = {"float": (32, 24, _FIXED32), "double": (64, 53, _FIXED64)}
"""Each with its bits, and those of integers that it holds exactly."""

_WRAPPERS: Final = frozenset(
    f"google.protobuf.{each}Value"
    for each in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


class _DoesNotFitError(Exception):
    """A column does not fit its field. The text is a mismatch, with its path."""


def plan_message(descriptor: Descriptor, kind: pa.DataType) -> Message:
    """The plan of a column. Raises ``SchemaMismatchError`` with all mismatches."""
    kind = plain_type(kind)
    if not pt.is_struct(kind):
        raise SchemaMismatchError(
            [f"column type {type_name(kind)} does not fit message {descriptor.full_name}: give a struct"]
        )
    planner = _Planner()
    message = planner.message(descriptor, kind, "")
    if planner.mismatches:
        raise SchemaMismatchError(planner.mismatches)
    return message


class _Planner:
    def __init__(self) -> None:
        self.mismatches: list[str] = []

    def message(self, descriptor: Descriptor, kind: pa.StructType, path: str) -> Message:
        names = [field.name for field in kind]
        fields: list[tuple[int, int, Kernel]] = []
        before = f"{path}." if path else ""
        for index, name in enumerate(names):
            field = descriptor.fields_by_name.get(name)
            if field is None:
                self._add(
                    before + name, f"{descriptor.full_name} has no such field ({type_name(kind.field(index).type)})"
                )
            elif name in names[:index]:
                self._add(before + name, f"{names.count(name)} columns have this name")
            else:
                planned = self._field(field, kind.field(index).type, before + name)
                if planned is not None:
                    fields.append((field.number, index, planned))
        for field in descriptor.fields:
            if _is_required(field) and field.name not in names:
                self._add(before + field.name, f"no such column, and {descriptor.full_name} requires the field")
        oneofs = []
        for oneof in descriptor.oneofs:
            members = tuple(index for index, name in enumerate(names) if name in {each.name for each in oneof.fields})
            if len(members) > 1:
                oneofs.append((before + oneof.name, members))
        by_number = (
            field.planned(index) if isinstance(field, Singular) else PlannedField(index, field)
            for _, index, field in sorted(fields, key=lambda each: each[0])
        )
        return Message(with_runs(by_number), tuple(oneofs))

    def _field(self, field: FieldDescriptor, kind: pa.DataType, path: str) -> Kernel | None:
        try:
            return self._planned(field, kind, path)
        except _DoesNotFitError as error:
            self.mismatches.append(str(error))
            return None

    def _planned(self, field: FieldDescriptor, kind: pa.DataType, path: str) -> Kernel:
        proto_type = TYPE_NAMES[field.type]
        if proto_type == "group":
            raise _DoesNotFitError(
                f"{path}: Protobuf groups cannot be written ({field.message_type.full_name}): leave the column out"
            )
        if _is_map(field):
            return self._map(field, kind, path)
        if not is_repeated(field):
            element = self._kind(field, kind, path)
            return Singular(
                _tag(field.number, _wire_type(proto_type)), element, path, field.has_presence, _is_required(field)
            )
        if pt.is_null(kind):
            kind = pa.list_(kind)
        if not is_any_list(kind):
            raise _does_not_fit(path, kind, f"repeated {_type(field)}")
        element = self._kind(field, kind.value_type, f"{path}[]")
        packed = _is_packed(field)
        return Repeated(_tag(field.number, _DELIMITED if packed else _wire_type(proto_type)), element, packed)

    def _map(self, field: FieldDescriptor, kind: pa.DataType, path: str) -> Kernel:
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        if pt.is_null(kind):
            kind = pa.map_(pa.null(), pa.null())
        if not pt.is_map(kind):
            raise _does_not_fit(path, kind, f"map<{_type(key)}, {_type(value)}>")
        fields: list[SingleField] = []
        for index, (each, of) in enumerate(((key, kind.key_type), (value, kind.item_type))):
            at = f"{path}.{each.name}"
            wire_type = _wire_type(TYPE_NAMES[each.type])
            element = self._kind(each, of, at)
            single = Singular(_tag(each.number, wire_type), element, at, presence=True, required=True)
            fields.append(SingleField(index, single))
        return Map(_tag(field.number, _DELIMITED), Message(tuple(fields)), path)

    def _kind(self, field: FieldDescriptor, kind: pa.DataType, path: str) -> Kind:
        """What writes values of the Arrow type ``kind`` as the field's type, whether the field is repeated or not."""
        name = TYPE_NAMES[field.type]
        if pt.is_null(kind):
            return Boolean()  # has no values
        if name in _INTEGERS and pt.is_integer(kind):
            return _integer(name, kind, path)
        if name in ("uint64", "fixed64") and pt.is_decimal128(kind) and kind.scale == 0:
            return Integer(path, name, 64 if name == "fixed64" else 0, bounds=_range(False, 64))  # as Spark reads it
        if name in _FLOATS and (pt.is_floating(kind) or pt.is_integer(kind)):
            return _floating(name, kind, path)
        if name == "bool" and pt.is_boolean(kind):
            return Boolean()
        if name in ("string", "bytes") and (pt.is_string(kind) or pt.is_binary(kind)):
            return Bytes(path, name == "string")
        if name == "enum":
            return _enum(field.enum_type, kind, path)
        if name == "message":
            return self._message_kind(field, kind, path)
        raise _does_not_fit(path, kind, _type(field))

    def _message_kind(self, field: FieldDescriptor, kind: pa.DataType, path: str) -> Kind:
        descriptor = field.message_type
        if pt.is_struct(kind):
            return self.message(descriptor, kind, path)
        if descriptor.full_name == "google.protobuf.Timestamp" and pt.is_timestamp(kind):
            if kind.tz is None:
                raise _DoesNotFitError(f"{_does_not_fit(path, kind, _type(field))}: it has no time zone, cast it")
            return Timestamp(path)
        if descriptor.full_name == "google.protobuf.Duration" and pt.is_duration(kind):
            return Duration(path)
        if descriptor.full_name in _WRAPPERS:
            value = descriptor.fields_by_name["value"]
            return Wrapper(_tag(value.number, _wire_type(TYPE_NAMES[value.type])), self._kind(value, kind, path))
        raise _does_not_fit(path, kind, _type(field))

    def _add(self, path: str, problem: str) -> None:
        self.mismatches.append(f"{path}: {problem}")


def _integer(name: str, kind: pa.DataType, path: str) -> Kind:
    """What writes a type that holds all numbers of ``kind``. An unsigned type also takes signed numbers from 0 on.

    Spark has no unsigned integers: it has an integer or a long for uint32, and a long for uint64.
    """
    signed, bits, wire_type = _INTEGERS[name]
    given, holds = _range(pt.is_signed_integer(kind), kind.bit_width), _range(signed, bits)
    fits = given[0] >= holds[0] and given[1] <= holds[1]
    if not fits and (signed or given[0] == 0):
        raise _narrows(path, kind, name)
    bounds = None if fits else (holds[0], min(holds[1], given[1]))
    return Integer(path, name, 0 if wire_type == _VARINT else bits, name.startswith("sint"), bounds)


def _range(signed: bool, bits: int) -> tuple[int, int]:
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)


def _floating(name: str, kind: pa.DataType, path: str) -> Kind:
    bits, exact_bits, _ = _FLOATS[name]
    needed = kind.bit_width - pt.is_signed_integer(kind) if pt.is_integer(kind) else kind.bit_width
    fits = needed <= (exact_bits if pt.is_integer(kind) else bits)
    if not fits:
        raise _narrows(path, kind, name)
    return Floating(bits)


def _enum(enum: EnumDescriptor, kind: pa.DataType, path: str) -> Kind:
    if pt.is_string(kind):
        numbers = {each.name.encode(): each.number for each in enum.values}
        return EnumSymbol(path, enum.full_name, tuple(numbers), tuple(numbers.values()))
    if pt.is_integer(kind) and kind.bit_width - pt.is_signed_integer(kind) < 32:
        closed = tuple(each.number for each in enum.values) if enum.is_closed else ()
        return EnumNumber(path, enum.full_name, closed)
    raise _does_not_fit(path, kind, f"enum {enum.full_name} (give its symbols as strings, or int)")


def _does_not_fit(path: str, kind: pa.DataType, proto_type: str) -> _DoesNotFitError:
    return _DoesNotFitError(f"{path}: column type {type_name(kind)} does not fit Protobuf type {proto_type}")


def _narrows(path: str, kind: pa.DataType, proto_type: str) -> _DoesNotFitError:
    return _DoesNotFitError(
        f"{path}: column type {type_name(kind)} would narrow to Protobuf type {proto_type}: cast it"
    )


def _type(field: FieldDescriptor) -> str:
    """The field's type as a .proto file has it."""
    if field.enum_type is not None:
        return f"enum {field.enum_type.full_name}"
    return str(field.message_type.full_name) if field.message_type is not None else TYPE_NAMES[field.type]


def _tag(number: int, wire_type: int) -> bytes:
    return encode_unsigned_varint(number << 3 | wire_type)


def _wire_type(proto_type: str) -> int:
    if proto_type in _INTEGERS:
        return _INTEGERS[proto_type].wire_type
    if proto_type in _FLOATS:
        return _FLOATS[proto_type][2]
    return _DELIMITED if proto_type in ("string", "bytes", "message") else _VARINT


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and is_map_entry(field.message_type)


def _is_required(field: FieldDescriptor) -> bool:
    if hasattr(field, "is_required"):
        return bool(field.is_required)
    return bool(field.label == field.LABEL_REQUIRED)


def _is_packed(field: FieldDescriptor) -> bool:
    """Whether the field is packed. The library has to write an element, because protobuf 5 does not tell otherwise."""
    if TYPE_NAMES[field.type] in ("string", "bytes", "message"):
        return False
    message = import_module("google.protobuf.message_factory").GetMessageClass(field.containing_type)()
    getattr(message, field.name).append(field.enum_type.values[0].number if field.enum_type is not None else 0)
    return bool(message.SerializePartialToString()[0] & _WIRE_TYPE == _DELIMITED)
