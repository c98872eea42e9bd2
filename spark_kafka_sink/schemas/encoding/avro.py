"""Avro's binary encoding of an Arrow column, all rows at once: which kernel writes which Arrow type as which Avro type.

A value that does not fit its type is an error of its row, because only the data shows it. Written values decode to the
same values, except that timestamps may be rounded down to milliseconds. A field that the rows lack is written as its
default, which is encoded here once.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from spark_kafka_sink.errors import listed, sanitize
from spark_kafka_sink.records.varints import encode_varint
from spark_kafka_sink.schemas.encoding import avro_kernels as kernels
from spark_kafka_sink.schemas.encoding.avro_schema import NO_DEFAULT, AvroField, AvroSchema, Imports, Json
from spark_kafka_sink.schemas.encoding.columns import PER_SECOND, KernelEncoder, plain_type, type_name
from spark_kafka_sink.schemas.encoding.encoder import InvalidSchemaError, Kernel, SchemaMismatchError, column_of
from spark_kafka_sink.schemas.encoding.runs import with_runs


def plan_avro(schema: str, kind: pa.DataType, *, bare_bytes: bool = False, imports: Imports = ()) -> KernelEncoder:
    """Plans an encoder for columns of the type ``kind`` by ``schema``, which is JSON and may use types of ``imports``.

    A null row becomes a null value (a tombstone), never the null of a union, as with Java's serializer and ``to_avro``.
    ``bare_bytes`` leaves out the length in front of ``bytes`` at the top of the schema, even if they have a logical
    type, as Confluent's serializers do (Java: ``AbstractKafkaAvroSerializer``).

    Raises ``SchemaMismatchError`` with everything that does not fit, and ``InvalidSchemaError``.
    """
    planner = _Planner()
    parsed = AvroSchema.parse(schema, imports)
    is_raw = bare_bytes and parsed.type == "bytes"
    try:
        plain = plain_type(kind)
        root = planner.plan_raw_bytes(parsed, plain) if is_raw else planner.plan(parsed, plain, "")
    except RecursionError:
        raise InvalidSchemaError(["the Avro schema is nested too deeply"]) from None
    if planner.mismatches:
        raise SchemaMismatchError(planner.mismatches)
    return KernelEncoder(kind, root)


def encode_avro(
    array: pa.Array | pa.ChunkedArray | pa.Table | pa.RecordBatch, schema: str | dict[str, Any] | list[Any]
) -> pa.BinaryArray:
    """Avro's binary encoding of each row, without header or registry prefix; null where the row is null.

    ``schema``: JSON, as text or parsed. Raises ``SchemaMismatchError`` if the types don't fit, ``UnencodableRowsError``
    with all rows that cannot be encoded.
    """
    if not isinstance(schema, str | dict | list):
        raise InvalidSchemaError([f"an Avro schema is JSON as str or dict, not {type(schema).__name__}"])
    column = column_of(array)
    return _planned(schema if isinstance(schema, str) else json.dumps(schema), column.type).encode(column)


_planned = lru_cache(64)(plan_avro)

_BITS = {"int": 32, "long": 64}
_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}
_DAY = 86_400
_LARGEST_DECIMAL = 1_000
_LARGEST_DEFAULTS = 1_000_000
_STEP = 10
"""The cost of each value in a default besides its bytes, because a record without fields has no bytes."""


_TIMESTAMPS: Final = ("long timestamp-millis", "long timestamp-micros", "long timestamp-nanos")
_OWN_TYPES: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = MappingProxyType({
    **dict.fromkeys(("int8", "int16", "int32", "uint8", "uint16"), (("int",), ("long",))),
    **dict.fromkeys(("int64", "uint32", "duration"), (("long",),)),
    **dict.fromkeys(("decimal32", "decimal64", "decimal128", "decimal256"), (("bytes decimal", "fixed decimal"),)),
    **dict.fromkeys(("halffloat", "float"), (("float",), ("double",))),
    "date32": (("int date",), ("int",)), "time32": (("int time-millis",),), "time64": (("long time-micros",),),
    "timestamp": (_TIMESTAMPS, ("long",)),
    "timestamp_ntz": (tuple(each.replace(" ", " local-") for each in _TIMESTAMPS), ("long",)),
    "bool": (("boolean",),), "double": (("double",),), "string": (("string", "string uuid"), ("enum",)),
    "binary": (("bytes",), ("fixed", "fixed uuid", "fixed duration")),
    "struct": (("record",),), "list": (("array",),), "map": (("map",),),
})  # fmt: skip
"""Arrow's name of a type without its parameters → the types of Avro, with their logical type, that a union's branch for
its values may have. The first group of which the union has exactly one branch counts."""


def _type(schema: AvroSchema) -> str:
    """The type with its logical type."""
    return f"{schema.type} {schema.logical}".rstrip()


class _Planner:
    """Plans how a column is written by a schema. ``mismatches`` collects a sentence for each part that does not fit.

    Values may become another type without loss, as Avro's readers promote them (int, long, float, double; string,
    bytes).
    """

    def __init__(self) -> None:
        self.mismatches: list[str] = []
        self._defaults = _Defaults()

    def plan(self, schema: AvroSchema, kind: pa.DataType, path: str) -> Kernel:
        """The kernel of a field whose values may be null in Arrow."""
        if schema.type == "union":
            return self._union(schema, kind, path)
        if schema.type == "null" and pt.is_null(kind):
            return kernels.Constant(b"")
        return kernels.Required(path, str(schema), self._value(schema, kind, path))

    def plan_raw_bytes(self, schema: AvroSchema, kind: pa.DataType) -> Kernel:
        """The kernel of a schema ``bytes`` at the top, which Confluent's serializers write without its length."""
        value = self._value(schema, kind, "")
        if isinstance(value, kernels.Bytes | kernels.Decimal):
            value = replace(value, has_length=False)
        return kernels.Required("", str(schema), value)

    def _union(self, schema: AvroSchema, kind: pa.DataType, path: str) -> Kernel:
        null = schema.null_branch
        if null is not None and pt.is_null(kind):
            return kernels.Constant(encode_varint(null))
        branches = [index for index, branch in enumerate(schema.branches) if branch.type != "null"]
        names = [f"member{number}" for number in range(len(branches))]
        if len(names) > 1 and pt.is_struct(kind) and [field.name for field in kind] == names:
            members = [
                (encode_varint(index), self._value(schema.branches[index], field.type, _join(path, field.name)))
                for index, field in zip(branches, kind, strict=True)
            ]
            return kernels.Members(path, str(schema), None if null is None else encode_varint(null), tuple(members))
        index = self._branch(schema, kind, path)
        if index is None:
            return kernels.Constant(b"")
        value = self._value(schema.branches[index], kind, path)
        if null is None:
            return kernels.Required(path, str(schema), value, encode_varint(index))
        return kernels.Branch(encode_varint(null), encode_varint(index), value)

    def _branch(self, schema: AvroSchema, kind: pa.DataType, path: str) -> int | None:
        """The index of the only branch besides null, or of the only one of the column's own type. None, and a mismatch,
        if there is no such branch."""
        branches = [index for index, branch in enumerate(schema.branches) if branch.type != "null"]
        if len(branches) == 1:
            return branches[0]
        own = re.split(r"\W", str(kind))[0] + ("_ntz" if pt.is_timestamp(kind) and kind.tz is None else "")
        for types in _OWN_TYPES.get(own, ()):
            found = [index for index in branches if _type(schema.branches[index]) in types]
            if len(found) == 1:
                return found[0]
        said = "column type {} is not the type of one branch of the union: cast it, or give a struct of {}"
        members = listed([f"member{number} ({schema.branches[index]})" for number, index in enumerate(branches)])
        self._mismatch(path, said, kind, members)
        return None

    def _value(self, schema: AvroSchema, kind: pa.DataType, path: str) -> Kernel:
        """The kernel of values that are not null."""
        kernel = self._nested_kernel(schema, kind, path) or self._single(schema, kind, path)
        if kernel is None:
            hint = ""
            if pt.is_timestamp(kind) and "timestamp-" in schema.logical:
                hint = f": it has {'a' if kind.tz else 'no'} time zone: cast it"
            elif pt.is_string(kind) and schema.logical == "uuid":
                hint = ": give its bytes, unhex(replace(…, '-', ''))"
            self._mismatch(path, "column type {} does not fit schema type {}{}", kind, schema, hint)
        return kernel or kernels.Constant(b"")

    def _nested_kernel(self, schema: AvroSchema, kind: pa.DataType, path: str) -> Kernel | None:
        if schema.type == "record" and pt.is_struct(kind):
            return self._record(schema, kind, path)
        if schema.type == "array" and pt.is_list(kind):
            return kernels.Items(self._element(schema.items, kind.value_type, f"{path}[]"))
        if schema.type == "map" and pt.is_map(kind) and pt.is_string(kind.key_type):
            key = kernels.Required(f"{path}.key", "string", kernels.Text(f"{path}.key"))
            return kernels.Entries(path, key, self._element(schema.values, kind.item_type, f"{path}.value"))
        return None

    def _element(self, schema: AvroSchema, kind: pa.DataType, path: str) -> Kernel:
        """The kernel of elements. Elements of Arrow's type null are nulls, if there are any."""
        if pt.is_null(kind) and schema.type != "null" and schema.null_branch is None:
            return kernels.Required(path, str(schema), kernels.Constant(b""))
        return self.plan(schema, kind, path)

    def _record(self, schema: AvroSchema, kind: pa.StructType, path: str) -> Kernel:
        fields = schema.fields
        known = {field.name for field in fields}
        unknown = {field.name.lower(): field.name for field in kind if field.name not in known}
        for field in kind:
            if field.name not in known:
                self._mismatch(_join(path, field.name), "{} has no such field ({})", schema, field.type)
        planned: list[tuple[int, Kernel]] = []
        for field in fields:
            places = kind.get_all_field_indices(field.name)
            inner = _join(path, field.name)
            if len(places) > 1:
                self._mismatch(inner, "{} columns have this name", len(places))
            elif places:
                planned.append((places[0], self.plan(field.schema, kind.field(places[0]).type, inner)))
            else:
                planned.append((-1, self._absent(field, inner, unknown)))
        return kernels.RecordValue(
            with_runs(kernels.plan_field(place, kernel) for place, kernel in _with_joined_constants(planned))
        )

    def _absent(self, field: AvroField, path: str, unknown: Mapping[str, str]) -> kernels.Constant:
        """The kernel of a field without a column. ``unknown``: the columns without a field, by their names in lower
        case."""
        if field.default is not NO_DEFAULT:
            try:
                return kernels.Constant(self._defaults.encode(field.schema, field.default))
            except _TooManyDefaultsError as error:
                raise SchemaMismatchError([f"{path}: {error}"]) from None
            except (ValueError, OverflowError, RecursionError) as error:
                self._mismatch(path, "the default in the schema is wrong: {}", error)
        elif field.schema.null_branch is not None:
            return kernels.Constant(encode_varint(field.schema.null_branch))
        elif field.schema.type != "null":
            name = unknown.get(field.name.lower())
            other = "" if name is None else f", only {name}"
            said = "no such column{}, and the field ({}) has no default and no null"
            self._mismatch(path, said, other, field.schema)
        return kernels.Constant(b"")

    def _single(self, schema: AvroSchema, kind: pa.DataType, path: str) -> Kernel | None:
        match schema.type:
            case "boolean" if pt.is_boolean(kind):
                return kernels.Boolean()
            case "int":
                return self._int(schema, kind, path)
            case "long":
                return self._long(schema, kind, path)
            case "float" | "double":
                bits = 32 if schema.type == "float" else 64
                fits = kind.bit_width <= bits if pt.is_floating(kind) else _is_integer(kind, _BITS["long"])
                return kernels.Real(path, bits) if fits else None
            case "bytes" | "fixed" if schema.logical == "decimal":
                return _decimal(schema, kind, path)
            case "bytes" if pt.is_binary(kind) or pt.is_string(kind):
                return kernels.Bytes()
            case "string" if pt.is_string(kind) or pt.is_binary(kind):
                return kernels.Uuid(path) if schema.logical == "uuid" else kernels.Text(path)
            case "enum" if pt.is_string(kind):
                refusal = f"is not a symbol of {schema}: {listed(schema.attributes['symbols'])}"
                return kernels.Enum(path, refusal, schema.symbol_column)
            case "fixed" if pt.is_binary(kind):
                return kernels.Fixed(path, str(schema), schema.size)
        return None

    def _int(self, schema: AvroSchema, kind: pa.DataType, path: str) -> Kernel | None:
        name = str(schema)
        if pt.is_date32(kind) and schema.logical in ("date", ""):
            return kernels.Integer(path, name)
        bounds = (0, _DAY * 1000 - 1) if schema.logical == "time-millis" else kernels.LONGS
        if bounds != kernels.LONGS and pt.is_time(kind):
            return _scale(path, name, kind.unit, "ms", bounds=bounds)
        if _is_integer(kind, _BITS["int"]):
            return kernels.Integer(path, name, bounds=bounds)
        return None

    def _long(self, schema: AvroSchema, kind: pa.DataType, path: str) -> Kernel | None:
        name, logical = str(schema), schema.logical
        bounds = (0, _DAY * 1_000_000 - 1) if logical == "time-micros" else kernels.LONGS
        if pt.is_timestamp(kind):
            if not logical:
                return _scale(path, name, kind.unit, "ms", rounds=True)  # as Spark's to_avro
            if logical.startswith("timestamp" if kind.tz else "local-timestamp"):
                unit = _UNITS[logical.rpartition("-")[2]]
                return _scale(path, name, kind.unit, unit, rounds=unit == "ms")
        elif bounds != kernels.LONGS and pt.is_time(kind):
            return _scale(path, name, kind.unit, "us", bounds=bounds)
        elif not logical and pt.is_duration(kind):
            return _scale(path, name, kind.unit, "us")  # as Spark's to_avro
        elif _is_integer(kind, _BITS["long"]):
            return kernels.Integer(path, name, bounds=bounds)
        return None

    def _mismatch(self, path: str, text: str, *details: object) -> None:
        """``text`` has a place for each of ``details``."""
        shown = (type_name(each) if isinstance(each, pa.DataType) else each for each in details)
        self.mismatches.append((f"{path}: " if path else "") + text.format(*shown))


def _with_joined_constants(fields: list[tuple[int, Kernel]]) -> Iterator[tuple[int, Kernel]]:
    """The fields, with one constant in place of several, because each piece of a row costs time and memory."""
    for is_constant, group in groupby(fields, lambda each: isinstance(each[1], kernels.Constant)):
        if is_constant:
            yield -1, kernels.Constant(b"".join(each.data for _, each in group if isinstance(each, kernels.Constant)))
        else:
            yield from group


def _scale(
    path: str, name: str, unit: str, wanted: str, rounds: bool = False, bounds: tuple[int, int] = kernels.LONGS
) -> kernels.Integer:
    """The kernel that converts one unit of time to another."""
    have, want = PER_SECOND[unit], PER_SECOND[wanted]
    return kernels.Integer(path, name, max(1, want // have), max(1, have // want), rounds, bounds)


def _decimal(schema: AvroSchema, kind: pa.DataType, path: str) -> Kernel | None:
    """The kernel of decimals; None if the scale would lose digits, or a number would take kilobytes. A number with more
    digits than the schema allows is an error of its row instead."""
    size = schema.size if schema.type == "fixed" else None
    if not pt.is_decimal(kind) or kind.scale > schema.scale or (size or 0) > _LARGEST_DECIMAL:
        return None
    rescaled = None
    if kind.scale < schema.scale:
        digits = kind.precision + schema.scale - kind.scale
        if digits > kernels.MAX_DIGITS:
            return None
        rescaled = pa.decimal128(digits, schema.scale) if digits <= 38 else pa.decimal256(digits, schema.scale)
    return kernels.Decimal(path, str(schema), schema.precision, size, rescaled)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _is_integer(kind: pa.DataType, bits: int) -> bool:
    """Whether a signed number of ``bits`` bits holds all values."""
    if pt.is_unsigned_integer(kind):
        return bool(kind.bit_width < bits)
    return bool(pt.is_signed_integer(kind) and kind.bit_width <= bits)


class _WrongDefaultError(ValueError):
    """A default does not fit a type. The text is only made when it is needed, because most of these errors are about
    one branch of a union while another branch fits."""

    def __str__(self) -> str:
        default, problem, of = self.args
        return f"{sanitize(json.dumps(default), 200)} {problem} {of}"


class _TooManyDefaultsError(Exception):
    """The defaults of a plan are too many or too large."""


class _Defaults:
    """Encodes the defaults of a plan. They may double with each level of records, so their size is limited."""

    def __init__(self) -> None:
        self._left = _LARGEST_DEFAULTS

    def encode(self, schema: AvroSchema, default: Json) -> bytes:
        """The encoded default. Raises ``ValueError`` with the reason if it does not fit its schema, and
        ``_TooManyDefaultsError``."""
        texts = [default] if isinstance(default, str) else default if isinstance(default, dict) else ()
        self._take(_STEP + sum(map(len, texts)))
        match schema.type, default:
            case "union", _:
                return self._branch(schema, default)
            case "array", list():
                return _block(len(default), b"".join(self.encode(schema.items, each) for each in default))
            case "map", dict():
                entries = (_with_length(key.encode()) + self.encode(schema.values, default[key]) for key in default)
                return _block(len(default), b"".join(entries))
            case "record", dict():
                return b"".join(self._field(field, default) for field in schema.fields)
        data = _single_default(schema, default)
        if data is None:
            raise _WrongDefaultError(default, "is no", schema)
        return data

    def _take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            most = f"{_LARGEST_DEFAULTS} bytes or {_LARGEST_DEFAULTS // _STEP} values"
            raise _TooManyDefaultsError(f"the fields without a column have defaults of more than {most}")

    def _branch(self, schema: AvroSchema, default: Json) -> bytes:
        """The default as a value of the first branch that takes it (up to Avro 1.11, only the first branch may)."""
        for index, branch in enumerate(schema.branches):
            with suppress(ValueError, OverflowError):
                return encode_varint(index) + self.encode(branch, default)
        raise _WrongDefaultError(default, "is no", schema)

    def _field(self, field: AvroField, default: dict[str, Json]) -> bytes:
        value = default.get(field.name, field.default)
        if value is NO_DEFAULT:
            raise _WrongDefaultError(default, "lacks", field.name)
        return self.encode(field.schema, value)


def _single_default(schema: AvroSchema, default: Json) -> bytes | None:
    match schema.type, default:
        case "null", None:
            return b""
        case "boolean", bool():
            return bytes([default])
        case (("int" | "long"), int()) if -(limit := 1 << _BITS[schema.type] - 1) <= default < limit:
            return None if isinstance(default, bool) else encode_varint(default)
        case (("float" | "double"), int() | float()) if not isinstance(default, bool):
            return struct.pack("<f" if schema.type == "float" else "<d", float(default))
        case "string", str():
            return _with_length(default.encode())
        case "bytes", str():
            return _with_length(default.encode("latin-1"))
        case "fixed", str() if len(default) == schema.size:
            return default.encode("latin-1")
        case "enum", str() if default in schema.symbols:
            return encode_varint(schema.symbols[default])
    return None


def _with_length(data: bytes) -> bytes:
    return encode_varint(len(data)) + data


def _block(count: int, items: bytes) -> bytes:
    return encode_varint(count) + items + b"\0" if count else b"\0"
