"""Responses bent in any way: the sender takes no harm, and every row ends as delivered or with an error, in time."""

from __future__ import annotations

import contextlib
import struct
from collections import deque
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.network.messages import API_KEYS
from spark_kafka_sink.producer.receipt import SendReceipt
from tests.support.scripted_network import SentRequest, response_frame
from tests.unit.scripted_engine import RANGES, TOPIC, Engine

REQUEST_TIMEOUT_MS = 1000
DELIVERY_TIMEOUT_MS = 5000
MAX_BLOCK_MS = 20
"""Of real time, which an append waits for a topic that a bent response has taken away: nothing else runs here."""

Bend = Callable[[bytes], list[bytes]]
"""A frame → what comes instead, piece by piece."""


def cut_short(size: int) -> Bend:
    return lambda frame: [frame[: size % len(frame)]]


def with_other_bytes(changes: list[tuple[int, int]]) -> Bend:
    """Behind the length, so that the frame stays one."""

    def bend(frame: bytes) -> list[bytes]:
        changed = bytearray(frame)
        for place, byte in changes:
            changed[4 + place % (len(frame) - 4)] = byte
        return [bytes(changed)]

    return bend


def with_length(length: int) -> Bend:
    return lambda frame: [struct.pack(">i", length) + frame[4:]]


def with_more(data: bytes) -> Bend:
    return lambda frame: [struct.pack(">i", len(frame) - 4 + len(data)) + frame[4:] + data]


def instead(data: bytes) -> Bend:
    return lambda _: [data]


def in_pieces(size: int) -> Bend:
    return lambda frame: [frame[start : start + size] for start in range(0, len(frame), size)]


BENDS = st.one_of(
    st.builds(cut_short, st.integers(0, 200)),
    st.builds(with_other_bytes, st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=4)),
    st.builds(with_length, st.integers(-(2**31), 2**31 - 1)),
    st.builds(with_more, st.binary(min_size=1, max_size=20)),
    st.builds(instead, st.binary(max_size=40)),
    st.builds(in_pieces, st.integers(1, 7)),
    st.just(lambda frame: [frame, frame]),
    st.just(lambda frame: []),
)


class HostileEngine(Engine):
    """Answers honestly but for the first ``bends``, each of which bends one answer."""

    def __init__(self, bends: list[Bend]) -> None:
        timeouts = {"request_timeout_ms": REQUEST_TIMEOUT_MS, "delivery_timeout_ms": DELIVERY_TIMEOUT_MS}
        super().__init__(linger_ms=0, max_block_ms=MAX_BLOCK_MS, **timeouts)
        self.connect()
        self.bends = deque(bends)
        self.transport.respond = self.respond  # type: ignore[method-assign]

    def append(self, values: list[bytes], partition: int = 0, receipt: SendReceipt | None = None) -> None:
        """A bent response may have taken the topic away: the manual clock goes on while the rows wait for it."""
        self.wait_for_topic(TOPIC, MAX_BLOCK_MS, lambda: self.turn(MAX_BLOCK_MS / 4), partition)
        super().append(values, partition, receipt)

    def _respond(self, request: SentRequest) -> Any:
        lowest, highest = RANGES[API_KEYS[request.api]]
        if lowest <= request.version <= highest:
            return super()._respond(request)
        # A bent ApiVersions answer promised it. Brokers hang up then.
        self.transport.drop(request.connection_id, "the broker closed the connection")
        return None

    def respond(self, request: SentRequest, response: Any) -> None:
        frame = response_frame(request.correlation_id, response)
        for piece in self.bends.popleft()(frame) if self.bends else [frame]:
            self.transport.receive(request.connection_id, piece)


@settings(max_examples=150, deadline=None)
@given(bends=st.lists(BENDS, min_size=1, max_size=8))
def test_whatever_a_broker_answers_rows_end_in_time_and_the_sender_goes_on(bends: list[Bend]) -> None:
    engine = HostileEngine(bends)
    for row in range(3):
        receipt = SendReceipt()
        appended_at = engine.clock.now()
        with contextlib.suppress(KafkaError):  # a refused producer id ends the producer: then it says so here
            engine.append([b"%d" % row], receipt=receipt)
        engine.settle()
        with contextlib.suppress(KafkaError):
            receipt.wait(0)
        assert engine.clock.now() - appended_at <= DELIVERY_TIMEOUT_MS + REQUEST_TIMEOUT_MS
        assert engine.memory_is_free()
