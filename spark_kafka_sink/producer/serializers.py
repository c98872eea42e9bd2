"""Serializers: keys and values to bytes (Java: ``org.apache.kafka.common.serialization``).

All of them return None for None: a null key, or a tombstone.
"""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any, ClassVar, Final, Protocol, TypeAlias, cast

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.rules import check_given, instance
from spark_kafka_sink.errors import ConfigError, InvalidRecordError, SerializationError
from spark_kafka_sink.producer.record import Headers, ProducerRecord, checked_headers

_log = logging.getLogger("spark_kafka_sink.producer")

MutableHeaders: TypeAlias = list[tuple[str, bytes | None]]


class _SerializerPlugin(Protocol):
    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Called first, once: the producer's options by Kafka's names, and whether it serializes keys."""
        return

    def close(self) -> None:
        """Called once, when the producer is closed."""
        return


class Serializer(_SerializerPlugin, Protocol):
    """A ``key_serializer`` or ``value_serializer``; a class may inherit the methods it does not need.

    ``serialize`` is called on the caller's thread, by several threads at once if several send.
    """

    def serialize(self, topic: str, data: Any) -> bytes | None:
        """Returns the bytes. If it raises, ``send`` raises the same error, and the record is not sent."""


class HeadersSerializer(_SerializerPlugin, Protocol):
    """A ``Serializer`` whose ``serialize`` has a parameter ``headers``."""

    def serialize(self, topic: str, data: Any, headers: MutableHeaders) -> bytes | None:
        """Returns the bytes. ``headers``: the headers of the record to send, which it may change; the value's
        serializer gets them after the key's. The caller's ``ProducerRecord`` stays as it is.
        """


AnySerializer: TypeAlias = Serializer | HeadersSerializer
"""``serialize`` gets the headers if it has a parameter of that name."""

GivenSerializer: TypeAlias = AnySerializer | Callable[[Any], bytes | None]
"""An argument of a producer. A function gets the key or value and returns its bytes; it is not called for None."""

_METHODS: Final = ("configure", "serialize", "close")


class RecordSerializers:
    """The serializers of a producer's keys and values. With neither it is false and returns records as they are."""

    def __init__(self, key: AnySerializer | None, value: AnySerializer | None) -> None:
        self._given = tuple((is_key, each) for is_key, each in ((True, key), (False, value)) if each is not None)
        self._key, self._value = _Side(key), _Side(value)
        self._take_headers = self._key.takes_headers or self._value.takes_headers

    @classmethod
    def load(
        cls,
        config: ProducerConfig,
        key: GivenSerializer | None,
        value: GivenSerializer | None,
        default: AnySerializer | None = None,
    ) -> RecordSerializers:
        """The given serializers, else instances of the classes that ``config`` names, else ``default``.

        Raises ``ConfigError``.
        """
        return cls(
            _serializer("key", key, config.key_serializer, default),
            _serializer("value", value, config.value_serializer, default),
        )

    def __bool__(self) -> bool:
        return bool(self._given)

    def configure(self, config: Mapping[str, object]) -> None:
        """Configures the serializers. Raises a serializer's error, so that no producer is made."""
        for is_key, serializer in self._given:
            serializer.configure(config, is_key)

    def serialize(self, record: ProducerRecord) -> tuple[Any, Any, Headers | None]:
        """Key, value and headers to send."""
        headers = list(record.headers or ()) if self._take_headers else []
        key = self._key.serialize(record.topic, record.key, headers)
        value = self._value.serialize(record.topic, record.value, headers)
        if not self._take_headers:
            return key, value, record.headers
        try:
            return key, value, checked_headers(headers) or None
        except InvalidRecordError as error:
            raise SerializationError(
                f"A serializer left an invalid header in a record of topic {record.topic}: {error}"
            ) from error

    def serialize_key(self, topic: str, key: Any) -> Any:
        """The bytes of a key that belongs to no record, and so has no headers."""
        return self._key.serialize(topic, key, [])

    def close(self) -> None:
        """Close both, then raise the first error of them."""
        first: Exception | None = None
        for _, serializer in self._given:
            try:
                serializer.close()
            except Exception as error:
                _log.warning("%s failed in close", type(serializer).__name__, exc_info=True)
                first = first or error
        if first is not None:
            raise first


class _Side:
    """The serializer of the keys or of the values, if there is one."""

    def __init__(self, serializer: AnySerializer | None) -> None:
        self.takes_headers = serializer is not None and "headers" in signature(serializer.serialize).parameters
        self._with_headers = cast("HeadersSerializer", serializer) if self.takes_headers else None
        self._plain = None if self.takes_headers else cast("Serializer | None", serializer)

    def serialize(self, topic: str, data: Any, headers: MutableHeaders) -> Any:
        if self._with_headers is not None:
            return self._with_headers.serialize(topic, data, headers=headers)
        return data if self._plain is None else self._plain.serialize(topic, data)


def _serializer(
    side: str, given: GivenSerializer | None, name: str | None, default: AnySerializer | None
) -> AnySerializer | None:
    if given is None:
        return default if name is None else instance(f"{side}.serializer", name, _METHODS, "Serializer")
    if callable(given) and not hasattr(given, "serialize") and not isinstance(given, type):
        return _Function(f"{side}_serializer", given)
    either = f"Serializer, or give a function of the {side}, such as lambda {side}: {side}.encode()"
    check_given(f"{side}_serializer", given, _METHODS, either)
    return cast("AnySerializer", given)


class _Function(Serializer):
    """A function as a serializer."""

    def __init__(self, argument: str, function: Callable[[Any], bytes | None]) -> None:
        """Raises ``ConfigError`` for a function that cannot be called with one argument."""
        self._function = function
        try:
            signature(function).bind(None)
        except TypeError as error:
            raise ConfigError(
                [f"{argument} is called with one argument, which {function!r:.80} refuses: {error}."]
            ) from error
        except ValueError:  # some of C have no signature
            return

    def serialize(self, topic: str, data: Any) -> bytes | None:
        return None if data is None else self._function(data)


class BytesSerializer(Serializer):
    """bytes, and copies of bytearrays and memoryviews (Java: ``ByteArraySerializer``)."""

    def serialize(self, topic: str, data: Any) -> bytes | None:
        if data is None or data.__class__ is bytes:
            return data
        if not isinstance(data, bytes | bytearray | memoryview):
            raise _not_serializable(self, topic, data, "bytes, a bytearray or a memoryview")
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
            raise _not_serializable(self, topic, data, "a str")
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
            raise _not_serializable(self, topic, data, "an int")
        try:
            return data.to_bytes(self.size, "big", signed=True)
        except OverflowError as error:
            bits = 8 * self.size - 1
            raise _not_serializable(self, topic, data, f"an int from -2^{bits} to 2^{bits} - 1") from error


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
            raise _not_serializable(self, topic, data, "a float")
        try:
            return struct.pack(">d", float(data))
        except OverflowError as error:
            raise _not_serializable(self, topic, data, "a number within the range of a double") from error


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
            raise _not_serializable(self, topic, data, "None")
        return None


def _not_serializable(serializer: Serializer, topic: str, data: object, wanted: str) -> SerializationError:
    return SerializationError(
        f"{type(serializer).__name__} takes {wanted}, not the {type(data).__name__} {data!r:.80} (topic {topic})."
    )
