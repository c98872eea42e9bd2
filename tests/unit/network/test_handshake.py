from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest
from kio.schema.errors import ErrorCode

from spark_kafka_sink.errors import NetworkError
from spark_kafka_sink.network.connection import ApiVersions
from spark_kafka_sink.network.handshake import negotiate_api_versions
from spark_kafka_sink.network.messages import schema
from tests.support.scripted_network import api_versions_response, response_frame


def body(version: int, ranges: dict[int, tuple[int, int]]) -> memoryview:
    request = SimpleNamespace(module=schema("api_versions", version), version=version)
    return memoryview(response_frame(0, api_versions_response(request, ranges))[8:])


def unsupported(ranges: dict[int, tuple[int, int]]) -> memoryview:
    v0 = schema("api_versions", 0).response
    keys = tuple(v0.ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in ranges.items())
    answer = v0.ApiVersionsResponse(error_code=ErrorCode.unsupported_version, api_keys=keys)
    return memoryview(response_frame(0, answer)[8:])


def versions_asked(answers: list[memoryview]) -> tuple[list[int], ApiVersions | None]:
    handshake = negotiate_api_versions("b:9092 (id: 1)")
    asked = [next(handshake).__version__]
    for answer in answers:
        try:
            request = handshake.send(answer)
        except StopIteration as done:
            return asked, done.value
        asked.append(request.__version__)
    return asked, None


def test_a_current_broker_is_asked_once_and_names_itself_to_it():
    handshake = negotiate_api_versions("b:9092 (id: 1)")
    request = next(handshake)
    assert (request.__version__, request.client_software_name) == (4, "spark-kafka-sink")
    asked, versions = versions_asked([body(4, {0: (0, 13), 3: (0, 13)})])
    assert asked == [4]
    assert versions.ranges == {0: (0, 13), 3: (0, 13)}


@pytest.mark.parametrize("first", [unsupported({}), unsupported({18: (0, 0)}), memoryview(b"\x00\x23")])
def test_a_broker_that_does_not_say_is_asked_with_v0(first):
    asked, versions = versions_asked([first, body(0, {0: (0, 3)})])
    assert asked == [4, 0]
    assert versions.ranges == {0: (0, 3)}


def test_a_broker_that_never_agrees_is_not_asked_for_ever():
    with pytest.raises(NetworkError, match=r"b:9092 .* refused ApiVersions v0: UNSUPPORTED_VERSION"):
        versions_asked([unsupported({18: (0, 9)})] * 10)
    with pytest.raises(NetworkError, match=r"b:9092 .* gave ApiVersions a response that cannot be read"):
        versions_asked([memoryview(b"\xff")] * 10)


def test_finalized_features_are_kept():
    v4 = schema("api_versions", 4).response
    feature = v4.FinalizedFeatureKey(name="transaction.version", max_version_level=2, min_version_level=2)
    answer = v4.ApiVersionsResponse(
        error_code=ErrorCode.none, api_keys=(), throttle_time=timedelta(0), finalized_features=(feature,)
    )
    _asked, versions = versions_asked([memoryview(response_frame(0, answer)[8:])])
    assert versions.features == {"transaction.version": 2}
