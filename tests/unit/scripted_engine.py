"""A whole producer whose loop the test runs: manual clock, scripted transport, and the TestBroker's partitions."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.waiting import BlockingLoop
from spark_kafka_sink.exactly_once.decode import DecodedBatch, DecodedRecord, batch_headers, decode_batches
from spark_kafka_sink.producer.core import ProducerCore
from spark_kafka_sink.producer.receipt import SendReceipt
from spark_kafka_sink.records.columns import RecordColumns, TopicColumn
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.cluster import BrokerNode, ClusterState
from spark_kafka_sink.testing.broker.state.config import BROKER_DEFAULTS
from spark_kafka_sink.testing.broker.state.partition import Partition
from spark_kafka_sink.testing.broker.state.producers import last_sequence
from tests.support.manual_clock import ManualClock
from tests.support.scripted_network import ScriptedTransport, SentRequest, api_versions_response

RANGES = {0: (3, 12), 3: (0, 12), 18: (0, 4), 22: (0, 5)}
TOPIC = "t"
RETRIED_BY_JAVA = [
    ErrorCode.not_controller,
    ErrorCode.not_enough_replicas,
    ErrorCode.kafka_storage_error,
    ErrorCode.network_exception,
    ErrorCode.not_leader_or_follower,
    ErrorCode.leader_not_available,
]


class Log:
    """A partition of the TestBroker's state, and the values in it by offset."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.rows: dict[int, bytes] = {}
        self.identities: list[tuple[int, int]] = []
        """Producer id and epoch of each batch, in order."""
        self.batches: list[DecodedBatch] = []
        """What came, in order, also what was refused."""

    @property
    def records(self) -> list[DecodedRecord]:
        """Those of ``batches``, with their offsets in their batch."""
        return [record for batch in self.batches for record in batch.records]

    @property
    def values(self) -> list[bytes]:
        return list(self.rows.values())

    def append(self, data: bytes) -> tuple[ErrorCode, int]:
        """The error and base offset of a Produce response."""
        (batch,) = decode_batches(data)
        self.batches.append(batch)
        end = self.partition.log.end_offset
        try:
            offset = self.partition.append(data, batch.header, acks=1, now_ms=0).base_offset
        except ApiError as refused:
            return refused.error, -1
        if offset == end:
            self.identities.append((batch.header.producer_id, batch.header.producer_epoch))
            self.rows.update(enumerate((record.value or b"" for record in batch.records), offset))
        return ErrorCode.none, offset

    def has(self, data: bytes) -> bool:
        """Whether this batch was appended before, and is remembered."""
        (header,) = batch_headers(data)
        last = last_sequence(header.base_sequence, header.record_count)
        batch = (header.producer_id, header.producer_epoch, header.base_sequence, last)
        return self.partition.producers.duplicate(*batch) is not None

    def forget_producers(self, *, refuses_unknown: bool = True) -> None:
        """As an unclean leader election does."""
        self.partition.producers.drop(refuses_unknown=refuses_unknown)


@dataclass
class Step:
    """How the next Produce request is treated: per partition an error before the append, or one after it."""

    before: dict[int, ErrorCode] = field(default_factory=dict)
    lose_response: bool = False
    swallow: bool = False
    hold: bool = False
    new_leader: int | None = None


class ScriptedLoop(BlockingLoop):
    """Of a caller that waits: ``turn`` is one turn of it."""

    def __init__(self, clock: ManualClock, turn: Callable[[], object]) -> None:
        self._clock = clock
        self._turn = turn

    def run_until(self, condition: Callable[[], bool], ms: float) -> bool:
        deadline = self._clock.now() + ms
        while not condition():
            if self._clock.now() >= deadline:
                return False
            self._turn()
        return True


class Engine:
    """A producer and its cluster. ``turn`` is one turn of the sender after the clock has moved."""

    transport_type: ClassVar[type[ScriptedTransport]] = ScriptedTransport

    def __init__(self, partitions: int = 1, nodes: int = 1, **config: object) -> None:
        self.clock = ManualClock()
        self.transport = self.transport_type(self._respond, accept_all=True)
        names = {name.replace("_", "."): value for name, value in config.items()}
        defaults = {"bootstrap.servers": "boot:9092", "linger.ms": 0, "batch.size": 16384}
        self.config = ProducerConfig.parse({**defaults, **names})
        self.parts = ProducerCore(self.config, self.transport, self.clock, Random(1))
        self.parts.pool._sender_thread = ScriptedLoop(self.clock, lambda: self.turn(1))
        self.leaders = {p: p % nodes for p in range(partitions)}
        self.nodes = nodes
        self.cluster = ClusterState([BrokerNode(node, f"n{node}", 9092) for node in range(nodes)], BROKER_DEFAULTS)
        self.create_topic(partitions)
        self.steps: deque[Step] = deque()
        self.requests: list[list[int]] = []
        self.held: list[tuple[SentRequest, Any]] = []
        self.init_producer_id: deque[ErrorCode] = deque()
        self.granted = 0
        self.max_message_bytes = 1 << 20
        self.refused = 0
        self.receipt = SendReceipt()
        self.wake_at = 0.0

    def create_topic(self, partitions: int) -> None:
        """With empty logs, also where the topic was there before."""
        self.cluster.topics.clear()
        topic = self.cluster.create_topic(TOPIC, partitions, 1, {})
        self.logs = {index: Log(partition) for index, partition in enumerate(topic.partitions)}

    def connect(self) -> Self:
        """Metadata and producer id are there, nothing is sent yet."""
        self.wait_for_topic(TOPIC, 1000, self.spin)
        return self

    def wait_for_topic(
        self, topic: str, max_wait_ms: float, turn: Callable[[], object], partition: int | None = None
    ) -> None:
        """As a caller that waits while ``turn`` runs the loop."""
        metadata = self.parts.metadata
        metadata.waiters.sender = ScriptedLoop(self.clock, turn)
        try:
            metadata.wait_for_topics({topic: partition}, max_wait_ms)
        finally:
            metadata.waiters.sender = self.parts.sender_thread

    def append(
        self,
        values: list[bytes],
        partition: int = 0,
        receipt: SendReceipt | None = None,
        transaction: int | None = None,
    ) -> None:
        columns = RecordColumns(value=pa.array(values, pa.binary()))
        chosen = np.full(len(values), partition, np.int32)
        manager = self.parts.transaction_manager
        if transaction is None:
            transaction = 0 if manager is None else manager.number
        self.parts.appender.append(TopicColumn.of(TOPIC), columns, chosen, receipt or self.receipt, transaction)

    def send(self, values: list[bytes], partition: int = 0, receipt: SendReceipt | None = None) -> None:
        self.append(values, partition, receipt)
        self.spin()

    def deliver(self, values: list[bytes], partition: int = 0, receipt: SendReceipt | None = None) -> None:
        self.append(values, partition, receipt)
        self.settle()

    def turn(self, ms: float = 0) -> None:
        self.clock.advance(ms)
        self.wake_at = self.parts.sender.run_once(self.clock.now(), self.transport.poll(0))
        self.parts.sender_thread.callbacks.run()

    def spin(self, ms: float = 0) -> None:
        """Turns until nothing moves any more without time passing."""
        self.clock.advance(ms)
        idle = 0
        for _ in range(500):
            events, before = self.transport.poll(0), self.sent()
            self.wake_at = self.parts.sender.run_once(self.clock.now(), events)
            self.parts.sender_thread.callbacks.run()
            idle = 0 if events or before != self.sent() or self.wake_at <= self.clock.now() else idle + 1
            if idle == 2:
                return
        raise AssertionError("the sender spins without an end")

    def sent(self) -> int:
        """How many requests that may go on without an event."""
        return len(self.requests)

    def settle(self, ms: float = 600_000) -> None:
        """Lets time pass from deadline to deadline until everything is complete."""
        end = self.clock.now() + ms
        self.spin()
        while self.parts.undelivered and self.clock.now() < end:
            assert self.wake_at < float("inf"), "batches wait, and nothing will wake the sender"
            self.spin(max(self.wake_at - self.clock.now(), 1.0))

    def values(self, partition: int = 0) -> list[bytes]:
        return self.logs[partition].values

    def memory_is_free(self) -> bool:
        return self.parts.accumulator.pool.available == self.config.buffer_memory

    def release_held(self) -> None:
        held, self.held = self.held, []
        for request, response in held:
            self.transport.respond(request, response)

    def _respond(self, request: SentRequest) -> Any:
        match request.api:
            case "api_versions":
                return api_versions_response(request, RANGES)
            case "metadata":
                return self._metadata(request)
            case "init_producer_id":
                return self._init_producer_id(request)
            case "produce":
                return self._produce(request)
        raise AssertionError(request.api)

    def _metadata(self, request: SentRequest) -> Any:
        """Every topic that is asked for exists and has the same partitions."""
        partitions = [
            {
                "error_code": ErrorCode.none if leader >= 0 else ErrorCode.leader_not_available,
                "partition_index": p,
                "leader_id": leader,
            }
            for p, leader in self.leaders.items()
        ]
        topics = [{"name": each.name, "partitions": partitions} for each in request.entity().topics]
        brokers = [{"node_id": node, "host": f"n{node}", "port": 9092} for node in range(self.nodes)]
        return request.response(brokers=brokers, topics=topics)

    def _init_producer_id(self, request: SentRequest) -> Any:
        code = self.init_producer_id.popleft() if self.init_producer_id else ErrorCode.none
        if code is ErrorCode.none:
            self.granted += 1
        return request.response(error_code=code, producer_id=1000 + self.granted, producer_epoch=0)

    def _produce(self, request: SentRequest) -> Any:
        step = self.steps.popleft() if self.steps else Step()
        asked = [
            (each.index, bytes(each.records)) for topic in request.entity().topic_data for each in topic.partition_data
        ]
        self.requests.append([partition for partition, _ in asked])
        if step.swallow:
            return None
        partitions = tuple(self._append(request.module.response, *each, step) for each in asked)
        if step.lose_response:
            self.transport.drop(request.connection_id, "Connection reset by peer")
            return None
        module = request.module.response
        response = module.ProduceResponse(
            responses=(module.TopicProduceResponse(name=TOPIC, partition_responses=partitions),),
            node_endpoints=tuple(
                module.NodeEndpoint(node_id=node, host=f"n{node}", port=9092) for node in range(self.nodes)
            ),
        )
        if request.entity().acks == 0:
            return None
        if step.hold:
            self.held.append((request, response))
            return None
        return response

    def _append(self, response: Any, partition: int, data: bytes, step: Step) -> Any:
        code = step.before.get(partition)
        if len(data) > self.max_message_bytes:
            code, self.refused = ErrorCode.message_too_large, self.refused + 1
        offset = -1
        if code is None:
            code, offset = self.logs[partition].append(data)
        hint = {}
        if step.new_leader is not None:
            hint["current_leader"] = response.LeaderIdAndEpoch(leader_id=step.new_leader, leader_epoch=1)
        return response.PartitionProduceResponse(
            index=partition, error_code=code, base_offset=offset, log_start_offset=0, record_errors=(), **hint
        )


PARTITIONS = 2


class ScriptedCluster(Engine):
    """With two nodes that respond by a script: refusals per partition, connections that stall, lost responses.

    The requests of a stalled connection are handled when it resumes.
    """

    def __init__(self, **config: object) -> None:
        super().__init__(PARTITIONS, 2, **config)
        self.refusals: list[deque[ErrorCode]] = [deque() for _ in range(PARTITIONS)]
        self._too_large: set[bytes] = set()
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
        if refusal is ErrorCode.message_too_large and not self.logs[partition].has(data):
            self._too_large.add(data)
        if data in self._too_large:  # nor will it take the same bytes when they come again, late
            return ErrorCode.message_too_large
        return ErrorCode.none if refusal is ErrorCode.message_too_large else refusal
