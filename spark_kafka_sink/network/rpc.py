"""Requests that callers wait for: ``BlockingCalls`` on the connections of a producer, whose sender thread it wakes,
and ``Rpc`` with connections of its own, for the ledger, the committer, the tools and the sync producer.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from random import Random
from typing import Any, TypeAlias

from spark_kafka_sink.common.clock import NEVER, Clock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import ClusterSnapshot, Node, TopicPartition
from spark_kafka_sink.common.waiting import SendingThread, Waiters
from spark_kafka_sink.errors import KafkaError, KafkaTimeoutError, NetworkError
from spark_kafka_sink.network.calls import (
    STALL_MS,
    BrokerGoneError,
    Call,
    CallEnd,
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


MakeRequest: TypeAlias = Callable[[CompletionHandler], Request]
"""Makes one request that completes with the handler."""


class BlockingCalls:
    """Makes calls that the caller's thread waits for. Deadlines are monotonic ms.

    The loop, which is the ``sender``'s, runs ``advance`` while ``busy``; ``fail`` ends all calls. ``busy``: callers set
    it after they have added a call; only ``advance`` clears it, before it looks at the calls.
    """

    def __init__(
        self, calls: Calls, metadata: Metadata, config: ProducerConfig, clock: Clock, sender: SendingThread | None
    ) -> None:
        self.calls = calls
        self.busy = False
        self._metadata = metadata
        self._timeout_ms = config.request_timeout_ms
        self._clock = clock
        self._sender = sender
        self._lock = threading.Lock()
        self._changed = Waiters(sender)
        self._started: deque[Call] = deque()
        self._failed_by: KafkaError | None = None

    # Callers

    @property
    def snapshot(self) -> ClusterSnapshot:
        return self._metadata.snapshot

    def now(self) -> float:
        """Monotonic ms, as in deadlines."""
        return self._clock.now()

    def call(self, call: Call, deadline: float) -> Any:
        """The response's body. Raises the error that ended the call, or ``KafkaTimeoutError`` at the deadline."""
        began = self._clock.now()
        self.run([call], deadline)
        if call.end is None:
            if self._failed_by is not None:
                raise self._failed_by.with_traceback(None)
            raise timeout_error(call, deadline - began)
        if call.end.error is not None:
            raise call.end.error.with_traceback(None)
        return call.end.body

    def run(self, calls: Collection[Call], deadline: float, latest_ms: float = NEVER) -> None:
        """Returns when all calls have ended or the deadline has passed; nothing is sent after the deadline.

        ``latest_ms`` is a second deadline, in epoch ms, for what must not be sent after a time that passes elsewhere,
        because the monotonic clock stands still while the machine is suspended. Every 10 s a warning says what is
        missing.
        """
        left = deque(calls)

        def is_over() -> bool:
            while left and left[0].end is not None:
                left.popleft()
            late = latest_ms != NEVER and self._clock.epoch_ms() >= latest_ms
            return not left or late or self._failed_by is not None

        told_at = began = self._clock.now()
        try:
            for call in calls:
                call.on_end = self._ended
            self._started.extend(calls)
            self._wake()
            while not self._wait(is_over, min(deadline, told_at + STALL_MS)) and self._clock.now() < deadline:
                told_at = self._clock.now()
                _log.warning("%s", self.calls.stalled(left[0], told_at - began, told_at))
        finally:
            if left:
                self.calls.give_up(left, self._clock.now())
                self._wake()

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
        after, wait_ms = self._metadata.round, min(deadline - self._clock.now(), self._timeout_ms)
        self._metadata.request_update(at_once=True)
        self._metadata.await_round(after, wait_ms, self._clock, self._metadata_wake(wait_ms))

    def pause(self, ms: float) -> None:
        """Waits."""
        self._wait(lambda: False, self._clock.now() + ms)

    def _wake(self) -> None:
        """There is something for the loop to do."""
        self.busy = True
        if self._sender is not None:
            self._sender.wakeup()

    def _wait(self, condition: Callable[[], bool], until: float) -> bool:
        """False if the condition is not true by then."""
        return self._changed.wait_for(self._lock, condition, until - self._clock.now())

    def _metadata_wake(self, wait_ms: float) -> Callable[[], None]:
        """``wake`` for ``Metadata``."""
        return self._wake

    # The thread that runs the loop

    @property
    def has_unended(self) -> bool:
        return self.busy or self.calls.busy

    def advance(self, now: float) -> float:
        """Send what can be sent; returns when to call it again at the latest (monotonic ms)."""
        self.busy = False
        try:
            while self._started:
                self.calls.start(self._started.popleft())
            return self.calls.advance(now)
        finally:
            if self.calls.busy:
                self.busy = True

    def fail(self, error: KafkaError) -> None:
        """Every call, now and later, raises ``error``."""
        with self._lock:
            self._failed_by = error
            self._changed.notify_all()

    def _ended(self, _end: CallEnd) -> None:
        with self._lock:
            self._changed.notify_all()


class Rpc(BlockingCalls):
    """``BlockingCalls`` without a sender: runs the loop itself while it waits. Owns its connections and metadata, and
    belongs to one thread at a time.

    ``connections`` is the most to one coordinator. No metadata is requested before a method needs the brokers. A
    client.id is generated if ``config`` has none, because brokers name clients by it and some cannot read a request
    without one.
    """

    def __init__(
        self, config: ProducerConfig, clock: Clock, transport: Transport | None = None, connections: int = 1
    ) -> None:
        config, random = config.with_client_id("adminclient"), Random()
        self._transport = transport or Selector(config.send_buffer_bytes, config.receive_buffer_bytes)
        self._client = NetworkClient(config, self._transport, random)
        metadata = Metadata(config, random, self._client)
        self._updater = MetadataUpdater(metadata)
        self._needs_metadata = False
        self._closed = False
        super().__init__(Calls(self._client, metadata, config, random, connections), metadata, config, clock, None)

    def call(self, call: Call, deadline: float) -> Any:
        if not isinstance(call.target, Coordinator):
            self.await_brokers(deadline)
        return super().call(call, deadline)

    def run(self, calls: Collection[Call], deadline: float, latest_ms: float = NEVER) -> None:
        self._drop_closed_connections()
        super().run(calls, deadline, latest_ms)

    def _wait(self, condition: Callable[[], bool], until: float) -> bool:
        while not condition():
            if (now := self._clock.now()) >= until:
                return False
            self._poll(now, until)
        return True

    def _metadata_wake(self, wait_ms: float) -> Callable[[], None]:
        """Runs the loop until a round of the metadata has ended."""
        self._needs_metadata, metadata, until = True, self._metadata, self._clock.now() + wait_ms

        def run_round() -> None:
            seen = metadata.round
            self._wait(lambda: metadata.round != seen, until)

        return run_round

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
        lost = self.lost_connections()
        ended: dict[int, Response | KafkaError] = {}
        for node_id, make in requests.items():
            node = self.snapshot.nodes.get(node_id)
            gone = BrokerGoneError(f"Broker {node_id} has left the cluster")
            error = gone if node is None else (None if reconnects else lost.get(node_id)) or self._connect(node)
            if error is not None:
                ended[node_id] = error
                continue

            def completed(response: Response) -> None:
                ended[response.node_id] = response

            self._client.send(node_id, make(completed), self._clock.now())
        # Every request completes: with a response, by request.timeout.ms, or with its connection.
        self._wait(lambda: len(ended) == len(requests), NEVER)
        return ended

    def doubt_leaders(self, partitions: Iterable[TopicPartition]) -> None:
        """Calls ``Metadata.doubt_leaders``."""
        self._metadata.doubt_leaders(partitions)

    def await_topic(self, topic: str, partition: int | None, max_wait_ms: float) -> None:
        """Returns when the snapshot has the topic (and partition); raises as ``Metadata.wait_for_topic``."""
        wake = self._metadata_wake(max_wait_ms)
        self._metadata.wait_for_topic(topic, partition, max_wait_ms, self._clock, wake)

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
        self._serve(0.0)

    def _poll(self, now: float, deadline: float) -> None:
        update_at = self._updater.maybe_update(self._client, now) if self._needs_metadata else NEVER
        wake_at = min(deadline, update_at, self.advance(now), self._client.next_deadline(now))
        self._serve(max(0.0, wake_at - now))

    def _serve(self, timeout_ms: float) -> None:
        events, now = self._transport.poll(timeout_ms), self._clock.now()
        self._client.handle(events, now)
        self._client.expire(now)
