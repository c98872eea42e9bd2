"""A transactional producer turned by hand, and a plain model of its coordinator (KIP-98, KIP-360, KIP-890)."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum
from typing import Any

from kio.schema.errors import ErrorCode

from spark_kafka_sink.model import TopicPartition
from spark_kafka_sink.producer.transactions import TransactionalRequestResult
from spark_kafka_sink.records.decode import decode_batches
from spark_kafka_sink.testing.scripted_network import SentRequest, api_versions_response
from spark_kafka_sink.transactions.commands import Command
from spark_kafka_sink.transactions.states import State, Step
from tests.unit.scripted_engine import TOPIC, Engine
from tests.unit.scripted_engine import Step as ProduceStep

V1_RANGES = {0: (3, 11), 3: (0, 12), 10: (0, 6), 18: (0, 4), 22: (0, 5), 24: (0, 5), 25: (0, 4), 26: (0, 4), 28: (0, 4)}
V2_RANGES = {**V1_RANGES, 0: (3, 13), 26: (0, 5), 28: (0, 5)}
TRANSACTIONAL_ID = "tx"
NO_THROTTLE = timedelta(0)


class Trouble(Enum):
    LOST_BEFORE = "the connection ends before the request is handled"
    LOST_AFTER = "the connection ends before the answer is there"
    SWALLOWED = "no answer ever"


@dataclass
class Coordinator:
    """One transactional id. ``previous`` is the identity before the last bump: an EndTxn v5 with it is a retry."""

    v2: bool
    producer_id: int = 1000
    epoch: int = -1
    previous: tuple[int, int] = (-1, -1)
    state: str = "empty"
    partitions: set[int] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    offsets: dict[str, dict[tuple[str, int], int]] = field(default_factory=dict)
    pending_offsets: dict[str, dict[tuple[str, int], int]] = field(default_factory=dict)
    pending: dict[int, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    visible: dict[int, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    ends: list[tuple[int, bool]] = field(default_factory=list)

    def init(self, expected: tuple[int, int]) -> ErrorCode:
        if expected[0] >= 0 and expected != (self.producer_id, self.epoch):
            return ErrorCode.none if expected == self.previous else ErrorCode.producer_fenced
        if self.state == "ongoing":
            self.bump()
            self.finish("aborted")
            return ErrorCode.concurrent_transactions
        self.bump()
        self.state = "empty"
        return ErrorCode.none

    def bump(self) -> None:
        self.previous = (self.producer_id, self.epoch)
        self.epoch += 1

    def check(self, identity: tuple[int, int]) -> ErrorCode:
        return ErrorCode.none if identity == (self.producer_id, self.epoch) else ErrorCode.producer_fenced

    def add(self, identity: tuple[int, int], partitions: set[int]) -> ErrorCode:
        code = self.check(identity)
        if code is ErrorCode.none:
            if self.state != "ongoing":
                self.partitions.clear()
            self.state = "ongoing"
            self.partitions |= partitions
        return code

    def end(self, identity: tuple[int, int], committed: bool, version: int) -> ErrorCode:
        self.ends.append((version, committed))
        wanted = "committed" if committed else "aborted"
        if version >= 5 and identity == self.previous:
            return ErrorCode.none if self.state == wanted else ErrorCode.invalid_txn_state
        code = self.check(identity)
        if code is not ErrorCode.none:
            return code
        if self.state != "ongoing":
            retried = version < 5 and self.state == wanted
            if not retried and not (version >= 5 and not committed):
                return ErrorCode.invalid_txn_state
        if version >= 5:
            self.bump()
        self.finish(wanted)
        return ErrorCode.none

    def finish(self, how: str) -> None:
        self.state = how
        if how == "committed":
            for partition, values in self.pending.items():
                self.visible[partition].extend(values)
            for group, offsets in self.pending_offsets.items():
                self.offsets.setdefault(group, {}).update(offsets)
        self.pending.clear()
        self.pending_offsets.clear()
        self.partitions.clear()
        self.groups.clear()

    def expire(self) -> None:
        """The transaction timeout: aborted and fenced."""
        self.bump()
        self.finish("aborted")


class TransactionalEngine(Engine):
    """``troubles[api]``: how the next requests of an API are treated; an error code is answered without effect."""

    def __init__(self, v2: bool, partitions: int = 2, nodes: int = 2, **config: object) -> None:
        self.coordinator = Coordinator(v2)
        self.coordinator_node = 0
        self.troubles: dict[str, deque[ErrorCode | Trouble]] = defaultdict(deque)
        self.asked: list[tuple[str, int]] = []
        self.added: list[set[int]] = []
        super().__init__(partitions, nodes, **{"transactional.id": TRANSACTIONAL_ID, **config})
        assert self.parts.transaction_manager is not None
        self.manager = self.parts.transaction_manager

    @property
    def state(self) -> State:
        return self.manager.state

    def submit(self, step: Step, **details: Any) -> TransactionalRequestResult:
        answer = TransactionalRequestResult(step)
        self.manager.submit(Command(step, answer, **details))
        return answer

    def call(self, step: Step, **details: Any) -> Any:
        """Submit, let time pass from deadline to deadline until there is an answer, give it or raise it."""
        return self.answer_to(self.submit(step, **details))

    def answer_to(self, answer: TransactionalRequestResult, ms: float = 600_000) -> Any:
        end = self.clock.now() + ms
        self.spin()
        while not answer.done and self.clock.now() < end:
            assert self.wake_at < float("inf"), "a call waits, and nothing will wake the sender"
            self.spin(max(self.wake_at - self.clock.now(), 1.0))
        return answer.wait(0)

    def begin(self) -> None:
        self.call(Step.BEGIN)

    def begun(self) -> TransactionalEngine:
        """With a transaction open."""
        self.call(Step.INIT)
        self.connect()
        self.begin()
        return self

    def lose_node(self, host: str) -> None:
        """Its connections end, and no new one gets beyond the handshake."""
        connect = self.transport.connect

        def refuse(connection_id: int, to: str, port: int) -> None:
            connect(connection_id, to, port)
            if to == host:
                self.transport.drop(connection_id, "Connection reset by peer")

        self.transport.connect = refuse  # type: ignore[method-assign]
        for connection_id, (to, _) in list(self.transport.addresses.items()):
            if to == host and connection_id in self.transport.open:
                self.transport.drop(connection_id, "Connection reset by peer")

    def visible(self, partition: int = 0) -> list[bytes]:
        return self.coordinator.visible[partition]

    def apis(self) -> list[str]:
        """What was asked besides metadata and versions, repetitions left out."""
        names = [api for api, _ in self.asked]
        return [api for index, api in enumerate(names) if index == 0 or api != names[index - 1]]

    def spin(self, ms: float = 0) -> None:
        self.clock.advance(ms)
        now = self.clock.now()
        idle = 0
        for _ in range(500):
            events = self.transport.poll(0)
            before = len(self.asked)
            self.wake_at = self.parts.sender.run_once(now, events)
            idle = 0 if events or len(self.asked) != before or self.wake_at <= now else idle + 1
            if idle == 2:
                return
        raise AssertionError("the sender spins without an end")

    # What the brokers answer.

    def _answer(self, request: SentRequest) -> Any:
        if request.api == "metadata":
            return super()._answer(request)
        if request.api == "api_versions":
            return self._answer_api_versions(request)
        self.asked.append((request.api, request.version))
        trouble = self.troubles[request.api].popleft() if self.troubles[request.api] else None
        if trouble in (Trouble.LOST_BEFORE, Trouble.SWALLOWED):
            return self._lose(request, trouble)
        code = trouble if isinstance(trouble, ErrorCode) else None
        if request.api != "produce" and request.api != "find_coordinator" and code is None:
            code = self._misplaced(request)
        answer = getattr(self, f"_answer_{request.api}")(request, code)
        return self._lose(request, trouble) if trouble is Trouble.LOST_AFTER else answer

    def _answer_api_versions(self, request: SentRequest) -> Any:
        if not self.coordinator.v2:
            return api_versions_response(request, V1_RANGES)
        feature = request.module.response.FinalizedFeatureKey(
            name="transaction.version", max_version_level=2, min_version_level=2
        )
        return replace(api_versions_response(request, V2_RANGES), finalized_features=(feature,))

    def _lose(self, request: SentRequest, trouble: Trouble) -> None:
        if trouble is not Trouble.SWALLOWED:
            self.transport.drop(request.connection_id, "Connection reset by peer")

    def _misplaced(self, request: SentRequest) -> ErrorCode | None:
        host, _ = self.transport.addresses[request.connection_id]
        return None if host == f"n{self.coordinator_node}" else ErrorCode.not_coordinator

    def _answer_produce(self, request: SentRequest, code: ErrorCode | None) -> Any:
        assert request.entity().transactional_id == TRANSACTIONAL_ID
        assert (request.version >= 12) == self.coordinator.v2
        if code is not None:
            self.steps.appendleft(ProduceStep(before=dict.fromkeys(range(99), code)))
        return self._produce(request)

    def _append(self, response: Any, partition: int, data: bytes, step: ProduceStep) -> Any:
        if partition not in step.before:
            code = self._refuse(partition, data)
            if code is not ErrorCode.none:
                step = ProduceStep(before={partition: code})
        known = len(self.logs[partition].values)
        answer = super()._append(response, partition, data, step)
        self.coordinator.pending[partition].extend(self.logs[partition].values[known:])
        return answer

    def _refuse(self, partition: int, data: bytes) -> ErrorCode:
        (batch,) = decode_batches(data)
        assert batch.header.is_transactional
        identity = (batch.header.producer_id, batch.header.producer_epoch)
        if self.coordinator.check(identity) is not ErrorCode.none:
            return ErrorCode.invalid_producer_epoch
        if self.coordinator.v2:
            return self.coordinator.add(identity, {partition})
        added = self.coordinator.state == "ongoing" and partition in self.coordinator.partitions
        return ErrorCode.none if added else ErrorCode.invalid_txn_state

    def _answer_find_coordinator(self, request: SentRequest, code: ErrorCode | None) -> Any:
        response, node = request.module.response, self.coordinator_node
        coordinators = tuple(
            response.Coordinator(
                key=key, node_id=node, host=f"n{node}", port=9092, error_code=code or ErrorCode.none, error_message=None
            )
            for key in request.entity().coordinator_keys
        )
        return response.FindCoordinatorResponse(throttle_time=NO_THROTTLE, coordinators=coordinators)

    def _answer_init_producer_id(self, request: SentRequest, code: ErrorCode | None) -> Any:
        asked, coordinator = request.entity(), self.coordinator
        code = code or coordinator.init((asked.producer_id, asked.producer_epoch))
        return request.module.response.InitProducerIdResponse(
            throttle_time=NO_THROTTLE,
            error_code=code,
            producer_id=coordinator.producer_id,
            producer_epoch=coordinator.epoch,
        )

    def _answer_add_partitions_to_txn(self, request: SentRequest, code: ErrorCode | None) -> Any:
        asked, response = request.entity(), request.module.response
        assert not self.coordinator.v2, "Produce adds partitions itself"
        partitions = {index for topic in asked.v3_and_below_topics for index in topic.partitions}
        self.added.append(partitions)
        identity = (asked.v3_and_below_producer_id, asked.v3_and_below_producer_epoch)
        code = code or self.coordinator.add(identity, partitions)
        results = tuple(
            response.AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
            for index in partitions
        )
        topic = response.AddPartitionsToTxnTopicResult(name=TOPIC, results_by_partition=results)
        return response.AddPartitionsToTxnResponse(throttle_time=NO_THROTTLE, results_by_topic_v3_and_below=(topic,))

    def _answer_add_offsets_to_txn(self, request: SentRequest, code: ErrorCode | None) -> Any:
        asked = request.entity()
        code = code or self.coordinator.add((asked.producer_id, asked.producer_epoch), set())
        if code is ErrorCode.none:
            self.coordinator.groups.add(asked.group_id)
        return request.module.response.AddOffsetsToTxnResponse(throttle_time=NO_THROTTLE, error_code=code)

    def _answer_txn_offset_commit(self, request: SentRequest, code: ErrorCode | None) -> Any:
        asked, response, coordinator = request.entity(), request.module.response, self.coordinator
        offsets = {(t.name, p.partition_index): int(p.committed_offset) for t in asked.topics for p in t.partitions}
        if code is None:
            code = coordinator.check((asked.producer_id, asked.producer_epoch))
            if code is ErrorCode.none and request.version >= 5:
                coordinator.add((asked.producer_id, asked.producer_epoch), set())
            elif asked.group_id not in coordinator.groups:
                code = code or ErrorCode.invalid_txn_state
        if code is ErrorCode.none:
            coordinator.pending_offsets.setdefault(asked.group_id, {}).update(offsets)
        topics = tuple(
            response.TxnOffsetCommitResponseTopic(
                name=name,
                partitions=(response.TxnOffsetCommitResponsePartition(partition_index=index, error_code=code),),
            )
            for name, index in offsets
        )
        return response.TxnOffsetCommitResponse(throttle_time=NO_THROTTLE, topics=topics)

    def _answer_end_txn(self, request: SentRequest, code: ErrorCode | None) -> Any:
        asked, coordinator = request.entity(), self.coordinator
        identity = (asked.producer_id, asked.producer_epoch)
        code = code or coordinator.end(identity, asked.committed, request.version)
        identity_after = {}
        if request.version >= 5:
            identity_after = {"producer_id": coordinator.producer_id, "producer_epoch": coordinator.epoch}
        return request.module.response.EndTxnResponse(throttle_time=NO_THROTTLE, error_code=code, **identity_after)


def partition(index: int) -> TopicPartition:
    return TopicPartition(TOPIC, index)
