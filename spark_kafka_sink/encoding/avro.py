"""Avro's binary encoding of an Arrow column, all rows at once.

What fits which type: ``avro_plan.py``. What only data can show is a row error. What is written decodes to what came in,
but for timestamps that are rounded down to milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from spark_kafka_sink.encoding.avro_kernels import Kernel
from spark_kafka_sink.encoding.columns import plain
from spark_kafka_sink.encoding.encoder import Fault, SchemaMismatchError, UnencodableRowsError
from spark_kafka_sink.encoding.row_writer import RowWriter, mask_of
from spark_kafka_sink.encoding.type_names import type_name
from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.records.columns import binary_array

_SLICE_ROWS = 8192
_MAX_BYTES = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class AvroEncoder:
    """Encodes columns of one Arrow type by one schema. An ``Encoder``; pickled without fastavro and the schema."""

    _kind: pa.DataType
    _root: Kernel

    @classmethod
    def plan(cls, schema: str, kind: pa.DataType, nullable: bool = True) -> AvroEncoder:
        """``schema``: JSON. A null row is a null result (a tombstone), as with Java's serializer and ``to_avro``, never
        the null of a union.

        Raises ``SchemaMismatchError`` with all that does not fit, ``ImportError`` without fastavro.
        """
        from spark_kafka_sink.encoding.avro_plan import Planner
        from spark_kafka_sink.encoding.avro_schema import AvroSchema

        planner = Planner()
        root = planner.plan(AvroSchema.parse(schema), kind, "")
        if planner.mismatches:
            raise SchemaMismatchError(planner.mismatches)
        return cls(kind, root)

    def encode(self, array: pa.Array | pa.ChunkedArray, prefix: bytes = b"") -> pa.BinaryArray:
        """``prefix`` and the encoded value per row; null where the row is null. At most 2 GiB.

        Raises ``UnencodableRowsError`` with all faulty rows.
        """
        if array.type != self._kind and type_name(array.type) != type_name(self._kind):
            raise InvalidRecordError(
                f"the encoder was planned for {type_name(self._kind)}, the column is {type_name(array.type)}"
            )
        faults: list[Fault] = []
        parts = []
        row = 0
        for chunk in array.chunks if isinstance(array, pa.ChunkedArray) else [array]:
            for start in range(0, len(chunk), _SLICE_ROWS):
                part, found = self._encode_slice(chunk.slice(start, _SLICE_ROWS), prefix)
                parts.append(part)
                faults += [fault._replace(row=row + start + fault.row) for fault in found]
            row += len(chunk)
        if faults:
            raise UnencodableRowsError(faults)
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return binary_array(np.zeros(1, np.int32), b"")
        if sum(part.nbytes for part in parts) > _MAX_BYTES:
            raise InvalidRecordError("more than 2 GiB of encoded rows: encode fewer rows at once")
        return pa.concat_arrays(parts)

    def _encode_slice(self, array: pa.Array, prefix: bytes) -> tuple[pa.BinaryArray, list[Fault]]:
        array = plain(array)
        keep = mask_of(array)
        writer = RowWriter(len(array))
        writer.fixed(prefix, keep)
        self._root.write(writer, array, keep)
        starts, data = writer.finish()
        missing = None if keep is None else keep == 0
        return binary_array(starts, data, missing), sorted(writer.faults.values())


def encode_avro(array: pa.Array | pa.ChunkedArray, schema: str) -> pa.BinaryArray:
    """Avro's binary encoding of each row, without header or registry prefix; null where the row is null.

    ``schema``: JSON. Raises ``SchemaMismatchError`` for what does not fit by type, ``UnencodableRowsError`` for rows.
    """
    return _planned(schema, array.type).encode(array)


@lru_cache(64)
def _planned(schema: str, kind: pa.DataType) -> AvroEncoder:
    return AvroEncoder.plan(schema, kind)
