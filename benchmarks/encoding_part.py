"""Columns as Avro and Protobuf in a process of its own, next to fastavro and upb row by row: no Kafka, no registry.

``python -m benchmarks.encoding_part WRITER ROWS`` prints the measures as one line of JSON. One core.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from benchmarks.clients import Stopwatch
from benchmarks.harness import ROOT
from benchmarks.model import Part, Run
from benchmarks.rounds import rounds_of, rows_of

if TYPE_CHECKING:
    import pyarrow as pa
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    from benchmarks.harness import Harness

BATCH_ROWS = 10_000
DEADLINE_S = 180

Encode = Callable[["pa.Array"], object]

_FLAT = ("long", "int", "double", "string", "string", "string", "timestamp", "boolean")
"""Every other column is nullable, and half of its rows are null."""

_AVRO: Mapping[str, Any] = {"timestamp": {"type": "long", "logicalType": "timestamp-micros"}}
_PROTOBUF = {"long": 3, "int": 5, "double": 1, "string": 9, "boolean": 8}
_OPTIONAL, _REPEATED, _MESSAGE = 1, 3, 11


def run_encoders(part: Part, rounds: int, harness: Harness) -> Iterator[Run]:
    for number, side in rounds_of(part, rounds):
        count = rows_of(side, part.rows)
        program = [sys.executable, "-m", "benchmarks.encoding_part", side.writer, str(count)]
        done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(program)} failed:\n{done.stdout}{done.stderr}")
        yield Run(side.name, number, count, json.loads(done.stdout))


def measured(writer: str, rows: int) -> dict[str, float]:
    """``writer``: who encodes, and the shape of the rows, such as ``upb-flat``, ``avro-nested`` and ``avro-longs-200``.

    Wide rows are ``longs`` or ``strings``, with the number of columns. ``avro-chunks-10`` is ``flat`` in chunks of 10.
    """
    who, _, shape = writer.partition("-")
    array = _array(shape)
    encode = _ENCODERS[who](shape)
    encode(array)  # warm
    times = max(1, rows // BATCH_ROWS)
    with Stopwatch() as watch:
        for _ in range(times):
            encode(array)
    return watch.measures(times * BATCH_ROWS)


def _array(shape: str) -> pa.Array | pa.ChunkedArray:
    import pyarrow as pa

    name, _, number = shape.partition("-")
    if name == "flat":
        return _flat()
    if name == "nested":
        return _nested()
    if name == "chunks":
        chunks = (_flat().slice(start, int(number)) for start in range(0, BATCH_ROWS, int(number)))
        return pa.chunked_array([pa.concat_arrays([chunk]) for chunk in chunks])
    return _wide(name, int(number))


def _wide(kind: str, width: int) -> pa.Array:
    """Columns that are half null: longs of 1 to 6 bytes, or strings of 10 to 15 characters."""
    import numpy as np
    import pyarrow as pa

    random = np.random.default_rng(1)
    columns = []
    for _ in range(width):
        numbers = random.integers(0, 10**6 if kind == "strings" else 2**40, BATCH_ROWS)
        values = [f"customer-{number}" for number in numbers] if kind == "strings" else numbers
        columns.append(pa.array(values, mask=random.random(BATCH_ROWS) < 0.5))
    return pa.StructArray.from_arrays(columns, _names(width))


def _flat() -> pa.Array:
    import numpy as np
    import pyarrow as pa

    random = np.random.default_rng(1)
    kinds: Mapping[str, Callable[[], pa.Array]] = {
        "long": lambda: pa.array(random.integers(-(2**62), 2**62, BATCH_ROWS)),
        "int": lambda: pa.array(random.integers(-(2**31), 2**31 - 1, BATCH_ROWS), pa.int32()),
        "double": lambda: pa.array(random.random(BATCH_ROWS)),
        "string": lambda: pa.array([f"customer-{number}" for number in random.integers(0, 10**6, BATCH_ROWS)]),
        "timestamp": lambda: pa.array(random.integers(0, 2**50, BATCH_ROWS)).cast(pa.timestamp("us", "UTC")),
        "boolean": lambda: pa.array(random.random(BATCH_ROWS) < 0.5),
    }
    columns = []
    for number, kind in enumerate(_FLAT):
        column = kinds[kind]()
        if number % 2:
            column = pa.compute.if_else(pa.array(random.random(BATCH_ROWS) < 0.5), column, None)
        columns.append(column)
    return pa.StructArray.from_arrays(columns, _names(len(_FLAT)))


def _nested() -> pa.Array:
    import numpy as np
    import pyarrow as pa

    random = np.random.default_rng(1)
    inner = pa.array(random.integers(0, 2**40, BATCH_ROWS))
    address = pa.StructArray.from_arrays([inner] * 4, ["a", "b", "c", "d"])
    fives = np.arange(0, 5 * BATCH_ROWS + 1, 5, dtype=np.int32)
    longs = pa.ListArray.from_arrays(fives, pa.array(random.integers(0, 2**40, 5 * BATCH_ROWS)))
    texts = pa.array([f"value-{number}" for number in random.integers(0, 10**6, 3 * BATCH_ROWS)])
    threes = np.arange(0, 3 * BATCH_ROWS + 1, 3, dtype=np.int32)
    strings = pa.MapArray.from_arrays(threes, pa.array(["x", "y", "z"] * BATCH_ROWS), texts)
    return pa.StructArray.from_arrays([address, longs, strings], ["address", "longs", "strings"])


def _names(width: int) -> list[str]:
    return [f"c{number}" for number in range(width)]


def _avro_schema(shape: str) -> str:
    name, _, width = shape.partition("-")
    if name in ("longs", "strings"):
        each = [{"name": column, "type": ["null", name.removesuffix("s")]} for column in _names(int(width))]
        return json.dumps({"type": "record", "name": "Wide", "fields": each})
    if name in ("flat", "chunks"):
        kinds = [_AVRO.get(kind, kind) for kind in _FLAT]
        each = [
            {"name": name, "type": ["null", kind] if number % 2 else kind}
            for number, (name, kind) in enumerate(zip(_names(len(_FLAT)), kinds, strict=True))
        ]
        return json.dumps({"type": "record", "name": "Flat", "fields": each})
    inner = {"type": "record", "name": "Address", "fields": [{"name": name, "type": "long"} for name in "abcd"]}
    fields: list[dict[str, Any]] = [
        {"name": "address", "type": inner},
        {"name": "longs", "type": {"type": "array", "items": "long"}},
        {"name": "strings", "type": {"type": "map", "values": "string"}},
    ]
    return json.dumps({"type": "record", "name": "Nested", "fields": fields})


def _descriptor_set(shape: str) -> bytes:
    from google.protobuf import descriptor_pb2, timestamp_pb2

    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    file = files.file.add(name="m.proto", syntax="proto3", dependency=["google/protobuf/timestamp.proto"])
    message = file.message_type.add(name="M")
    name, _, width = shape.partition("-")
    if name == "longs":
        for number, column in enumerate(_names(int(width))):
            field = message.field.add(name=column, number=number + 1, label=_OPTIONAL, type=_PROTOBUF["long"])
            field.proto3_optional, field.oneof_index = True, number
            message.oneof_decl.add(name=f"_{column}")
        return _serialized(files)
    if name == "flat":
        for number, kind in enumerate(_FLAT):
            field = message.field.add(name=f"c{number}", number=number + 1, label=_OPTIONAL)
            if kind == "timestamp":
                field.type, field.type_name = _MESSAGE, ".google.protobuf.Timestamp"
            else:
                field.type = _PROTOBUF[kind]
            if number % 2 and kind != "timestamp":
                field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
                message.oneof_decl.add(name=f"_c{number}")
        return _serialized(files)
    address = message.nested_type.add(name="Address")
    for number, name in enumerate("abcd", 1):
        address.field.add(name=name, number=number, label=_OPTIONAL, type=_PROTOBUF["long"])
    entry = message.nested_type.add(name="StringsEntry")
    entry.options.map_entry = True
    for number, name in enumerate(("key", "value"), 1):
        entry.field.add(name=name, number=number, label=_OPTIONAL, type=_PROTOBUF["string"])
    message.field.add(name="address", number=1, label=_OPTIONAL, type=_MESSAGE, type_name=".M.Address")
    message.field.add(name="longs", number=2, label=_REPEATED, type=_PROTOBUF["long"])
    message.field.add(name="strings", number=3, label=_REPEATED, type=_MESSAGE, type_name=".M.StringsEntry")
    return _serialized(files)


def _serialized(files: FileDescriptorSet) -> bytes:
    data: bytes = files.SerializeToString()
    return data


def _avro(shape: str) -> Encode:
    from spark_kafka_sink import encode_avro

    schema = _avro_schema(shape)
    return lambda array: encode_avro(array, schema)


def _protobuf(shape: str) -> Encode:
    from spark_kafka_sink import encode_protobuf

    descriptor_set = _descriptor_set(shape)
    return lambda array: encode_protobuf(array, descriptor_set, "M")


def _fastavro(shape: str) -> Encode:
    from fastavro import parse_schema, schemaless_writer

    schema = parse_schema(json.loads(_avro_schema(shape)))

    def encode(array: pa.Array) -> list[bytes]:
        rows = []
        for row in array.to_pylist(maps_as_pydicts="strict"):
            out = io.BytesIO()
            schemaless_writer(out, schema, row)
            rows.append(out.getvalue())
        return rows

    return encode


def _upb(shape: str) -> Encode:
    from google.protobuf.message_factory import GetMessageClass

    from spark_kafka_sink.schemas.encoding.descriptors import message_descriptor

    message = GetMessageClass(message_descriptor(_descriptor_set(shape), "M"))

    def encode(array: pa.Array) -> list[bytes]:
        return [message(**row).SerializeToString() for row in array.to_pylist(maps_as_pydicts="strict")]

    return encode


_ENCODERS: Mapping[str, Callable[[str], Encode]] = {
    "avro": _avro,
    "protobuf": _protobuf,
    "fastavro": _fastavro,
    "upb": _upb,
}

if __name__ == "__main__":
    print(json.dumps(measured(sys.argv[1], int(sys.argv[2]))))
