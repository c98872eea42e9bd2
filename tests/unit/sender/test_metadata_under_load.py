"""A backlog keeps every connection full; metadata that is due is asked for all the same.

Each response takes 30 ms, and a connection answers in order, so a slot comes free every few milliseconds.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any

import pytest

from tests.support.scripted_network import SentRequest
from tests.unit.scripted_engine import TOPIC, Engine

ANSWER_MS = 30
TICK_MS = 5


class SlowEngine(Engine):
    def __init__(self, nodes: int, in_flight: int) -> None:
        self.under_way: defaultdict[int, deque[tuple[float, SentRequest, Any]]] = defaultdict(deque)
        self.asked: list[tuple[str, ...]] = []
        super().__init__(
            partitions=4,
            nodes=nodes,
            max_in_flight_requests_per_connection=in_flight,
            metadata_max_age_ms=500,
            batch_size=1000,
        )

    def _respond(self, request: SentRequest) -> Any:
        response = super()._respond(request)
        if request.api == "api_versions":
            return response
        if request.api == "metadata":
            self.asked.append(tuple(topic.name for topic in request.entity().topics))
        self.under_way[request.connection_id].append((self.clock.now() + ANSWER_MS, request, response))
        return None

    def tick(self) -> None:
        self.clock.advance(TICK_MS)
        for queue in self.under_way.values():
            while queue and queue[0][0] <= self.clock.now():
                self.transport.respond(*queue.popleft()[1:])
        self.turn()
        self.turn()

    def await_topic(self, topic: str, timeout_ms: float) -> None:
        """As a caller that waits while the sender goes on."""
        self.wait_for_topic(topic, timeout_ms, self.tick)

    def load(self) -> None:
        for partition in self.leaders:
            self.append([bytes(900)] * 50, partition)


@pytest.fixture(params=[(1, 1), (1, 5), (2, 5)], ids=lambda each: f"{each[0]} nodes, {each[1]} in flight")
def saturated(request):
    engine = SlowEngine(*request.param)
    engine.await_topic(TOPIC, 10_000)
    for _ in range(100):
        if not engine.parts.accumulator.queue_lengths(TOPIC, [0])[0] > 20:
            engine.load()
        engine.tick()
    return engine


def test_metadata_is_asked_for_at_its_age_under_a_backlog(saturated):
    saturated.asked.clear()
    for _ in range(4_000 // TICK_MS):
        if saturated.parts.accumulator.queue_lengths(TOPIC, [0])[0] < 20:
            saturated.load()
        saturated.tick()
    assert len(saturated.asked) >= 4_000 / (500 + 2 * ANSWER_MS) - 1
    assert set(saturated.asked) == {(TOPIC,)}


def test_a_new_topic_is_found_under_a_backlog(saturated):
    begun = saturated.clock.now()
    saturated.await_topic("new", 1_000)
    assert saturated.clock.now() - begun <= 10 * ANSWER_MS
    assert saturated.parts.accumulator.queue_lengths(TOPIC, [0])[0] > 0
