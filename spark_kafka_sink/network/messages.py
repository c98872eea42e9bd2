"""Requests, responses and their bytes. kio's schema of an API version is imported at its first use."""

from __future__ import annotations

import io
import logging
import struct
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, field, fields, is_dataclass, make_dataclass
from datetime import timedelta
from functools import cache, reduce
from importlib import import_module
from operator import is_, or_
from types import GenericAlias, ModuleType, UnionType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar, get_args, get_origin

from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer
from kio.serial.readers import read_unsigned_varint
from kio.static.primitive import i64

from spark_kafka_sink.errors import KafkaError, NetworkError, RequestBuildError
from spark_kafka_sink.network.api_versions import VersionRange, camel_case
from spark_kafka_sink.network.response_check import MAX_TAGGED_FIELDS, check_response, impossible

if TYPE_CHECKING:
    from kio.static.protocol import RequestPayload, ResponsePayload

_log = logging.getLogger("spark_kafka_sink.network")

R = TypeVar("R", bound="ResponsePayload")
E = TypeVar("E")

API_KEYS = {name: key for key, name in api_key_map.items()}

Bytes: TypeAlias = bytes | bytearray | memoryview
"""A memoryview must have single bytes as items, so that its length is its size."""

_OF_ENTITY = frozenset({"__type__", "__version__", "__flexible__", "__api_key__", "__header_schema__"})
_TIMES: Final = ("datetime_i64", "timedelta_i64")
_MILLISECOND: Final = timedelta(milliseconds=1)
_FIXED_HEADER = struct.Struct(">ihhih")
_SIZE_PREFIX = 4


class Response(NamedTuple):
    """The end of a request: ``body`` or ``error``, never both; neither when no response was expected.

    ``disconnected``: the connection ended first, so the broker may have handled the request or not.
    ``latency_ms`` counts from the send; ``completed_at`` is when the response arrived (monotonic ms).
    """

    node_id: int
    api_version: int
    body: object | None
    error: KafkaError | None
    latency_ms: float
    completed_at: float
    disconnected: bool = False


CompletionHandler: TypeAlias = Callable[[Response], None]
"""A function that takes the end of one request (Java: ``RequestCompletionHandler``)."""


class Request:
    """One request to one broker. ``NetworkClient`` calls ``on_complete`` exactly once.

    ``versions``: the versions that it may have. The highest version that the broker also speaks is used.
    """

    def __init__(
        self, api_key: int, versions: VersionRange, on_complete: CompletionHandler, expects_response: bool = True
    ) -> None:
        self.api_key = api_key
        self.versions = versions
        self.on_complete = on_complete
        self.expects_response = expects_response

    def build(self, version: int, correlation_id: int, client_id: str) -> Sequence[Bytes]:
        """The whole frame, size and header first (``request_header``).

        The buffers are sent without a copy and must not change before the request completes. An exception ends the
        request with ``RequestBuildError``.
        """
        raise NotImplementedError

    def parse(self, version: int, data: memoryview) -> object:
        """The response's body, from the bytes after the correlation id; an exception closes the connection."""
        raise NotImplementedError


MakeEntity: TypeAlias = "Callable[[ModuleType, int], RequestPayload]"
"""Makes kio's request entity of one API version, from the module that holds that version's classes."""


class KioRequest(Request):
    """A request made of kio's entities; the response's body is kio's entity. ``api``: kio's name (``end_txn``)."""

    def __init__(self, api: str, versions: VersionRange, make: MakeEntity, on_complete: CompletionHandler) -> None:
        super().__init__(API_KEYS[api], versions, on_complete)
        self._api = api
        self._make = make

    def build(self, version: int, correlation_id: int, client_id: str) -> Sequence[Bytes]:
        return (encode_request(self._make(schema(self._api, version), version), correlation_id, client_id),)

    def parse(self, version: int, data: memoryview) -> object:
        body = decode_response(data, response_type(self._api, version))
        if (fault := impossible(body)) is not None:
            raise NetworkError(f"its {fault}, which is impossible")
        return body


def throttle_time_ms(body: object) -> float:
    """How long the client must not send to this broker (KIP-219); 0 for a body without a throttle time."""
    throttle = getattr(body, "throttle_time", None)
    return float(throttle.total_seconds() * 1000.0) if throttle is not None else 0.0


def api_name(api_key: int) -> str:
    return camel_case(api_key_map.get(api_key, f"api_{api_key}"))


@cache
def schema(api: str, version: int) -> ModuleType:
    """kio's module of one API version, ``kio.schema.<api>.v<version>``."""
    return import_module(f"kio.schema.{api}.v{version}")


@cache
def response_type(api: str, version: int) -> type[ResponsePayload]:
    """The type of kio's entity, with numbers instead of times."""
    entity: type[ResponsePayload] = getattr(schema(api, version), f"{camel_case(api)}Response")
    return with_plain_times(entity)


@cache
def with_plain_times(entity: type[E]) -> type[E]:
    """The entity with int64 for each time and duration of 64 bits: ms, -1 for none. A peer may send any number, and
    ``datetime`` ends with the year 9999.
    """
    made = [_with_plain_time(each) for each in fields(entity)]  # type: ignore[arg-type]  # a dataclass
    if all(kind is each.type for (_, kind, _), each in zip(made, fields(entity), strict=True)):  # type: ignore[arg-type]
        return entity
    of_class = {name: value for name, value in vars(entity).items() if name in _OF_ENTITY}
    return make_dataclass(entity.__name__, made, namespace=of_class, frozen=True, slots=True, kw_only=True)


def _with_plain_time(given: Field[Any]) -> tuple[str, Any, Any]:
    """Name, type and field for ``make_dataclass``."""
    metadata, default, kind = dict(given.metadata), given.default, _plain_type(given.type)
    if metadata.get("kafka_type") in _TIMES:
        metadata["kafka_type"], kind = "int64", i64
        default = default if default is MISSING else i64(-1 if default is None else default // _MILLISECOND)
    return given.name, kind, field(default=default, metadata=metadata)


def _plain_type(kind: Any) -> Any:
    parts = get_args(kind)
    plain = [_plain_type(part) for part in parts] if parts else []
    if is_dataclass(kind):
        return with_plain_times(kind)  # type: ignore[arg-type]  # a class
    if all(map(is_, plain, parts)):
        return kind
    return reduce(or_, plain) if isinstance(kind, UnionType) else GenericAlias(get_origin(kind), tuple(plain))


def build_error(api_key: int, error: Exception) -> RequestBuildError:
    """The error of a request whose bytes could not be made. The trace is logged but not kept with the error, because it
    holds batches.
    """
    _log.error("A request %s could not be built", api_name(api_key), exc_info=error)
    failed = RequestBuildError(f"The request {api_name(api_key)} could not be built: {error!r}")
    failed.__cause__ = error.with_traceback(None)
    return failed


def request_header(
    api_key: int, version: int, correlation_id: int, client_id: str, body_size: int, flexible: bool
) -> bytes:
    """Frame size (4 bytes) and request header: v2 for a flexible API version, else v1.

    ``body_size``: number of bytes that follow the returned ones.
    """
    client = client_id.encode()
    tail = b"\x00" if flexible else b""
    size = _FIXED_HEADER.size - _SIZE_PREFIX + len(client) + len(tail) + body_size
    return _FIXED_HEADER.pack(size, api_key, version, correlation_id, len(client)) + client + tail


def encode_request(request: RequestPayload, correlation_id: int, client_id: str) -> bytes:
    """A whole frame: size, header and body."""
    buffer = io.BytesIO()
    entity_writer(type(request))(buffer, request)
    body = buffer.getvalue()
    head = request_header(
        request.__api_key__, request.__version__, correlation_id, client_id, len(body), request.__flexible__
    )
    return head + body


def decode_response(data: bytes | memoryview, entity_type: type[R]) -> R:
    """The entity in ``data``, the bytes after the correlation id. Raises ``NetworkError`` for any other bytes.

    An unknown error code becomes UNKNOWN_SERVER_ERROR; an unknown tagged field is left out.
    """
    try:
        offset = _after_tagged_fields(data) if entity_type.__header_schema__.__flexible__ else 0
        readable = check_response(data, offset, entity_type).readable(data)
        return entity_reader(entity_type)(readable, offset)[0]
    except Exception as error:  # kio raises SerialError, ValueError, KeyError and more, by the field that is broken
        raise NetworkError(
            f"a {entity_type.__name__} v{entity_type.__version__} of {len(data)} bytes cannot be read: {error}"
        ) from error.with_traceback(None)


def _after_tagged_fields(data: bytes | memoryview) -> int:
    count, offset = read_unsigned_varint(data, 0)
    if count > MAX_TAGGED_FIELDS:
        raise ValueError(f"the header has {count} tagged fields")
    for _ in range(count):
        offset += read_unsigned_varint(data, offset)[1]
        size, read = read_unsigned_varint(data, offset)
        offset += read + size
    return offset
