"""``Rpc``: calls on connections of their own, for the ledger, the committer, the tools and the sync producer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from random import Random
from typing import Any, TypeAlias

from spark_kafka_sink.common.clock import NEVER, Clock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import Node
from spark_kafka_sink.common.waiting import CallersLoop
from spark_kafka_sink.errors import KafkaError, NetworkError
from spark_kafka_sink.network.calls import BrokerGoneError, Call, Calls, Coordinator
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.connection import ApiVersions
from spark_kafka_sink.network.messages import CompletionHandler, Request, Response
from spark_kafka_sink.network.metadata import Metadata
from spark_kafka_sink.network.selector import Selector

MakeRequest: TypeAlias = Callable[[CompletionHandler], Request]
"""Makes one request that completes with the handler."""


class Rpc(Calls, CallersLoop):
    """``Calls`` without a sender: runs the loop itself while it waits. Owns its connections and metadata, and belongs
    to one thread at a time.

    ``connections`` is the most to one coordinator. No metadata is requested before a method needs the brokers. A
    client.id is generated if ``config`` has none, because brokers name clients by it and some cannot read a request
    without one.
    """

    def __init__(
        self, config: ProducerConfig, clock: Clock, transport: Selector | None = None, connections: int = 1
    ) -> None:
        config, random = config.with_client_id("adminclient"), Random()
        self._transport = transport or Selector(config.send_buffer_bytes, config.receive_buffer_bytes)
        client = NetworkClient(config, self._transport, random)
        super().__init__(client, Metadata(config, random, client, clock, self), config, random, connections)
        self._closed = False

    def call(self, call: Call, deadline: float) -> Any:
        if not isinstance(call.target, Coordinator):
            self.await_brokers(deadline)
        return super().call(call, deadline)

    def run(self, calls: Collection[Call], deadline: float, latest_ms: float = NEVER) -> None:
        # Drops what brokers have closed, or was unused for connections.max.idle.ms and may be cut without notice.
        self._serve(0.0)
        super().run(calls, deadline, latest_ms)

    def run_until(self, condition: Callable[[], bool], ms: float) -> bool:
        until = self._clock.now() + ms
        while not condition():
            if (now := self._clock.now()) >= until:
                return False
            self._poll(now, until, condition)
        return True

    def lost_connections(self) -> dict[int, KafkaError]:
        """The nodes whose connection failed or was closed since the last call or metadata update, with the error."""
        self._serve(0.0)
        now, lost = self._clock.now(), self._client.drain_disconnects()
        for node, error in lost:
            self.metadata.note_connection_error(node, error, now)
        return {node.id: error for node, error in lost}

    def exchange(
        self, requests: Mapping[int, MakeRequest], *, reconnects: bool = True
    ) -> dict[int, Response | KafkaError]:
        """Sends one request to each of these nodes, without retries. Returns each response, or why it was not sent.

        Unless it ``reconnects``, nothing is sent to a node whose connection turns out to be lost.
        """
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
        self.run_until(lambda: len(ended) == len(requests), NEVER)
        return ended

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

    def _poll(self, now: float, deadline: float, condition: Callable[[], bool] = bool) -> None:
        needs_metadata = self.snapshot.generation or self.metadata.is_asked
        update_at = self.metadata.maybe_update(now) if needs_metadata else NEVER
        wake_at = min(deadline, update_at, self.advance(now), self._client.next_deadline(now))
        self._serve(0.0 if condition() else max(0.0, wake_at - now))  # the update may have served the wait

    def _serve(self, timeout_ms: float) -> None:
        events, now = self._transport.poll(timeout_ms), self._clock.now()
        self._client.handle(events, now)
        self._client.expire(now)
