"""From kio's entities to frames and back. Schemas are imported per API and version, at first use."""

from __future__ import annotations

import io
import struct
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer
from kio.serial.readers import read_unsigned_varint

from spark_kafka_sink.errors import NetworkError
from spark_kafka_sink.network.arrays import check_arrays

if TYPE_CHECKING:
    from kio.static.protocol import RequestPayload, ResponsePayload

R = TypeVar("R", bound="ResponsePayload")

API_KEYS = {name: key for key, name in api_key_map.items()}

_FIXED_HEADER = struct.Struct(">ihhih")
_SIZE_PREFIX = 4
_OWN_RESPONSES = frozenset({"describe_transactions"})


def camel_case(api: str) -> str:
    """Kafka's name of an API: ``init_producer_id`` is ``InitProducerId``."""
    return "".join(word.capitalize() for word in api.split("_"))


def api_name(api_key: int) -> str:
    return camel_case(api_key_map.get(api_key, f"api_{api_key}"))


@cache
def schema(api: str, version: int) -> ModuleType:
    """kio's module of one API version, ``kio.schema.<api>.v<version>``."""
    return import_module(f"kio.schema.{api}.v{version}")


@cache
def response_type(api: str, version: int) -> type[ResponsePayload]:
    """kio's entity, or ours where kio cannot read what brokers send."""
    module = import_module(f"spark_kafka_sink.network.{api}") if api in _OWN_RESPONSES else schema(api, version)
    entity: type[ResponsePayload] = getattr(module, f"{camel_case(api)}Response")
    return entity


def request_header(
    api_key: int, version: int, correlation_id: int, client_id: str, body_size: int, flexible: bool
) -> bytes:
    """The 4-byte size of a frame and its request header, v2 for a flexible API version and v1 otherwise.

    ``body_size`` is the number of bytes that follow what is returned.
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
    """The entity in ``data``, which is what follows the correlation id in a response frame.

    Raises ``NetworkError`` for bytes that are not such an entity, whatever they are.
    """
    try:
        offset = _after_tagged_fields(data) if entity_type.__header_schema__.__flexible__ else 0
        check_arrays(data, offset, entity_type)
        return entity_reader(entity_type)(data, offset)[0]
    except Exception as error:  # kio raises SerialError, ValueError, KeyError and more, by the field that is broken
        raise NetworkError(
            f"a {entity_type.__name__} v{entity_type.__version__} of {len(data)} bytes cannot be read: {error}"
        ) from error.with_traceback(None)


def _after_tagged_fields(data: bytes | memoryview) -> int:
    count, offset = read_unsigned_varint(data, 0)
    for _ in range(count):
        offset += read_unsigned_varint(data, offset)[1]
        size, read = read_unsigned_varint(data, offset)
        offset += read + size
    return offset
