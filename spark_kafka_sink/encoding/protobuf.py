"""Arrow columns → Protobuf messages, all rows at once.

``protobuf_plan.py`` makes a plan of descriptor and Arrow type; ``protobuf_fields.py`` is the plan, and encodes with it;
``protobuf_wire.py`` has the wire format.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from spark_kafka_sink.encoding.columns import Slots, plain_type
from spark_kafka_sink.encoding.encoder import Fault, SchemaMismatchError, UnencodableRowsError
from spark_kafka_sink.encoding.protobuf_fields import SLICE_ROWS, Message
from spark_kafka_sink.encoding.protobuf_wire import one_column
from spark_kafka_sink.records.columns import one_array


@dataclass(frozen=True, slots=True)
class ProtobufEncoder:
    """An ``Encoder`` of structs as one Protobuf message type."""

    kind: pa.DataType
    message: str
    plan_of_message: Message

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
            raise SchemaMismatchError([f"planned {self.message} from {self.kind}, not from {array.type}"])
        faults: list[Fault] = []
        slots = Slots(faults)
        encoded = [
            self.plan_of_message.encoded(array.slice(start, SLICE_ROWS), slots.slice(start), prefix)
            for start in range(0, len(array), SLICE_ROWS)
        ]
        if faults:
            first_of_row = {each.row: each for each in reversed(faults)}
            raise UnencodableRowsError([first_of_row[row] for row in sorted(first_of_row)])
        return one_column(encoded)


def encode_protobuf(array: pa.Array | pa.ChunkedArray, descriptor_set: bytes, message: str) -> pa.BinaryArray:
    """Each struct as a Protobuf message; null where the struct is null. Columns become fields of the same name.

    ``descriptor_set``: a serialized FileDescriptorSet (``protoc --include_imports --descriptor_set_out``). ``message``:
    the full name. Raises ``SchemaMismatchError`` if the types don't fit, ``UnencodableRowsError`` with all rows that
    cannot be encoded. Needs ``pip install spark-kafka-sink[protobuf]``.
    """
    array = one_array(array)
    return ProtobufEncoder.plan(descriptor_set, message, array.type).encode(array)
