"""The table of versions is that of Kafka's message definitions, but for versions that are left out with a reason."""

from __future__ import annotations

import json
import re
import tracemalloc
from types import SimpleNamespace
from zipfile import ZipFile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import CONNECTION, Node
from spark_kafka_sink.errors import NetworkError, UnsupportedVersionError, WrongProtocolError
from spark_kafka_sink.network.api_versions import (
    CREATE_TOPICS_WITH_DEFAULTS,
    METADATA_WITHOUT_CREATION,
    SUPPORTED_VERSIONS,
    VersionRange,
    camel_case,
    produce_versions,
)
from spark_kafka_sink.network.connection import MAX_FRAME_BYTES, ApiVersions, FrameBuffer
from spark_kafka_sink.network.handshake import ChannelBuilder, negotiate_api_versions
from spark_kafka_sink.network.messages import API_KEYS, decode_response, schema
from spark_kafka_sink.testing.broker.apis.table import RELEASES
from spark_kafka_sink.testing.kafka_jars import kafka_jars
from tests.support.scripted_network import api_versions_response, response_frame
from tests.unit.network.conftest import end_txn_response


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


@pytest.mark.parametrize(
    ("api", "versions", "theirs", "says"),
    [
        ("produce", produce_versions(codec="zstd"), (0, 6), ["versions 0 to 6", "compression.type=zstd", "lz4"]),
        ("metadata", METADATA_WITHOUT_CREATION, (0, 3), ["versions 0 to 3", "create the topics"]),
        ("create_topics", CREATE_TOPICS_WITH_DEFAULTS, (0, 3), ["versions 0 to 3", "replication factor"]),
        ("produce", produce_versions(), (0, 2), ["versions 0 to 2", "this client supports versions 3 to 12"]),
    ],
)
def test_a_broker_that_is_too_old_is_an_error_that_says_what_needs_more(api, versions: VersionRange, theirs, says):
    broker = ApiVersions("b:9092 (id: 1)", {API_KEYS[api]: theirs}, {})
    assert not broker.speaks(API_KEYS[api], versions)
    with pytest.raises(UnsupportedVersionError) as raised:
        broker.pick(API_KEYS[api], *versions)
    assert all(text in str(raised.value) for text in ("b:9092 (id: 1)", camel_case(api), *says))


# Frames, and what peers of other protocols send.


def test_tagged_fields_of_the_response_header_are_skipped():
    response = schema("end_txn", 3).EndTxnResponse
    frame = response_frame(5, end_txn_response())
    body = frame[8:]
    assert body[0] == 0
    tagged = b"\x02" + b"\x00\x03abc" + b"\x07\x00" + body[1:]
    assert decode_response(tagged, response) == decode_response(body, response) == end_txn_response()


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@given(st.lists(st.binary(min_size=4, max_size=40), max_size=6), st.lists(st.integers(1, 30), min_size=1))
def test_frames_come_out_whole_however_the_bytes_arrive(bodies, cuts):
    stream = b"".join(frame(body) for body in bodies)
    frames = FrameBuffer("b:9092", MAX_FRAME_BYTES)
    read = []
    position = 0
    while position < len(stream):
        size = cuts[position % len(cuts)]
        read += [bytes(each) for each in frames.feed(stream[position : position + size])]
        position += size
    assert read == bodies


@pytest.mark.parametrize(
    ("bytes_read", "words"),
    [
        (
            b"\x15\x03\x03\x00\x02\x02\x46",
            "b:9092 responded like a TLS server: set security.protocol=SSL or SASL_SSL, or use",
        ),
        (b"\x16\x03\x01\x02\x00", "b:9092 responded like a TLS server"),
        (b"HTTP/1.1 400 Bad Request\r\n", "b:9092 responded like an HTTP server: use the port of a Kafka listener"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "b:9092 responded like an SSH server"),
        (b"220 mail ready\r\n", "is this the port of a Kafka listener"),
        (b"\x00\x00\x00\x03abc", "b:9092 responded with a frame of 3 bytes"),
        (b"\xff\xff\xff\xff", "a frame of -1 bytes"),
        ((MAX_FRAME_BYTES + 1).to_bytes(4, "big"), f"a frame of {MAX_FRAME_BYTES + 1} bytes"),
    ],
)
def test_bytes_of_other_protocols_are_named(bytes_read, words):
    with pytest.raises(WrongProtocolError, match=words.replace("(", r"\(")):
        list(FrameBuffer("b:9092", MAX_FRAME_BYTES).feed(bytes_read))


def test_a_promised_size_reserves_no_memory_before_its_bytes_arrive():
    frames = FrameBuffer("b:9092", MAX_FRAME_BYTES)
    tracemalloc.start()
    list(frames.feed(MAX_FRAME_BYTES.to_bytes(4, "big") + b"x" * 1000))
    _current, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


# The versions that a broker is asked for.


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


@pytest.mark.parametrize(("number", "name"), [(-1, "b:9092"), (CONNECTION + 1, "b:9092 (id: 1)")])
def test_incident_a_refused_handshake_named_the_number_of_its_connection(number, name):
    channels = ChannelBuilder(ProducerConfig.parse({"bootstrap.servers": "b:9092"}))
    handshake = channels.handshake(Node(number, "b", 9092))
    next(handshake)
    with pytest.raises(NetworkError, match=rf"^{re.escape(name)} gave ApiVersions a response that cannot be read"):
        [handshake.send(memoryview(b"")) for _ in range(2)]


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
