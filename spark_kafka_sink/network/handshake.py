"""The requests on a new connection before all others: a generator that yields requests and gets response bytes.

``Connection`` sends what the generator yields. It sends back the bytes after the response's correlation id. Further
steps (SASL) join by ``yield from``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from spark_kafka_sink import __version__
from spark_kafka_sink.errors import NetworkError
from spark_kafka_sink.network.codec import API_KEYS, decode_response, response_type, schema, throttle_time_ms
from spark_kafka_sink.network.connection import ApiVersions, Handshake

if TYPE_CHECKING:
    from kio.static.protocol import RequestPayload

API_VERSIONS = "api_versions"
CLIENT_SOFTWARE_NAME = "spark-kafka-sink"
LATEST_VERSION = 4
FIRST_NAMED_VERSION = 3


def negotiate_api_versions(peer: str) -> Handshake:
    """Sends the latest ApiVersions, then the highest version that the broker names, at last v0 (KIP-511).

    Sends v0, which has no tagged fields, also after a response whose fields this client cannot read.
    """
    version = LATEST_VERSION
    while True:
        data = yield _api_versions_request(version)
        try:
            response: Any = decode_response(data, response_type(API_VERSIONS, version))
        except NetworkError as error:
            if version == 0:
                raise NetworkError(f"{peer} gave ApiVersions a response that cannot be read: {error}") from error
            # A broker that does not know the version responds in v0.
            version = _next_version(data, version)
            continue
        if response.error_code == ErrorCode.unsupported_version and version > 0:
            version = _next_version(data, version)
        elif response.error_code:
            raise NetworkError(f"{peer} refused ApiVersions v{version}: {response.error_code.name.upper()}")
        else:
            return _api_versions(peer, response)


def _api_versions_request(version: int) -> RequestPayload:
    request = schema(API_VERSIONS, version).ApiVersionsRequest
    entity: RequestPayload = (
        request(client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=__version__)
        if version >= FIRST_NAMED_VERSION
        else request()
    )
    return entity


def _next_version(data: memoryview, refused: int) -> int:
    try:
        response: Any = decode_response(data, response_type(API_VERSIONS, 0))
    except NetworkError:
        return 0
    known = next((api.max_version for api in response.api_keys if api.api_key == API_KEYS[API_VERSIONS]), 0)
    return max(0, min(known, refused - 1)) if response.error_code == ErrorCode.unsupported_version else 0


def _api_versions(peer: str, response: Any) -> ApiVersions:
    return ApiVersions(
        peer,
        {int(api.api_key): (int(api.min_version), int(api.max_version)) for api in response.api_keys},
        {feature.name: int(feature.max_version_level) for feature in getattr(response, "finalized_features", ())},
        throttle_time_ms(response),
    )
