"""A request as the client sees it: what to send, and whom to tell how it went."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.network.codec import API_KEYS, decode_response, encode_request, response_type, schema
from spark_kafka_sink.network.transport import Bytes

if TYPE_CHECKING:
    from kio.static.protocol import RequestPayload

PRODUCE_VERSIONS = (9, 12)


class Response(NamedTuple):
    """How a request ended: ``body`` or ``error``, never both; neither when no response was expected.

    ``disconnected``: the connection ended first, so the broker may or may not have done what was asked.
    ``latency_ms`` is counted from the moment of sending, ``completed_at`` is the moment of the answer (monotonic ms).
    """

    node_id: int
    api_version: int
    body: object | None
    error: KafkaError | None
    latency_ms: float
    completed_at: float
    disconnected: bool = False


@dataclass(slots=True)
class Request:
    """One request to one broker; ``on_complete`` is called exactly once.

    ``versions`` is what we speak, lowest and highest; the highest that the broker speaks too is used.
    ``build(version, correlation_id, client_id)`` gives the whole frame, the 4-byte size and the request header first
    (see ``codec.request_header``); its buffers are sent as they are and must not change until the request completes.
    ``parse(version, data)`` gets what follows the correlation id of the response (see ``codec.decode_response``);
    whatever it raises closes the connection.
    ``timeout_ms`` defaults to ``request.timeout.ms``.
    """

    api_key: int
    build: Callable[[int, int, str], Sequence[Bytes]]
    versions: tuple[int, int]
    parse: Callable[[int, memoryview], object]
    on_complete: Callable[[Response], None]
    expects_response: bool = True
    timeout_ms: float | None = None


def kio_request(
    api: str,
    min_version: int,
    max_version: int,
    make: Callable[[ModuleType, int], RequestPayload],
    on_complete: Callable[[Response], None],
    timeout_ms: float | None = None,
) -> Request:
    """A request made of kio's entities; the response's ``body`` is kio's response entity.

    ``api`` is kio's name (``init_producer_id``); ``make(module, version)`` gets the module of that API version, with
    the entity classes in it.
    """
    return Request(
        api_key=API_KEYS[api],
        build=lambda version, correlation_id, client_id: (
            encode_request(make(schema(api, version), version), correlation_id, client_id),
        ),
        versions=(min_version, max_version),
        parse=lambda version, data: decode_response(data, response_type(api, version)),
        on_complete=on_complete,
        timeout_ms=timeout_ms,
    )


def throttle_time_ms(body: object) -> float:
    """How long the broker wants to be left alone (KIP-219); 0 for a body that does not say."""
    throttle = getattr(body, "throttle_time", None)
    return float(throttle.total_seconds() * 1000.0) if throttle is not None else 0.0
