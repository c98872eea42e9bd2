"""The simplest Kafka client there is: one connection, one request at a time, whatever version the test names; and a
transactional producer of such requests."""

import io
import itertools
import select
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from kio.index import load_request_schema
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer

from spark_kafka_sink.network.messages import response_type
from spark_kafka_sink.records.batch import BatchHeader, stamp_header
from spark_kafka_sink.testing.broker.wire import build
from tests.support.waiting import DEADLINE_S, eventually, is_of_today, until

API_KEYS = {"".join(map(str.capitalize, name.split("_"))): int(key) for key, name in api_key_map.items()}
"""Every API of Kafka's protocol, by Kafka's name."""

TRANSIENT = frozenset(
    {"concurrent_transactions", "coordinator_load_in_progress", "coordinator_not_available", "not_coordinator"}
)


class PlainClient:
    """Asks one broker. ``ConnectionError`` when it hangs up instead of answering."""

    def __init__(self, address: str, client_id: str = "plain") -> None:
        self.address = address.split(",", maxsplit=1)[0]
        host, port = self.address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), DEADLINE_S)
        self._client_id = client_id
        self._correlation_ids = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def ask(self, api: str, version: int, /, **fields: object) -> Any:
        """Send a request made of plain values; kio's answer."""
        self.tell(api, version, **fields)
        return self.hear(api, version)

    def ask_patiently(self, api: str, version: int, /, **fields: object) -> Any:
        """Ask again while the answer is one that a client waits out."""
        return until(lambda: self.ask(api, version, **fields), lambda answer: answer.error_code.name not in TRANSIENT)

    def tell(self, api: str, version: int, /, **fields: object) -> int:
        """Send a request and do not wait; its correlation id."""
        schema = load_request_schema(API_KEYS[api], version)
        header = build(
            schema.__header_schema__,
            {
                "request_api_key": API_KEYS[api],
                "request_api_version": version,
                "correlation_id": next(self._correlation_ids),
                "client_id": self._client_id,
            },
        )
        frame = io.BytesIO()
        entity_writer(type(header))(frame, header)
        entity_writer(schema)(frame, build(schema, fields))
        self.send(struct.pack(">i", frame.tell()) + frame.getvalue())
        return int(header.correlation_id)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def hear(self, api: str, version: int) -> Any:
        """The next answer, whose API and version the caller knows."""
        schema = response_type(api_key_map[API_KEYS[api]], version)
        frame = self.hear_frame()
        header, position = entity_reader(schema.__header_schema__)(frame, 0)
        answer, _ = entity_reader(schema)(frame, position)
        self.last_correlation_id = int(header.correlation_id)
        return answer

    def hear_frame(self) -> bytes:
        return self.receive(*struct.unpack(">i", self.receive(4)))

    def receive(self, size: int) -> bytes:
        received = b""
        while len(received) < size:
            chunk = self._socket.recv(size - len(received))
            if not chunk:
                raise ConnectionResetError(f"the broker hung up after {len(received)} of {size} bytes")
            received += chunk
        return received

    def hears_within(self, seconds: float) -> bool:
        """Whether anything has come by then; nothing is taken off the socket."""
        return bool(select.select([self._socket], [], [], seconds)[0])

    def is_hung_up(self) -> bool:
        """Whether the broker closes the connection without another byte."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionError:
            return True

    # -- the few requests that every test of appends and transactions needs -------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
        }
        (result,) = self.ask("CreateTopics", 5, topics=[topic], timeout=10_000).topics
        assert result.error_code.name == "none", result
        self._await_leaders(name)

    def produce(
        self,
        topic: str,
        records: bytes,
        *,
        version: int = 9,
        acks: int = -1,
        timeout: int = 10_000,
        transactional_id: str | None = None,
    ) -> Any:
        """The answer for partition 0."""
        self.tell_produce(
            topic, records, version=version, acks=acks, timeout=timeout, transactional_id=transactional_id
        )
        return self.hear_produced(version)

    def tell_produce(
        self, topic: str, records: bytes, *, version: int = 9, acks: int = -1, timeout: int = 10_000, **fields: object
    ) -> int:
        data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
        return self.tell("Produce", version, acks=acks, timeout=timeout, topic_data=data, **fields)

    def hear_produced(self, version: int = 9) -> Any:
        return self.hear("Produce", version).responses[0].partition_responses[0]

    def init_producer_id(self, transactional_id: str | None = None, **fields: object) -> tuple[int, int]:
        if transactional_id is not None:
            self.ask_patiently("FindCoordinator", 3, key=transactional_id, key_type=1)  # makes __transaction_state
        answer = self.ask_patiently(
            "InitProducerId", 4, transactional_id=transactional_id, transaction_timeout=60_000, **fields
        )
        assert answer.error_code.name == "none", answer
        return int(answer.producer_id), int(answer.producer_epoch)

    def describe(self, transactional_id: str) -> tuple[object, ...]:
        """Error, state, epoch, start (True: a moment ago), partitions by topic; not while markers are written."""
        told = until(
            lambda: self.ask("DescribeTransactions", 0, transactional_ids=[transactional_id]).transaction_states[0],
            lambda told: not told.transaction_state.startswith("Prepare"),
        )
        begun = is_of_today(told.transaction_start_time / 1000) or told.transaction_start_time
        partitions = tuple((topic.topic, topic.partitions) for topic in told.topics)
        return told.error_code.name, told.transaction_state, int(told.producer_epoch), begun, partitions

    def _await_leaders(self, topic: str) -> None:
        eventually(
            lambda: all(
                partition.leader_id >= 0
                for partition in self.ask("Metadata", 9, topics=[{"name": topic}]).topics[0].partitions or [_NoLeader]
            )
        )
        eventually(lambda: self._offset_error(topic) == "none")

    def _offset_error(self, topic: str) -> str:
        asked = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
        return str(self.ask("ListOffsets", 1, replica_id=-1, topics=asked).topics[0].partitions[0].error_code.name)


class _NoLeader:
    leader_id = -1


def batch(
    values: Sequence[bytes],
    *,
    producer: tuple[int, int] = (-1, -1),
    sequence: int = -1,
    attributes: int = 0,
    timestamp: int = 1_700_000_000_000,
) -> bytes:
    """An uncompressed record batch of short values without keys, all at one timestamp."""
    records = b"".join(_record(value, delta) for delta, value in enumerate(values))
    header = BatchHeader(attributes, len(values), timestamp, timestamp, *producer, sequence)
    return stamp_header(header, [records]) + records


def _record(value: bytes, offset_delta: int) -> bytes:
    body = bytes([0, 0, offset_delta << 1, 1, len(value) << 1]) + value + b"\0"
    assert len(body) < 64, "one byte must do for every varint"
    return bytes([len(body) << 1]) + body


TRANSACTIONAL = 0x10
V1, V2 = "v1", "v2"
"""Transactions version: the client adds partitions, or Produce does (KIP-890)."""

_PRODUCE = {V1: 11, V2: 12}
_END_TXN = {V1: 4, V2: 5}


@dataclass
class TransactionalWriter:
    """``epoch`` parameters are relative to the one that ``init`` got."""

    client: PlainClient
    topic: str
    transactional_id: str
    version: str = V1
    identity: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self.identity = self.client.init_producer_id(self.transactional_id)

    def at(self, epoch: int) -> tuple[int, int]:
        producer_id, first = self.identity
        return producer_id, first + epoch

    def init(self, **fields: object) -> tuple[str, int]:
        """InitProducerId, asked once: error and epoch."""
        known = {"transactional_id": self.transactional_id, "transaction_timeout": 60_000}
        answer = self.client.ask("InitProducerId", 4, **{**known, **fields})
        epoch = int(answer.producer_epoch)
        return answer.error_code.name, epoch - self.identity[1] if epoch >= 0 else epoch

    def add(self, epoch: int = 0, *, topic: str | None = None) -> str:
        producer_id, producer_epoch = self.at(epoch)
        answer = self.client.ask(
            "AddPartitionsToTxn",
            3,
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=producer_epoch,
            v3_and_below_topics=[{"name": topic or self.topic, "partitions": [0]}],
        )
        return str(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code.name)

    def write(self, sequence: int, epoch: int = 0, *, produce_version: int | None = None) -> str:
        records = batch([b"x"], producer=self.at(epoch), sequence=sequence, attributes=TRANSACTIONAL)
        version = produce_version or _PRODUCE[self.version]

        def produce() -> str:
            answer = self.client.produce(self.topic, records, version=version, transactional_id=self.transactional_id)
            return str(answer.error_code.name)

        return _patiently(produce)

    def end(self, epoch: int = 0, *, commit: bool) -> str:
        """EndTxn, asked again while the end before it is under way."""
        producer_id, producer_epoch = self.at(epoch)

        def end() -> str:
            answer = self.client.ask(
                "EndTxn",
                _END_TXN[self.version],
                transactional_id=self.transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                committed=commit,
            )
            return str(answer.error_code.name)

        return _patiently(end)

    def commit(self, epoch: int = 0) -> str:
        return self.end(epoch, commit=True)

    def abort(self, epoch: int = 0) -> str:
        return self.end(epoch, commit=False)


def _patiently(ask: Callable[[], str]) -> str:
    return until(ask, lambda error: error != "concurrent_transactions")
