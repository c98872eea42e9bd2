"""Avro's binary encoding of an Arrow column, all rows at once.

What fits which type: ``avro_plan.py``. What only data can show is a row error. What is written decodes to what came in,
but for timestamps that are rounded down to milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.schemas.encoding.avro_kernels import Kernel
from spark_kafka_sink.schemas.encoding.columns import type_name
from spark_kafka_sink.schemas.encoding.encoder import Fault, InvalidSchemaError, SchemaMismatchError
from spark_kafka_sink.schemas.encoding.slices import encode_rows


@dataclass(frozen=True, slots=True)
class AvroEncoder:
    """Encodes columns of one Arrow type by one schema. An ``Encoder``; pickled without fastavro and the schema."""

    _kind: pa.DataType
    _root: Kernel

    @classmethod
    def plan(
        cls, schema: str, kind: pa.DataType, *, for_registry: bool = False, checks_defaults: bool = True
    ) -> AvroEncoder:
        """``schema``: JSON. A null row is a null result (a tombstone), as with Java's serializer and ``to_avro``, never
        the null of a union.

        ``for_registry``: ``bytes`` at the top, also with a logical type, have no length in front, as Confluent's
        serializers write them (Java: ``AbstractKafkaAvroSerializer``). ``checks_defaults``: as in ``AvroSchema.parse``.

        Raises ``SchemaMismatchError`` with all that does not fit, ``InvalidSchemaError``, and ``ImportError`` without
        fastavro.
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
        """``prefix`` and the encoded value per row; null where the row is null. At most 2 GiB.

        Raises ``UnencodableRowsError`` with all faulty rows; with ``faults``, they are added to it, and are null.
        """
        if array.type != self._kind and type_name(array.type) != type_name(self._kind):
            raise InvalidRecordError(
                f"the encoder was planned for {type_name(self._kind)}, the column is {type_name(array.type)}"
            )
        return encode_rows(self._root, array, prefix, faults)


def encode_avro(array: pa.Array | pa.ChunkedArray, schema: str) -> pa.BinaryArray:
    """Avro's binary encoding of each row, without header or registry prefix; null where the row is null.

    ``schema``: JSON. Raises ``SchemaMismatchError`` for what does not fit by type, ``UnencodableRowsError`` for rows.
    """
    return _planned(schema, array.type).encode(array)


@lru_cache(64)
def _planned(schema: str, kind: pa.DataType) -> AvroEncoder:
    return AvroEncoder.plan(schema, kind)
