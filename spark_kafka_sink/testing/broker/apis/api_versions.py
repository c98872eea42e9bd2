"""ApiVersions (18): the APIs and versions of this broker.

Emulated: the ranges of the imitated release, finalized features from version 3 on, and the response to a version that
is not offered: UNSUPPORTED_VERSION with the list, in version 0 (KIP-511).
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from spark_kafka_sink.testing.broker.request_context import RequestContext
from spark_kafka_sink.testing.broker.versions import API_KEYS, Release
from spark_kafka_sink.testing.broker.wire import Fields


def handle(context: RequestContext) -> Fields:
    return versions_response(context.state.release_of(context.request.node), context.scripted())


def versions_response(release: Release, error: ErrorCode) -> Fields:
    features = release.features.items()
    return {
        "error_code": error,
        "api_keys": [
            {"api_key": API_KEYS[api], "min_version": offered.lowest, "max_version": offered.highest}
            for api, offered in sorted(release.versions.items(), key=lambda item: API_KEYS[item[0]])
        ],
        "finalized_features_epoch": 1 if features else -1,
        "finalized_features": [
            {"name": name, "max_version_level": level, "min_version_level": level} for name, level in features
        ],
    }
