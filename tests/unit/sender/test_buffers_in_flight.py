"""KAFKA-19012: Java's producers reused the buffer of an expired batch that its request had not written yet, so records
reached another topic. Here a transport holds the very buffers of a request, as a selector does for a broker that does
not read; the batch expires, another topic takes its memory, and only then the broker reads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from kio.schema.errors import ErrorCode

from spark_kafka_sink.errors import KafkaTimeoutError
from spark_kafka_sink.exactly_once.decode import decode_batches
from spark_kafka_sink.producer.receipt import SendReceipt
from spark_kafka_sink.records.columns import RecordColumns, TopicColumn
from tests.support.scripted_network import ScriptedTransport, SentRequest
from tests.unit.scripted_engine import TOPIC, Engine, Step

OTHER = "another-topic"
MEMORY = 65_536


class SlowReader(ScriptedTransport):
    """While ``holds``, keeps the buffers of requests, not copies of them; ``sent`` has what they held at the send."""

    holds = False

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.unwritten: deque[tuple[int, Sequence[Any]]] = deque()
        self.sent: deque[bytes] = deque()

    def send(self, connection_id: int, buffers: Sequence[Any]) -> bool:
        if not self.holds or not buffers:
            return super().send(connection_id, buffers)
        self.unwritten.append((connection_id, buffers))
        self.sent.append(b"".join(buffers))
        return False

    def read(self) -> None:
        """The broker reads everything, whether the client still waits for its responses or not."""
        self.holds = False
        while self.unwritten:
            connection_id, buffers = self.unwritten.popleft()
            assert b"".join(buffers) == self.sent.popleft(), "the bytes of a request changed after the send"
            self.open.add(connection_id)
            super().send(connection_id, buffers)


class SlowCluster(Engine):
    """``written``: the values that Produce requests had for each topic."""

    transport_type = SlowReader
    transport: SlowReader

    def __init__(self, **config: object) -> None:
        self.written: dict[str, list[bytes]] = {TOPIC: [], OTHER: []}
        super().__init__(
            request_timeout_ms=30_000,
            delivery_timeout_ms=31_000,
            buffer_memory=MEMORY,
            batch_size=MEMORY // 4,
            **config,
        )

    def _produce(self, request: SentRequest) -> Any:
        for topic in request.entity().topic_data:
            for partition in topic.partition_data:
                (batch,) = decode_batches(bytes(partition.records))
                self.written[topic.name] += [record.value or b"" for record in batch.records]
        return super()._produce(request)

    def append_to(self, topic: str, values: list[bytes], receipt: SendReceipt) -> None:
        columns = RecordColumns(value=pa.array(values, pa.binary()))
        self.parts.appender.append(TopicColumn.of(topic), columns, None, receipt)


def values(topic: str, size: int, count: int) -> list[bytes]:
    """Of ``size`` bytes, incompressible enough to differ in every batch, and naming their topic."""
    return [f"{topic} {number:06d} ".encode().ljust(size, topic[:1].encode()) for number in range(count)]


@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize("size", [100, 1000], ids=["small-rows", "rows-laid-out-by-views"])
@pytest.mark.parametrize("in_flight", [1, 5])
def test_incident_kafka_19012_no_buffer_is_reused_while_a_request_holds_it(codec, size, in_flight):
    cluster = SlowCluster(compression_type=codec, max_in_flight_requests_per_connection=in_flight, linger_ms=0)
    for topic in (TOPIC, OTHER):
        cluster.wait_for_topic(topic, 1000, cluster.spin)
    mine = values(TOPIC, size, MEMORY // 4 // (size + 20) - 2)
    # The first attempt is refused after 5 s, so the second one is in flight when delivery.timeout.ms has passed.
    cluster.steps.append(Step(before={0: ErrorCode.not_enough_replicas}, hold=True))
    expired = SendReceipt()
    cluster.append_to(TOPIC, mine, expired)
    cluster.spin(5_000)
    cluster.release_held()
    cluster.written[TOPIC].clear()
    cluster.transport.holds = True
    cluster.spin(1_000)
    cluster.spin(1_000)
    assert cluster.transport.unwritten, "the request is held"
    cluster.spin(24_000)
    with pytest.raises(KafkaTimeoutError, match="Expiring"):
        expired.wait(0)
    assert cluster.memory_is_free(), "the pool grants the memory of the expired batch"

    others = values(OTHER, size, 3 * MEMORY // 4 // (size + 20))
    cluster.append_to(OTHER, others, SendReceipt())
    assert not cluster.memory_is_free()
    cluster.spin()
    cluster.transport.read()
    assert cluster.written[TOPIC] == mine
    assert cluster.written[OTHER] == others[: len(cluster.written[OTHER])]
