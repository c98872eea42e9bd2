"""The table of versions is that of Kafka's message definitions, but for versions that are left out with a reason."""

from __future__ import annotations

import json
import re
from zipfile import ZipFile

import pytest

from spark_kafka_sink.errors import UnsupportedVersionError
from spark_kafka_sink.network.api_versions import (
    CREATE_TOPICS_WITH_DEFAULTS,
    METADATA_WITHOUT_CREATION,
    SUPPORTED_VERSIONS,
    VersionRange,
    between,
    camel_case,
    produce_versions,
)
from spark_kafka_sink.network.connection import ApiVersions
from spark_kafka_sink.network.messages import API_KEYS
from spark_kafka_sink.testing.broker.versions import RELEASES
from spark_kafka_sink.testing.kafka_jars import kafka_jars


@pytest.mark.jvm  # downloads the jar
def test_the_table_has_every_version_of_kafkas_message_definitions_and_says_why_others_are_left_out():
    release = "4.4.0"
    with ZipFile(kafka_jars(release) / f"kafka-clients-{release}.jar") as jar:
        for api, spoken in SUPPORTED_VERSIONS.items():
            text = jar.read(f"common/message/{camel_case(api)}Request.json").decode()
            valid = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))["validVersions"]
            lowest, _, highest = valid.partition("-")
            unsent = {*range(int(lowest), int(highest or lowest) + 1)} - {*range(spoken.lowest, spoken.highest + 1)}
            assert bool(spoken.unsent) == bool(unsent), api


@pytest.mark.parametrize("release", RELEASES)
def test_the_releases_of_the_table_are_those_in_which_brokers_got_the_versions(release):
    def key(text: str) -> list[int]:
        return [int(part) for part in text.split(".")]

    for api, spoken in SUPPORTED_VERSIONS.items():
        offered = RELEASES[release].versions.get(camel_case(api))
        for version, since in zip((spoken.lowest, spoken.highest), spoken.since, strict=True):
            assert (offered is not None and version <= offered.highest) == (key(since) <= key(release)), (api, version)


def test_a_range_is_a_part_of_the_table():
    with pytest.raises(ValueError, match="produce is spoken in versions 3 to 13, not 2 to 13"):
        between("produce", 2, 13)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (3, 12)),
        ({"by_id": True}, (3, 13)),
        ({"by_id": True, "protocol": 1}, (3, 11)),
        ({"protocol": 2}, (12, 12)),
        ({"by_id": True, "protocol": 2, "zstd": True}, (12, 13)),
        ({"by_id": True, "zstd": True}, (7, 13)),
        ({"protocol": 1, "zstd": True}, (7, 11)),
    ],
)
def test_the_versions_of_a_produce_request(given, expected):
    assert produce_versions(**given)[:2] == expected


@pytest.mark.parametrize(
    ("api", "versions", "theirs", "says"),
    [
        ("produce", produce_versions(zstd=True), (0, 6), ["versions 0 to 6", "compression.type=zstd", "lz4"]),
        ("metadata", METADATA_WITHOUT_CREATION, (0, 3), ["versions 0 to 3", "create the topics"]),
        ("create_topics", CREATE_TOPICS_WITH_DEFAULTS, (0, 3), ["versions 0 to 3", "replication factor"]),
        ("produce", produce_versions(), (0, 2), ["versions 0 to 2", "this client in versions 3 to 12"]),
    ],
)
def test_a_broker_that_is_too_old_is_an_error_that_says_what_needs_more(api, versions: VersionRange, theirs, says):
    broker = ApiVersions("b:9092 (id: 1)", {API_KEYS[api]: theirs}, {})
    assert not broker.speaks(API_KEYS[api], versions)
    with pytest.raises(UnsupportedVersionError) as raised:
        broker.pick(API_KEYS[api], *versions)
    assert all(text in str(raised.value) for text in ("b:9092 (id: 1)", camel_case(api), *says))
