"""Arrow columns → Protobuf messages, all rows at once.

``protobuf_plan.py`` makes a plan of descriptor and Arrow type; ``protobuf_fields.py`` is the plan, and writes with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.schemas.encoding.columns import plain_type
from spark_kafka_sink.schemas.encoding.encoder import Fault
from spark_kafka_sink.schemas.encoding.protobuf_fields import Message
from spark_kafka_sink.schemas.encoding.slices import encode_rows
from spark_kafka_sink.schemas.encoding.type_names import type_name


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
        from spark_kafka_sink.schemas.encoding.descriptors import message_descriptor
        from spark_kafka_sink.schemas.encoding.protobuf_plan import plan_message

        descriptor = message_descriptor(descriptor_set, message)
        return cls(kind, descriptor.full_name, plan_message(descriptor, kind))

    def encode(
        self, array: pa.Array | pa.ChunkedArray, prefix: bytes = b"", faults: list[Fault] | None = None
    ) -> pa.BinaryArray:
        """``prefix`` and the message per row, null where the row is null. At most 2 GiB.

        Raises ``UnencodableRowsError`` with all faulty rows; with ``faults``, they are added to it, and are null.
        """
        if array.type != self.kind and plain_type(array.type) != plain_type(self.kind):
            raise InvalidRecordError(
                f"the encoder was planned for {type_name(self.kind)}, the column is {type_name(array.type)}"
            )
        return encode_rows(self.root, array, prefix, faults)


def encode_protobuf(array: pa.Array | pa.ChunkedArray, descriptor_set: bytes, message: str) -> pa.BinaryArray:
    """Each struct as a Protobuf message; null where the struct is null. Columns become fields of the same name.

    ``descriptor_set``: a serialized FileDescriptorSet (``protoc --include_imports --descriptor_set_out``). ``message``:
    the full name. Raises ``SchemaMismatchError`` if the types don't fit, ``UnencodableRowsError`` with all rows that
    cannot be encoded. Needs ``pip install spark-kafka-sink[protobuf]``.
    """
    return _planned(descriptor_set, message, array.type).encode(array)


@lru_cache(64)
def _planned(descriptor_set: bytes, message: str, kind: pa.DataType) -> ProtobufEncoder:
    return ProtobufEncoder.plan(descriptor_set, message, kind)
