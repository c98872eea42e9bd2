"""Serializers: keys and values to bytes (Java: ``org.apache.kafka.common.serialization``).

All of them return None for None: a null key, or a tombstone.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from spark_kafka_sink.errors import SerializationError


class Serializer(Protocol):
    """A ``key_serializer`` or ``value_serializer``; a class may inherit the methods it does not need.

    ``serialize`` is called on the caller's thread, by several threads at once if several send.
    """

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Called first, once: the producer's options by Kafka's names, and whether it serializes keys."""
        return

    def serialize(self, topic: str, data: Any) -> bytes | None:
        """Returns the bytes. ``send`` raises the error that this raises; the record is not sent."""

    def close(self) -> None:
        """Called once, when the producer is closed."""
        return


class BytesSerializer(Serializer):
    """bytes, and copies of bytearrays and memoryviews (Java: ``ByteArraySerializer``)."""

    def serialize(self, topic: str, data: Any) -> bytes | None:
        if data is None or data.__class__ is bytes:
            return data
        if not isinstance(data, bytes | bytearray | memoryview):
            raise _refusal(self, topic, data, "bytes, a bytearray or a memoryview")
        return bytes(data)


class StringSerializer(Serializer):
    """str in ``encoding`` (Java: ``StringSerializer``). A lone surrogate is an error."""

    def __init__(self, encoding: str = "utf-8") -> None:
        "".encode(encoding)  # an unknown encoding is an error here, not at the first record
        self._encoding = encoding

    def serialize(self, topic: str, data: Any) -> bytes | None:
        if data is None:
            return None
        if not isinstance(data, str):
            raise _refusal(self, topic, data, "a str")
        try:
            return data.encode(self._encoding)
        except UnicodeEncodeError as error:
            raise SerializationError(f"StringSerializer cannot serialize a str for topic {topic}: {error}.") from error


class _IntegralSerializer(Serializer):
    """int in ``size`` bytes, big-endian."""

    size: ClassVar[int]

    def serialize(self, topic: str, data: Any) -> bytes | None:
        if data is None:
            return None
        if not isinstance(data, int) or isinstance(data, bool):
            raise _refusal(self, topic, data, "an int")
        try:
            return data.to_bytes(self.size, "big", signed=True)
        except OverflowError as error:
            bits = 8 * self.size - 1
            raise _refusal(self, topic, data, f"an int from -2^{bits} to 2^{bits} - 1") from error


class IntegerSerializer(_IntegralSerializer):
    """int in 4 bytes, big-endian (Java: ``IntegerSerializer``)."""

    size = 4


class LongSerializer(_IntegralSerializer):
    """int in 8 bytes, big-endian (Java: ``LongSerializer``)."""

    size = 8


class DoubleSerializer(Serializer):
    """float or int in 8 bytes, big-endian IEEE 754 (Java: ``DoubleSerializer``)."""

    def serialize(self, topic: str, data: Any) -> bytes | None:
        if data is None:
            return None
        if not isinstance(data, float | int) or isinstance(data, bool):
            raise _refusal(self, topic, data, "a float")
        try:
            return struct.pack(">d", float(data))
        except OverflowError as error:
            raise _refusal(self, topic, data, "a number within the range of a double") from error


class JsonSerializer(Serializer):
    """Arguments of ``json.dumps`` as compact UTF-8, keys in their order. NaN and infinity are errors."""

    def serialize(self, topic: str, data: Any) -> bytes | None:
        if data is None:
            return None
        try:
            return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise SerializationError(
                f"JsonSerializer cannot serialize a {type(data).__name__} for topic {topic}: {error}."
            ) from error


class NullSerializer(Serializer):
    """None only (Java: ``VoidSerializer``)."""

    def serialize(self, topic: str, data: Any) -> bytes | None:
        if data is not None:
            raise _refusal(self, topic, data, "None")
        return None


def _refusal(serializer: Serializer, topic: str, data: object, wanted: str) -> SerializationError:
    return SerializationError(
        f"{type(serializer).__name__} takes {wanted}, not the {type(data).__name__} {data!r:.80} (topic {topic})."
    )
