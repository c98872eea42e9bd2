from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest
from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import Node
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.messages import KioRequest, Request, Response, schema
from tests.support.manual_clock import ManualClock
from tests.support.scripted_network import ScriptedTransport, SentRequest, api_versions_response

CONFIG = ProducerConfig.parse({"bootstrap.servers": "boot:9092", "client.id": "me"})
RANGES = {0: (3, 13), 3: (0, 13), 18: (0, 4), 26: (0, 5)}


class Turns:
    """A client on a scripted transport, turned by hand."""

    def __init__(self, ranges: dict[int, tuple[int, int]] = RANGES, **config: float) -> None:
        self.clock = ManualClock()
        self.transport = ScriptedTransport(self._answer, accept_all=True)
        self.client = NetworkClient(replace(CONFIG, **config), self.transport, Random(3))
        self.responses: list[Response] = []
        self.ranges = ranges

    def _answer(self, request: SentRequest):
        return api_versions_response(request, self.ranges) if request.api == "api_versions" else None

    @property
    def now(self) -> float:
        return self.clock.now()

    def turn(self, ms: float = 0) -> None:
        """Everything that is due after ``ms``, until nothing more comes."""
        self.clock.advance(ms)
        while events := self.transport.poll(0):
            self.client.handle(events, self.now)
        self.client.expire(self.now)

    def ready(self, node: Node) -> bool:
        return self.client.ready(node, self.now)

    def reach(self, node: Node) -> None:
        """Connects to a peer that does not respond."""
        self.transport.answer = None
        self.ready(node)
        self.turn()

    def make_ready(self, node: Node) -> int:
        """Connects and shakes hands; returns the connection's id."""
        self.ready(node)
        self.turn()
        assert self.ready(node)
        return self.transport.last_connection()

    def respond(self, response=None) -> None:
        """To the oldest request without a response, by default an EndTxn."""
        self.transport.respond(self.transport.requests.popleft(), response or end_txn_response())
        self.turn()

    def drop(self, why: str, connection: int | None = None) -> None:
        """The last connection, or this one, ends."""
        self.transport.drop(connection or self.transport.last_connection(), why)
        self.turn()

    def request(self, **fields) -> Request:
        request = KioRequest("end_txn", (3, 3), lambda module, _version: end_txn(module), self.responses.append)
        for name, value in fields.items():
            setattr(request, name, value)
        return request

    def send(self, node: Node, **fields) -> None:
        self.client.send(node.id, self.request(**fields), self.now)


def end_txn(module):
    return module.EndTxnRequest(transactional_id="x", producer_id=1, producer_epoch=0, committed=True)


def end_txn_response():
    return schema("end_txn", 3).EndTxnResponse(throttle_time=timedelta(0), error_code=ErrorCode.none)


@pytest.fixture
def turns() -> Turns:
    return Turns()


@pytest.fixture
def make_turns() -> type[Turns]:
    return Turns


@pytest.fixture
def node() -> Node:
    return Node(1, "b", 9092)
