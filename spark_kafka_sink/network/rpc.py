"""The blocking request loop: it sends requests on the caller's own thread, for the ledger, the committer and the
sync producer.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from random import Random
from typing import Any, Protocol

from spark_kafka_sink.common.clock import NEVER, Clock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import ClusterSnapshot, Node, TopicPartition
from spark_kafka_sink.errors import KafkaError, KafkaTimeoutError, NetworkError
from spark_kafka_sink.network.calls import (
    STALL_MS,
    BrokerGoneError,
    Call,
    Calls,
    Coordinator,
    timeout_error,
)
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.connection import ApiVersions
from spark_kafka_sink.network.messages import CompletionHandler, Request, Response
from spark_kafka_sink.network.metadata import Metadata, MetadataUpdater
from spark_kafka_sink.network.selector import Selector
from spark_kafka_sink.network.transport import Transport

_log = logging.getLogger("spark_kafka_sink.network")


class MakeRequest(Protocol):
    """Makes one request that completes with ``on_complete``."""

    def __call__(self, on_complete: CompletionHandler, /) -> Request: ...


class Rpc:
    """A client that blocks. It owns its connections and metadata, and belongs to one thread at a time. Deadlines are
    monotonic ms.

    ``connections`` is the most to one coordinator. No metadata is requested before a method needs the brokers. A
    client.id is generated if ``config`` has none, because brokers name clients by it and some cannot read a request
    without one.
    """

    def __init__(
        self, config: ProducerConfig, clock: Clock, transport: Transport | None = None, connections: int = 1
    ) -> None:
        config, random = config.with_client_id("adminclient"), Random()
        self._clock = clock
        self._timeout_ms = config.request_timeout_ms
        self._transport = transport or Selector(config.send_buffer_bytes, config.receive_buffer_bytes)
        self._client = NetworkClient(config, self._transport, random)
        self._metadata = Metadata(config, random, self._client)
        self._updater = MetadataUpdater(self._metadata)
        self._needs_metadata = False
        self._calls = Calls(self._client, self._metadata, config, random, connections)
        self._closed = False

    @property
    def snapshot(self) -> ClusterSnapshot:
        return self._metadata.snapshot

    @property
    def calls(self) -> Calls:
        return self._calls

    def now(self) -> float:
        """Monotonic ms, as in deadlines."""
        return self._clock.now()

    def call(self, call: Call, deadline: float) -> Any:
        """The response's body. Raises the error that ended the call, or ``KafkaTimeoutError`` at the deadline."""
        began = self._clock.now()
        if not isinstance(call.target, Coordinator):
            self.await_brokers(deadline)
        self.run([call], deadline)
        if call.end is None:
            raise timeout_error(call, deadline - began)
        if call.end.error is not None:
            raise call.end.error
        return call.end.body

    def run(self, calls: Collection[Call], deadline: float, latest_ms: float = NEVER) -> None:
        """Returns when all calls have ended or the deadline has passed; nothing is sent after the deadline.

        ``latest_ms`` is a second deadline, in epoch ms, for what must not be sent after a time that passes elsewhere,
        because the monotonic clock stands still while the machine is suspended. Every 10 s a warning says what is
        missing.
        """
        told_at = began = self._clock.now()
        try:
            for call in calls:
                self._calls.start(call)
            if self._calls.waiting:
                self._drop_closed_connections()
            while self._calls.waiting and (now := self._clock.now()) < deadline:
                if latest_ms != NEVER and self._clock.epoch_ms() >= latest_ms:
                    break
                if now >= told_at + STALL_MS and (oldest := self._calls.oldest) is not None:
                    told_at = now
                    _log.warning("%s", self._calls.stalled(oldest, now - began, now))
                self._poll(now, min(deadline, told_at + STALL_MS))
        finally:
            self._calls.note_obstacles(calls, self._clock.now())
            self._calls.stop()

    def lost_connections(self) -> dict[int, KafkaError]:
        """The nodes whose connection failed or was closed since the last call or metadata update, with the error."""
        self._drop_closed_connections()
        now, lost = self._clock.now(), self._client.drain_disconnects()
        for node, error in lost:
            self._metadata.note_connection_error(node, error, now)
        return {node.id: error for node, error in lost}

    def exchange(
        self, requests: Mapping[int, MakeRequest], *, reconnects: bool = True
    ) -> dict[int, Response | KafkaError]:
        """Sends one request to each of these nodes, without retries. Returns each response, or why it was not sent.

        Unless it ``reconnects``, nothing is sent to a node whose connection turns out to be lost.
        """
        self._needs_metadata = True
        lost = {} if reconnects else self.lost_connections()
        if reconnects:
            self._drop_closed_connections()
        ended: dict[int, Response | KafkaError] = {}
        for node_id, make in requests.items():
            node = self.snapshot.nodes.get(node_id)
            gone = BrokerGoneError(f"Broker {node_id} has left the cluster")
            error = gone if node is None else lost.get(node_id) or self._connect(node)
            if error is not None:
                ended[node_id] = error
                continue

            def completed(response: Response) -> None:
                ended[response.node_id] = response

            self._client.send(node_id, make(completed), self._clock.now())
        # Every request completes: with a response, by request.timeout.ms, or with its connection.
        while len(ended) < len(requests):
            self._poll(self._clock.now(), NEVER)
        return ended

    def doubt_leaders(self, partitions: Iterable[TopicPartition]) -> None:
        """Calls ``Metadata.doubt_leaders``."""
        self._metadata.doubt_leaders(partitions)

    def await_topic(self, topic: str, partition: int | None, max_wait_ms: float) -> None:
        """Returns when the snapshot has the topic (and partition); raises as ``Metadata.wait_for_topic``."""
        deadline = self._clock.now() + max_wait_ms

        def await_round() -> None:
            seen = self._metadata.round
            while self._metadata.round == seen and (now := self._clock.now()) < deadline:
                self._poll(now, deadline)

        self._needs_metadata = True
        self._metadata.wait_for_topic(topic, partition, max_wait_ms, self._clock, await_round)

    def await_brokers(self, deadline: float) -> None:
        """Returns when the snapshot has brokers.

        Raises ``KafkaTimeoutError`` at the deadline, and permanent errors immediately.
        """
        began = self._clock.now()
        while not self.snapshot.nodes:
            if (now := self._clock.now()) >= deadline:
                raise KafkaTimeoutError(
                    self._metadata.obstacle((), began, now)
                ) from self._metadata.last_connection_error()
            self.refresh(deadline)

    def refresh(self, deadline: float = NEVER) -> None:
        """Updates the metadata of all topics, or keeps the snapshot if no broker responds within request.timeout.ms.

        Raises ``AuthenticationError``, and without a snapshot every permanent error.
        """
        self._needs_metadata = True
        generation, begun = self.snapshot.generation, self._metadata.round
        self._metadata.request_update(at_once=True)
        until = min(deadline, self._clock.now() + self._timeout_ms)
        while self.snapshot.generation == generation and (now := self._clock.now()) < until:
            self._poll(now, until)
            self._metadata.raise_fatal(begun)

    def pause(self, ms: float) -> None:
        """Waits, and serves the connections meanwhile."""
        until = self._clock.now() + ms
        while (now := self._clock.now()) < until:
            self._poll(now, until)

    def disconnect(self, reason: KafkaError) -> None:
        """Closes the connections, so that later calls do not queue behind a request that a broker never responds to.
        They make new ones."""
        self._client.disconnect(reason)

    def api_versions(self, node_id: int) -> ApiVersions | None:
        """The versions that the node speaks; None without a ready connection to it."""
        return self._client.api_versions(node_id)

    def any_api_versions(self) -> ApiVersions | None:
        """The versions that some connected broker speaks; None without a ready connection."""
        return self._client.any_api_versions()

    def close(self) -> None:
        """Closes the connections. A second call has no effect."""
        if not self._closed:
            self._closed = True
            self._calls.stop()
            self._client.close()
            self._transport.shutdown()

    def _connect(self, node: Node) -> KafkaError | None:
        """Returns None when ``node`` is ready, else the error of an attempt that was made here."""
        deadline = self._clock.now() + self._timeout_ms
        attempted = False
        while (now := self._clock.now()) < deadline:
            picked = self._client.pick((node,), now)
            if isinstance(picked, Node):
                return None
            if picked.error is not None:
                return picked.error
            reason = self._client.last_error(node.id)
            if attempted and picked.retry_at < NEVER and reason is not None:
                return reason
            attempted = picked.retry_at == NEVER
            self._poll(now, min(deadline, picked.retry_at))
        return NetworkError(self._client.obstacle(node, now) or f"The connection to {node} was not ready in time")

    def _drop_closed_connections(self) -> None:
        """Drops connections that brokers have closed, and those unused for connections.max.idle.ms, which may be cut
        without notice.
        """
        events, now = self._transport.poll(0), self._clock.now()
        self._client.handle(events, now)
        self._client.expire(now)

    def _poll(self, now: float, deadline: float) -> None:
        client, wake_at = self._client, deadline
        if self._needs_metadata:
            wake_at = min(wake_at, self._updater.maybe_update(client, now))
        wake_at = min(wake_at, self._calls.advance(now), client.next_deadline(now))
        events = self._transport.poll(max(0.0, wake_at - now))
        now = self._clock.now()
        client.handle(events, now)
        client.expire(now)
