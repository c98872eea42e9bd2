"""The registry's wire format: where an encoded key or value names its schema.

Either in front of the value (magic 0, id), or in a header (magic 1, GUID). Protobuf adds the indexes that lead to the
message within its file (Java: ``PrefixSchemaIdSerializer``, ``HeaderSchemaIdSerializer``, ``MessageIndexes``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from spark_kafka_sink.records.sizes import encode_varint

KEY_HEADER: Final = "__key_schema_id"
VALUE_HEADER: Final = "__value_schema_id"

_MAGIC_ID = b"\0"
_MAGIC_GUID = b"\1"


def id_prefix(schema_id: int, message_indexes: Sequence[int] = ()) -> bytes:
    """What stands in front of the value. ``message_indexes``: of Protobuf, else empty."""
    return _MAGIC_ID + schema_id.to_bytes(4, "big") + _indexes(message_indexes)


def guid_header(guid: bytes, message_indexes: Sequence[int] = ()) -> bytes:
    """The value of ``KEY_HEADER`` or ``VALUE_HEADER``. ``guid``: 16 bytes."""
    return _MAGIC_GUID + guid + _indexes(message_indexes)


def _indexes(message_indexes: Sequence[int]) -> bytes:
    """Their count, then each, as varints; the first message of a file, ``[0]``, is one zero."""
    if not message_indexes:
        return b""
    if tuple(message_indexes) == (0,):
        return encode_varint(0)
    return b"".join(encode_varint(number) for number in (len(message_indexes), *message_indexes))
