"""A producer turned by hand and two nodes that check sequences as Kafka's brokers do (``ProducerAppendInfo``)."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any

from kio.schema.errors import ErrorCode

from spark_kafka_sink.records.decode import decode_batches
from spark_kafka_sink.testing.scripted_network import SentRequest
from tests.unit.scripted_engine import TOPIC, Engine

PARTITIONS = 2
NODES = 2
REMEMBERED_BATCHES = 5


@dataclass
class PartitionModel:
    """One partition's log, and per producer id the epoch and its last five batches: (first, last, offset)."""

    rows: list[int] = field(default_factory=list)
    producers: dict[int, tuple[int, deque[tuple[int, int, int]]]] = field(default_factory=dict)
    refuses_unknown: bool = False

    def append(self, data: bytes) -> tuple[ErrorCode, int]:
        (batch,) = decode_batches(data)
        header = batch.header
        offset = len(self.rows)
        if header.producer_id >= 0:
            first, last = header.base_sequence, header.base_sequence + header.record_count - 1
            error, duplicate = self._check(header.producer_id, header.producer_epoch, first, last)
            if error is not ErrorCode.none or duplicate >= 0:
                return error, duplicate
            epoch, batches = self.producers.get(header.producer_id, (-1, deque()))
            if epoch != header.producer_epoch:
                batches = deque(maxlen=REMEMBERED_BATCHES)
            batches.append((first, last, offset))
            self.producers[header.producer_id] = header.producer_epoch, batches
        self.rows.extend(int(record.value or b"") for record in batch.records)
        return ErrorCode.none, offset

    def _check(self, producer_id: int, epoch: int, first: int, last: int) -> tuple[ErrorCode, int]:
        """The broker's verdict, and the offset of the batch if it is there already."""
        if producer_id not in self.producers:
            refused = self.refuses_unknown and first != 0
            return (ErrorCode.unknown_producer_id if refused else ErrorCode.none), -1
        known_epoch, batches = self.producers[producer_id]
        if epoch < known_epoch:
            return ErrorCode.invalid_producer_epoch, -1
        if epoch > known_epoch:
            return (ErrorCode.none if first == 0 else ErrorCode.out_of_order_sequence_number), -1
        for known_first, known_last, offset in batches:
            if (first, last) == (known_first, known_last):
                return ErrorCode.none, offset
        in_order = first == batches[-1][1] + 1
        return (ErrorCode.none if in_order else ErrorCode.out_of_order_sequence_number), -1


class ScriptedCluster(Engine):
    """Two nodes that answer by the script, and connections that stall: what is on them is handled when they go on."""

    def __init__(self, **config: object) -> None:
        super().__init__(PARTITIONS, NODES, **config)
        self.models = [PartitionModel() for _ in range(PARTITIONS)]
        self.refusals: list[deque[ErrorCode]] = [deque() for _ in range(PARTITIONS)]
        self.stall_next = self.hold_next = self.lose_next = False
        self.stalled: defaultdict[int, deque[SentRequest]] = defaultdict(deque)

    def resume(self, connection: int) -> None:
        for request in self.stalled.pop(connection):
            answer = self._answer(request)
            if answer is not None and connection in self.transport.open:
                self.transport.respond(request, answer)

    def _answer(self, request: SentRequest) -> Any:
        if request.api == "produce" and self.stall_next:
            self.stall_next = False
            self.stalled[request.connection_id] = deque()
        if request.connection_id in self.stalled:
            self.stalled[request.connection_id].append(request)
            return None
        return super()._answer(request)

    def _produce(self, request: SentRequest) -> Any:
        node = int(self.transport.addresses[request.connection_id][0].removeprefix("n"))
        response = request.module.response
        asked = [each for topic in request.entity().topic_data for each in topic.partition_data]
        self.requests.append([each.index for each in asked])
        answers = []
        for each in asked:
            code, offset = self._appended(node, each.index, bytes(each.records))
            answers.append(
                response.PartitionProduceResponse(
                    index=each.index, error_code=code, base_offset=offset, record_errors=()
                )
            )
        topic = response.TopicProduceResponse(name=TOPIC, partition_responses=tuple(answers))
        answer = response.ProduceResponse(responses=(topic,))
        if self.lose_next:
            self.lose_next = False
            self.transport.drop(request.connection_id, "Connection reset by peer")
            return None
        if self.hold_next or any(held.connection_id == request.connection_id for held, _ in self.held):
            self.hold_next = False
            self.held.append((request, answer))
            return None
        return answer

    def _appended(self, node: int, partition: int, data: bytes) -> tuple[ErrorCode, int]:
        if self.leaders[partition] != node:
            return ErrorCode.not_leader_or_follower, -1
        refusal = self.refusals[partition].popleft() if self.refusals[partition] else ErrorCode.none
        if refusal is not ErrorCode.none:
            return refusal, -1
        return self.models[partition].append(data)
