from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.index import schema_name_map
from kio.static.constants import EntityType

from spark_kafka_sink.errors import WrongProtocolError
from spark_kafka_sink.network.connection import MAX_FRAME_BYTES, FrameBuffer
from spark_kafka_sink.network.messages import camel_case, decode_response, schema
from tests.support.scripted_network import response_frame


def test_the_names_of_kios_classes_follow_from_the_name_of_the_api():
    for api, versions in schema_name_map.items():
        for entities in versions.values():
            for kind in {EntityType.request, EntityType.response} & entities.keys():
                assert entities[kind].endswith(f":{camel_case(api)}{kind.name.capitalize()}")


def test_tagged_fields_of_the_response_header_are_skipped(answer_end_txn):
    response = schema("end_txn", 3).EndTxnResponse
    frame = response_frame(5, answer_end_txn())
    body = frame[8:]
    assert body[0] == 0
    tagged = b"\x02" + b"\x00\x03abc" + b"\x07\x00" + body[1:]
    assert decode_response(tagged, response) == decode_response(body, response) == answer_end_txn()


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
