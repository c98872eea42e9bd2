"""A transactional producer whose loop the test runs, and the TestBroker's coordinator."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from typing import Any

from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.model import NO_IDENTITY, ProducerIdentity, TopicPartition
from spark_kafka_sink.exactly_once.decode import batch_headers
from spark_kafka_sink.producer.receipt import SendReceipt
from spark_kafka_sink.producer.transaction_manager import State, Step, TransactionalCall
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.offset_records import CommittedOffset
from spark_kafka_sink.testing.broker.state.offsets import GroupOffsets
from spark_kafka_sink.testing.broker.state.transactions import TransactionCoordinator
from tests.support.scripted_network import SentRequest, api_versions_response
from tests.unit.scripted_engine import TOPIC, Engine
from tests.unit.scripted_engine import Step as ProduceStep

V1_RANGES = {
    0: (3, 11), 3: (0, 12), 10: (0, 6), 18: (0, 4), 22: (0, 5), 24: (0, 5), 25: (0, 4), 26: (0, 4), 28: (0, 4),
}  # fmt: skip
V2_RANGES = {**V1_RANGES, 0: (3, 13), 26: (0, 5), 28: (0, 5)}
TRANSACTIONAL_ID = "tx"


class Trouble(Enum):
    LOST_BEFORE = "the connection ends before the request is handled"
    LOST_AFTER = "the connection ends before the response is there"
    SWALLOWED = "no response ever"
    DELAYED = "no response, and the broker gets the request when the test delivers it"


class TransactionalEngine(Engine):
    """``troubles[api]``: how the next requests of an API are treated; an error code is answered without effect."""

    def __init__(self, v2: bool, partitions: int = 2, nodes: int = 2, **config: object) -> None:
        self.v2 = v2
        self.ranges = V2_RANGES if v2 else V1_RANGES
        self.coordinator_node = 0
        self.troubles: dict[str, deque[ErrorCode | Trouble]] = defaultdict(deque)
        self.asked: list[tuple[str, int]] = []
        self.added: list[set[int]] = []
        self.delayed: list[SentRequest] = []
        super().__init__(partitions, nodes, **{"transactional.id": TRANSACTIONAL_ID, **config})
        self.cluster._next_producer_id = 999
        self.group_offsets = GroupOffsets(self.cluster, value_version=4, acks=1)
        self.coordinator = TransactionCoordinator(self.cluster, self.group_offsets)
        assert self.parts.transaction_manager is not None
        self.manager = self.parts.transaction_manager

    @property
    def state(self) -> State:
        return self.manager.state

    def submit(self, step: Step, **details: Any) -> TransactionalCall:
        call = TransactionalCall(step, self.parts.sender_thread.callbacks, **details)
        self.parts.inbox.put_call(call)
        return call

    def call(self, step: Step, **details: Any) -> Any:
        """Submit, let time pass from deadline to deadline until there is a result, return or raise it."""
        return self.await_result(self.submit(step, **details))

    def await_result(self, call: TransactionalCall, ms: float = 600_000) -> Any:
        end = self.clock.now() + ms
        self.spin()
        while not call.outcome.wait(0) and self.clock.now() < end:
            assert self.wake_at < float("inf"), "a call waits, and nothing will wake the sender"
            self.spin(max(self.wake_at - self.clock.now(), 1.0))
        return call.result()

    def begin(self) -> None:
        self.call(Step.BEGIN)

    def begun(self) -> TransactionalEngine:
        """With a transaction open."""
        self.call(Step.INIT)
        self.connect()
        self.begin()
        return self

    def commit_next(self, values: list[bytes]) -> None:
        """In a transaction of their own."""
        self.begin()
        self.append(values, receipt=SendReceipt())
        self.call(Step.COMMIT)

    def visible(self, partition: int = 0) -> list[bytes]:
        """What a read_committed consumer sees."""
        kept, end = self.logs[partition].partition, self.logs[partition].partition.last_stable_offset()
        aborted = {at for each in kept.log.aborted for at in range(each.first_offset, each.last_offset)}
        return [value for at, value in self.logs[partition].rows.items() if at < end and at not in aborted]

    def open_values(self, partition: int = 0) -> list[bytes]:
        """What the open transaction has written."""
        end = self.logs[partition].partition.last_stable_offset()
        return [value for at, value in self.logs[partition].rows.items() if at >= end]

    def offsets(self, group: str = "readers") -> dict[tuple[str, int], int]:
        return {tuple(at): committed.offset for at, committed in self.group_offsets.of(group).items()}

    def init_elsewhere(self) -> None:
        """Another producer initialises the transactional id: what is open is aborted, and this producer fenced."""
        with suppress(ApiError):
            self._init(ProducerIdentity(-1, -1))
            return
        self._init(ProducerIdentity(-1, -1))

    def finalize(self, v2: bool) -> None:
        """The cluster changes to this protocol, and every connection is made anew."""
        self.v2, self.ranges = v2, V2_RANGES
        for connection_id in [*self.transport.open]:
            self.transport.drop(connection_id, "EOF")
        self.connect()

    def deliver_delayed(self) -> None:
        """Every EndTxn that was delayed reaches the coordinator; nobody waits for its response any more."""
        while self.delayed:
            self._respond_end_txn(self.delayed.pop(0), None)

    def sent(self) -> int:
        return len(self.asked)

    def apis(self) -> list[str]:
        """What was asked besides metadata and versions, repetitions left out."""
        names = [api for api, _ in self.asked]
        return [api for index, api in enumerate(names) if index == 0 or api != names[index - 1]]

    # Responses of the brokers.

    def _respond(self, request: SentRequest) -> Any:
        if request.api == "metadata":
            return super()._respond(request)
        if request.api == "api_versions":
            return self._respond_api_versions(request)
        self.asked.append((request.api, request.version))
        trouble = self.troubles[request.api].popleft() if self.troubles[request.api] else None
        if trouble is Trouble.DELAYED:
            self.delayed.append(request)
            return None
        if trouble in (Trouble.LOST_BEFORE, Trouble.SWALLOWED):
            return self._lose(request, trouble)
        code = trouble if isinstance(trouble, ErrorCode) else None
        if request.api != "produce" and request.api != "find_coordinator" and code is None:
            code = self._misplaced(request)
        response = getattr(self, f"_respond_{request.api}")(request, code)
        return self._lose(request, trouble) if trouble is Trouble.LOST_AFTER else response

    def _respond_api_versions(self, request: SentRequest) -> Any:
        level = 2 if self.v2 else 0
        feature = request.module.response.FinalizedFeatureKey(
            name="transaction.version", max_version_level=level, min_version_level=level
        )
        return replace(api_versions_response(request, self.ranges), finalized_features=(feature,))

    def _lose(self, request: SentRequest, trouble: Trouble) -> None:
        if trouble is not Trouble.SWALLOWED:
            self.transport.drop(request.connection_id, "Connection reset by peer")

    def _misplaced(self, request: SentRequest) -> ErrorCode | None:
        host, _ = self.transport.addresses[request.connection_id]
        return None if host == f"n{self.coordinator_node}" else ErrorCode.not_coordinator

    def _respond_produce(self, request: SentRequest, code: ErrorCode | None) -> Any:
        assert request.entity().transactional_id == TRANSACTIONAL_ID
        assert (request.version >= 12) == self.v2
        if code is not None:
            self.steps.appendleft(ProduceStep(before=dict.fromkeys(range(99), code)))
        return self._produce(request)

    def _append(self, response: Any, partition: int, data: bytes, step: ProduceStep) -> Any:
        if partition not in step.before:
            code = self._refuse(partition, data)
            if code is not ErrorCode.none:
                step = ProduceStep(before={partition: code})
        return super()._append(response, partition, data, step)

    def _refuse(self, index: int, data: bytes) -> ErrorCode:
        (header,) = batch_headers(data)
        assert header.is_transactional
        identity = ProducerIdentity(header.producer_id, header.producer_epoch)
        if self.logs[index].partition.is_writing(identity):
            return ErrorCode.none
        if self.v2:
            code = self._add(identity, [partition(index)])
        else:
            code = self._error(self.coordinator.verify_partition, TRANSACTIONAL_ID, identity, partition(index))
        return ErrorCode.invalid_producer_epoch if code is ErrorCode.producer_fenced else code

    def _error(self, call: Callable[..., object], *arguments: object, **named: object) -> ErrorCode:
        try:
            call(*arguments, **named)
        except ApiError as refused:
            return refused.error
        return ErrorCode.none

    def _add(self, identity: ProducerIdentity, partitions: Iterable[TopicPartition] = ()) -> ErrorCode:
        now_ms = self.clock.epoch_ms()
        return self._error(self.coordinator.add_partitions, TRANSACTIONAL_ID, identity, partitions, now_ms)

    def _init(self, expected: ProducerIdentity) -> None:
        known = expected if expected.producer_id >= 0 else None
        self.coordinator.init_producer_id(TRANSACTIONAL_ID, 60_000, known, self.clock.epoch_ms())

    def _respond_find_coordinator(self, request: SentRequest, code: ErrorCode | None) -> Any:
        node = self.coordinator_node
        found = {"node_id": node, "host": f"n{node}", "port": 9092, "error_code": code or ErrorCode.none}
        return request.response(coordinators=[{"key": key, **found} for key in request.entity().coordinator_keys])

    def _respond_init_producer_id(self, request: SentRequest, code: ErrorCode | None) -> Any:
        code = code or self._error(self._init, _identity(request))
        transaction = self.coordinator.transactions.get(TRANSACTIONAL_ID)
        producer_id, epoch = NO_IDENTITY if code or transaction is None else transaction.identity
        return request.response(error_code=code, producer_id=producer_id, producer_epoch=epoch)

    def _respond_add_partitions_to_txn(self, request: SentRequest, code: ErrorCode | None) -> Any:
        asked = request.entity()
        assert not self.v2, "Produce adds partitions itself"
        partitions = {index for topic in asked.v3_and_below_topics for index in topic.partitions}
        self.added.append(partitions)
        identity = ProducerIdentity(asked.v3_and_below_producer_id, asked.v3_and_below_producer_epoch)
        code = code or self._add(identity, map(partition, partitions))
        results = [{"partition_index": index, "partition_error_code": code} for index in partitions]
        return request.response(results_by_topic_v3_and_below=[{"name": TOPIC, "results_by_partition": results}])

    def _respond_add_offsets_to_txn(self, request: SentRequest, code: ErrorCode | None) -> Any:
        code = code or self._add(_identity(request))
        return request.response(error_code=code)

    def _respond_txn_offset_commit(self, request: SentRequest, code: ErrorCode | None) -> Any:
        asked, identity = request.entity(), _identity(request)
        if code is None and request.version >= 5:
            code = self._add(identity)
        code = code or self._error(self.coordinator.verify_open, TRANSACTIONAL_ID, identity)
        offsets = {
            TopicPartition(t.name, p.partition_index): CommittedOffset(int(p.committed_offset))
            for t in asked.topics
            for p in t.partitions
        }
        if code is ErrorCode.none:
            self.group_offsets.commit(asked.group_id, offsets, self.clock.epoch_ms(), identity)
        answers = [{"name": name, "partitions": [{"partition_index": at, "error_code": code}]} for name, at in offsets]
        return request.response(topics=answers)

    def _respond_end_txn(self, request: SentRequest, code: ErrorCode | None) -> Any:
        end = {"committed": request.entity().committed, "bump": request.version >= 5, "now_ms": self.clock.epoch_ms()}
        code = code or self._error(self.coordinator.end, TRANSACTIONAL_ID, _identity(request), **end)
        after = self.coordinator.transactions[TRANSACTIONAL_ID]
        return request.response(error_code=code, producer_id=after.producer_id, producer_epoch=after.epoch)


def _identity(request: SentRequest) -> ProducerIdentity:
    asked = request.entity()
    return ProducerIdentity(asked.producer_id, asked.producer_epoch)


def partition(index: int) -> TopicPartition:
    return TopicPartition(TOPIC, index)
