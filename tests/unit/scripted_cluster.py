"""A producer and two nodes that respond by a script: refusals per partition, connections that stall, lost responses."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any

from kio.schema.errors import ErrorCode

from tests.support.scripted_network import SentRequest
from tests.unit.scripted_engine import Engine, Step

PARTITIONS = 2
NODES = 2


class ScriptedCluster(Engine):
    """The requests of a stalled connection are handled when it resumes."""

    def __init__(self, **config: object) -> None:
        super().__init__(PARTITIONS, NODES, **config)
        self.refusals: list[deque[ErrorCode]] = [deque() for _ in range(PARTITIONS)]
        self.stall_next = self.hold_next = self.lose_next = False
        self.stalled: defaultdict[int, deque[SentRequest]] = defaultdict(deque)

    def rows(self, partition: int) -> list[int]:
        return [int(value) for value in self.values(partition)]

    def resume(self, connection: int) -> None:
        for request in self.stalled.pop(connection):
            response = self._respond(request)
            if response is not None and connection in self.transport.open:
                self.transport.respond(request, response)

    def _respond(self, request: SentRequest) -> Any:
        if request.api == "produce" and self.stall_next:
            self.stall_next = False
            self.stalled[request.connection_id] = deque()
        if request.connection_id in self.stalled:
            self.stalled[request.connection_id].append(request)
            return None
        return super()._respond(request)

    def _produce(self, request: SentRequest) -> Any:
        node = int(self.transport.addresses[request.connection_id][0].removeprefix("n"))
        refused = {
            each.index: self._refusal(node, each.index, bytes(each.records))
            for topic in request.entity().topic_data
            for each in topic.partition_data
        }
        step = Step(before={index: code for index, code in refused.items() if code}, lose_response=self.lose_next)
        self.lose_next = False
        if not step.lose_response:
            held = {waiting.connection_id for waiting, _ in self.held}
            step.hold = self.hold_next or request.connection_id in held
            self.hold_next = self.hold_next and not step.hold
        self.steps.append(step)
        return super()._produce(request)

    def _refusal(self, node: int, partition: int, data: bytes) -> ErrorCode:
        if self.leaders[partition] != node:
            return ErrorCode.not_leader_or_follower
        refusal = self.refusals[partition].popleft() if self.refusals[partition] else ErrorCode.none
        # A broker checks the size before it appends: no batch that it has is too large.
        impossible = refusal is ErrorCode.message_too_large and self.logs[partition].has(data)
        return ErrorCode.none if impossible else refusal
