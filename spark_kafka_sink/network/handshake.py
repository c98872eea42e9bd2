"""What must be said on a new connection before anything else: a generator that yields requests and gets responses.

The generator neither sends nor receives: ``Connection`` sends what it yields, and sends back in what follows the
correlation id of the answer. Further steps (SASL) join by ``yield from``.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from spark_kafka_sink import __version__
from spark_kafka_sink.errors import NetworkError, UnsupportedVersionError
from spark_kafka_sink.network.codec import API_KEYS, api_name, decode_response, response_type, schema
from spark_kafka_sink.network.requests import throttle_time_ms

if TYPE_CHECKING:
    from kio.static.protocol import RequestPayload

API_VERSIONS = "api_versions"
CLIENT_SOFTWARE_NAME = "spark-kafka-sink"
LATEST_VERSION = 4
FIRST_NAMED_VERSION = 3
UNSUPPORTED_VERSION = 35


@dataclass(frozen=True, slots=True)
class ApiVersions:
    """What one broker speaks. ``features`` are the cluster's finalized ones, name to level (KIP-584).

    ``throttle_ms``: how long the broker reads nothing more from this connection (KIP-219).
    """

    peer: str
    ranges: Mapping[int, tuple[int, int]]
    features: Mapping[str, int]
    throttle_ms: float = 0.0

    def pick(self, api_key: int, our_min: int, our_max: int) -> int:
        """The highest version both sides speak; raises ``UnsupportedVersionError`` when there is none."""
        theirs = self.ranges.get(api_key)
        if theirs is None:
            raise UnsupportedVersionError(f"The broker {self.peer} does not support {api_name(api_key)}")
        version = min(our_max, theirs[1])
        if version < max(our_min, theirs[0]):
            raise UnsupportedVersionError(
                f"The broker {self.peer} supports {api_name(api_key)} in versions {theirs[0]} to {theirs[1]}, "
                f"this client in versions {our_min} to {our_max}"
            )
        return version


Handshake: TypeAlias = Generator["RequestPayload", memoryview, ApiVersions]


def negotiate_api_versions(peer: str) -> Handshake:
    """Asks with the latest ApiVersions and goes down to what the broker says it knows, at the end to v0 (KIP-511).

    Also goes down to v0, which has no tagged fields, when an answer has fields this client cannot read.
    """
    version = LATEST_VERSION
    while True:
        data = yield _api_versions_request(version)
        try:
            answer: Any = decode_response(data, response_type(API_VERSIONS, version))
        except NetworkError as error:
            if version == 0:
                raise NetworkError(f"{peer} gave ApiVersions an answer that cannot be read: {error}") from error
            # A broker that does not know the version answers in v0.
            version = _next_version(data, version)
            continue
        if answer.error_code == UNSUPPORTED_VERSION and version > 0:
            version = _next_version(data, version)
        elif answer.error_code:
            raise NetworkError(f"{peer} refused ApiVersions v{version}: {answer.error_code.name.upper()}")
        else:
            return _api_versions(peer, answer)


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
        answer: Any = decode_response(data, response_type(API_VERSIONS, 0))
    except NetworkError:
        return 0
    known = next((api.max_version for api in answer.api_keys if api.api_key == API_KEYS[API_VERSIONS]), 0)
    return max(0, min(known, refused - 1)) if answer.error_code == UNSUPPORTED_VERSION else 0


def _api_versions(peer: str, answer: Any) -> ApiVersions:
    return ApiVersions(
        peer,
        {int(api.api_key): (int(api.min_version), int(api.max_version)) for api in answer.api_keys},
        {feature.name: int(feature.max_version_level) for feature in getattr(answer, "finalized_features", ())},
        throttle_time_ms(answer),
    )
