"""Arrow columns → Protobuf messages, all rows at once.

``protobuf_plan.py`` makes a plan of descriptor and Arrow type; ``protobuf_fields.py`` is the plan, and writes with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from spark_kafka_sink.encoding.columns import one_column, plain, plain_type
from spark_kafka_sink.encoding.encoder import Fault, UnencodableRowsError
from spark_kafka_sink.encoding.protobuf_fields import Message
from spark_kafka_sink.encoding.row_writer import RowWriter, mask_of
from spark_kafka_sink.encoding.type_names import type_name
from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.records.columns import binary_array, one_array

_SLICE_ROWS = 8192


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
        from spark_kafka_sink.encoding.descriptors import message_descriptor
        from spark_kafka_sink.encoding.protobuf_plan import plan_message

        descriptor = message_descriptor(descriptor_set, message)
        return cls(kind, descriptor.full_name, plan_message(descriptor, kind))

    def encode(self, array: pa.Array | pa.ChunkedArray, prefix: bytes = b"") -> pa.BinaryArray:
        """``prefix`` and the message per row, null where the row is null. At most 2 GiB."""
        array = one_array(array)
        if array.type != self.kind and plain_type(array.type) != plain_type(self.kind):
            raise InvalidRecordError(
                f"the encoder was planned for {type_name(self.kind)}, the column is {type_name(array.type)}"
            )
        faults: list[Fault] = []
        encoded = []
        for start in range(0, len(array), _SLICE_ROWS):
            rows = plain(array.slice(start, _SLICE_ROWS))
            keep = mask_of(rows)
            writer = RowWriter(len(rows))
            writer.fixed(prefix, keep)
            self.root.write_fields(writer, rows, keep)
            starts, data = writer.finish()
            encoded.append(binary_array(starts, data, None if keep is None else keep == 0))
            faults += [each._replace(row=start + each.row) for _, each in sorted(writer.faults.items())]
        if faults:
            raise UnencodableRowsError(faults)
        return one_column(encoded)


def encode_protobuf(array: pa.Array | pa.ChunkedArray, descriptor_set: bytes, message: str) -> pa.BinaryArray:
    """Each struct as a Protobuf message; null where the struct is null. Columns become fields of the same name.

    ``descriptor_set``: a serialized FileDescriptorSet (``protoc --include_imports --descriptor_set_out``). ``message``:
    the full name. Raises ``SchemaMismatchError`` if the types don't fit, ``UnencodableRowsError`` with all rows that
    cannot be encoded. Needs ``pip install spark-kafka-sink[protobuf]``.
    """
    array = one_array(array)
    return ProtobufEncoder.plan(descriptor_set, message, array.type).encode(array)
