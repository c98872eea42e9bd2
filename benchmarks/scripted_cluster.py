"""A producer without its thread, and a node that takes everything: the engine's CPU time, without sockets."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any, cast

from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import KafkaTimeoutError
from spark_kafka_sink.network.selector import Selector
from spark_kafka_sink.producer.core import ProducerCore
from spark_kafka_sink.producer.receipt import SendReceipt
from spark_kafka_sink.records.arrays import Int32Array
from spark_kafka_sink.records.columns import RecordColumns, TopicColumn
from tests.support.manual_clock import ManualClock
from tests.support.scripted_network import ScriptedTransport, SentRequest, api_versions_response

if TYPE_CHECKING:
    from collections.abc import Callable

    from kio.static.protocol import ResponsePayload
    from typing_extensions import Buffer

PARTITIONS = 4

_API_RANGES = {0: (3, 12), 3: (0, 12), 18: (0, 4), 22: (0, 5)}


class ScriptedCluster:
    """Topics of four partitions. ``settle`` sends what was appended and waits for it."""

    def __init__(self, options: Mapping[str, object], topics: Sequence[str]) -> None:
        self._clock = ManualClock()
        self._transport = _Transport(self._answer)
        self.config = ProducerConfig.parse({"bootstrap.servers": "boot:9092", **options})
        self._core = ProducerCore(self.config, cast(Selector, self._transport), self._clock, Random(1))
        self._receipt = SendReceipt()
        wanted: dict[str, int | None] = dict.fromkeys(topics)
        with suppress(KafkaTimeoutError):
            self._core.metadata.wait_for_topics(wanted, 0)
        self._connect(topics)

    @property
    def foreign_s(self) -> float:
        """CPU seconds so far of the other side."""
        return self._transport.foreign_s

    def append(self, topic: TopicColumn, columns: RecordColumns, partitions: Int32Array | None) -> None:
        self._core.appender.append(topic, columns, partitions, self._receipt)

    def settle(self) -> None:
        self._clock.advance(10)  # linger is over
        while self._core.sender.has_work:
            self._turn()
        self._receipt.wait(0)

    @property
    def delivered(self) -> Mapping[str, int]:
        """Rows by topic."""
        counts: dict[str, int] = {}
        for partition, delivery in self._receipt.deliveries.items():
            counts[partition.topic] = counts.get(partition.topic, 0) + delivery.count
        return counts

    def _connect(self, topics: Sequence[str]) -> None:
        while not set(topics) <= self._core.metadata.snapshot.topics.keys():
            self._turn()

    def _turn(self) -> None:
        self._core.sender.run_once(self._clock.now(), self._transport.poll(0))

    def _answer(self, request: SentRequest) -> ResponsePayload:
        module: Any = request.module.response
        match request.api:
            case "api_versions":
                return api_versions_response(request, _API_RANGES)
            case "metadata":
                return _metadata(module, [each.name for each in request.entity().topics])
            case "init_producer_id":
                response: ResponsePayload = module.InitProducerIdResponse(
                    throttle_time=timedelta(0), error_code=ErrorCode.none, producer_id=1, producer_epoch=0
                )
                return response
            case "produce":
                return _taken(module, request.entity())
        raise AssertionError(request.api)


class _Transport(ScriptedTransport):
    """Times what is not the engine's: the other side."""

    foreign_s = 0.0

    def __init__(self, answer: Callable[[SentRequest], ResponsePayload]) -> None:
        super().__init__(answer, accept_all=True)

    def send(self, connection_id: int, buffers: Sequence[Buffer]) -> bool:
        started = time.thread_time()
        taken = super().send(connection_id, buffers)
        self.foreign_s += time.thread_time() - started
        return taken


def _metadata(module: Any, names: Sequence[str]) -> ResponsePayload:
    partitions = tuple(
        module.MetadataResponsePartition(error_code=ErrorCode.none, partition_index=number, leader_id=1)
        for number in range(PARTITIONS)
    )
    topics = tuple(
        module.MetadataResponseTopic(error_code=ErrorCode.none, name=name, topic_id=None, partitions=partitions)
        for name in names
    )
    broker = module.MetadataResponseBroker(node_id=1, host="n1", port=9092)
    response: ResponsePayload = module.MetadataResponse(throttle_time=timedelta(0), brokers=(broker,), topics=topics)
    return response


def _taken(module: Any, request: Any) -> ResponsePayload:
    topics = tuple(
        module.TopicProduceResponse(
            name=topic.name,
            partition_responses=tuple(
                module.PartitionProduceResponse(
                    index=each.index, error_code=ErrorCode.none, base_offset=0, record_errors=()
                )
                for each in topic.partition_data
            ),
        )
        for topic in request.topic_data
    )
    response: ResponsePayload = module.ProduceResponse(responses=topics)
    return response
