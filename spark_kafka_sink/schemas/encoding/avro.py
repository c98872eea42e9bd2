"""Avro's binary encoding of an Arrow column, all rows at once.

``avro_plan.py`` says which Arrow type fits which Avro type. What only the data can show is an error of its row. What is
written decodes to what came in, except that timestamps may be rounded down to milliseconds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from spark_kafka_sink.errors import InvalidRecordError, shown
from spark_kafka_sink.schemas.encoding.columns import type_name
from spark_kafka_sink.schemas.encoding.encoder import Fault, InvalidSchemaError, SchemaMismatchError, column_of
from spark_kafka_sink.schemas.encoding.row_writer import Kernel
from spark_kafka_sink.schemas.encoding.slices import encode_rows


@dataclass(frozen=True, slots=True)
class AvroEncoder:
    """An ``Encoder`` of columns of one Arrow type by one schema. Its pickle does not need the schema."""

    _kind: pa.DataType
    _root: Kernel

    @classmethod
    def plan(
        cls, schema: str, kind: pa.DataType, *, for_registry: bool = False, checks_defaults: bool = True
    ) -> AvroEncoder:
        """Plans an encoder for columns of the type ``kind`` by ``schema``, which is JSON.

        A null row becomes a null value (a tombstone), never the null of a union, as with Java's serializer and
        ``to_avro``. ``for_registry`` leaves out the length in front of ``bytes`` at the top of the schema, also with
        a logical type, as Confluent's serializers do (Java: ``AbstractKafkaAvroSerializer``). ``checks_defaults`` is
        that of ``AvroSchema.parse``.

        Raises ``SchemaMismatchError`` with everything that does not fit, and ``InvalidSchemaError``.
        """
        from spark_kafka_sink.schemas.encoding.avro_plan import Planner
        from spark_kafka_sink.schemas.encoding.avro_schema import AvroSchema

        planner = Planner()
        parsed = AvroSchema.parse(schema, checks_defaults=checks_defaults)
        is_raw = for_registry and parsed.type == "bytes"
        try:
            root = planner.plan_raw_bytes(parsed, kind) if is_raw else planner.plan(parsed, kind, "")
        except RecursionError:
            raise InvalidSchemaError(["the Avro schema is nested too deeply"]) from None
        if planner.mismatches:
            raise SchemaMismatchError(planner.mismatches)
        return cls(kind, root)

    def encode(
        self, array: pa.Array | pa.ChunkedArray, prefix: bytes = b"", faults: list[Fault] | None = None
    ) -> pa.BinaryArray:
        """Implements ``Encoder``, and also takes chunked arrays."""
        if array.type != self._kind and type_name(array.type) != type_name(self._kind):
            raise InvalidRecordError(
                shown(f"the encoder was planned for {type_name(self._kind)}, the column is {type_name(array.type)}")
            )
        return encode_rows(self._root, array, prefix, faults)


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


@lru_cache(64)
def _planned(schema: str, kind: pa.DataType) -> AvroEncoder:
    return AvroEncoder.plan(schema, kind)
