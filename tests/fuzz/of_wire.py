"""What brokers send: frames, responses, handshakes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

from spark_kafka_sink.network.api_versions import PRODUCE_FIRST_WITH_TOPIC_IDS, SPOKEN
from spark_kafka_sink.network.connection import MAX_HANDSHAKE_FRAME_BYTES, FrameBuffer
from spark_kafka_sink.network.handshake import authenticate
from spark_kafka_sink.network.login.sasl import sasl_mechanism
from spark_kafka_sink.network.login.scram import scram_exchange
from spark_kafka_sink.network.messages import decode_response, response_type
from spark_kafka_sink.producer.sender.produce_api import TopicIds, read_response
from tests.properties.test_hostile_security import ALICE, configured, converse, honest, scram_messages
from tests.unit.login.scram_server import serve
from tests.unit.network.response_bytes import Shape

_PIECE: Final = 100
_VERSIONS: Final = [
    (api, version) for api, spoken in SPOKEN.items() for version in range(spoken.lowest, spoken.highest + 1)
]
_LOWEST_PRODUCE, _HIGHEST_PRODUCE = SPOKEN["produce"].lowest, SPOKEN["produce"].highest
_TOPIC_ID: Final = (1).to_bytes(16, "big")
_TOPIC_IDS: Final = TopicIds({"t": _TOPIC_ID}, {_TOPIC_ID: "t"})
_STEPS_OF_PLAIN: Final = 3


def frames(data: bytes) -> None:
    buffer = FrameBuffer("b:9092", MAX_HANDSHAKE_FRAME_BYTES)
    for start in range(0, len(data), _PIECE):
        for frame in buffer.feed(data[start : start + _PIECE]):
            assert 4 <= len(frame) <= len(data)


def frame_seeds() -> Sequence[bytes]:
    bodies = [b"\0\0\0\7", b"\0\0\0\1" + bytes(300), b"\0\0\0\2" + b"ab"]
    return [b"".join(len(body).to_bytes(4, "big") + body for body in bodies)]


def response(data: bytes) -> None:
    """The first two bytes say which API and version."""
    api, version = _VERSIONS[int.from_bytes(data[:2], "big") % len(_VERSIONS)]
    decode_response(data[2:], response_type(api, version))


def response_seeds() -> Sequence[bytes]:
    shapes = [Shape(b"name", 2), Shape(b"", 1, tags=2)]
    return [
        number.to_bytes(2, "big") + shape.response(response_type(api, version))
        for number, (api, version) in enumerate(_VERSIONS)
        for shape in shapes
        if version in (SPOKEN[api].lowest, SPOKEN[api].highest)
    ]


def produce_response(data: bytes) -> None:
    """The first byte says which version."""
    version = _LOWEST_PRODUCE + int.from_bytes(data[:1], "big") % (_HIGHEST_PRODUCE - _LOWEST_PRODUCE + 1)
    ids = _TOPIC_IDS if version >= PRODUCE_FIRST_WITH_TOPIC_IDS else None
    read_response(version, memoryview(data)[1:], topic_ids=ids)


def produce_seeds() -> Sequence[bytes]:
    versions = range(_LOWEST_PRODUCE, _HIGHEST_PRODUCE + 1)
    leaders = {("node_endpoints",): 1}
    shapes = [Shape(b"t", 1), Shape(b"t", 1, code=6, counts=leaders), Shape(b"t", 1, code=3, tags=1)]
    return [
        bytes([version - _LOWEST_PRODUCE]) + shape.response(response_type("produce", version))
        for version in versions
        for shape in shapes
    ]


def handshake(data: bytes) -> None:
    """The first byte says which response of the handshake it is."""
    converse("PLAIN", {int.from_bytes(data[:1], "big") % _STEPS_OF_PLAIN: data[1:]})


def handshake_seeds() -> Sequence[bytes]:
    config = configured("PLAIN")
    steps = authenticate("b:9092 (id: 1)", "b", config, sasl_mechanism(config))
    request, server = next(steps), serve("sha256", {})
    seeds = []
    for number in range(_STEPS_OF_PLAIN):
        body = honest(request, server, "PLAIN")
        seeds.append(bytes([number]) + body)
        try:
            request = steps.send(memoryview(body))
        except StopIteration:
            break
    return seeds


def scram(data: bytes) -> None:
    """The server's two messages, with a line end between them."""
    first, _, final = data.partition(b"\n")
    exchange = scram_exchange("sha256", ALICE, "nonce")
    next(exchange)
    exchange.send(first)
    try:
        exchange.send(final)
    except StopIteration:
        return
    raise AssertionError("SCRAM goes on after the server's last message")


@cache
def scram_seeds() -> Sequence[bytes]:
    return [b"\n".join(scram_messages()), b"r=nonce1,s=c2FsdA==,i=4096\ne=other-error"]
