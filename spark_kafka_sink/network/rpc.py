"""The network client and the metadata, turned by the caller's own thread: for who sends and waits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from spark_kafka_sink.clock import Clock
from spark_kafka_sink.errors import KafkaError, NetworkError
from spark_kafka_sink.model import ClusterSnapshot, Node
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.codec import Request, Response
from spark_kafka_sink.network.metadata import Metadata, MetadataUpdater
from spark_kafka_sink.network.transport import Transport

MakeRequest = Callable[[Callable[[Response], None]], Request]


class InlineNetwork:
    """Belongs to one thread at a time. ``timeout_ms`` (request.timeout.ms) bounds every wait but for a topic."""

    def __init__(
        self, client: NetworkClient, metadata: Metadata, transport: Transport, clock: Clock, timeout_ms: float
    ) -> None:
        self._client = client
        self._metadata = metadata
        self._updater = MetadataUpdater(metadata)
        self._transport = transport
        self._clock = clock
        self._timeout_ms = timeout_ms

    @property
    def snapshot(self) -> ClusterSnapshot:
        return self._metadata.snapshot

    def await_topic(self, topic: str, partition: int | None, max_wait_ms: float) -> None:
        """Until the snapshot has the topic, and the partition if given; raises as ``Metadata.wait_for_topic`` does."""
        deadline = self._clock.now() + max_wait_ms

        def turn() -> None:
            seen = self._metadata.round
            self._turn_until(lambda: self._metadata.round != seen, deadline)

        self._metadata.wait_for_topic(topic, partition, max_wait_ms, self._clock, turn)

    def refresh(self, deadline: float = math.inf) -> None:
        """Ask for all topics anew. When no broker answers in time, what was known stays."""
        seen = self._metadata.snapshot.generation
        self._metadata.request_update()
        until = min(deadline, self._clock.now() + self._timeout_ms)
        self._turn_until(lambda: self._metadata.snapshot.generation != seen, until)

    def least_loaded(self) -> int | None:
        """The node that is likely to answer first; None while all of them are in backoff."""
        node = self._client.least_loaded_node(self._metadata.snapshot.nodes.values(), self._clock.now())
        return None if node is None else node.id

    def exchange(
        self, requests: Mapping[int, MakeRequest], deadline: float = math.inf
    ) -> dict[int, Response | KafkaError]:
        """One request to each of these nodes, all under way at once; how each ended, or why it could not be sent.

        What has no response at the ``deadline`` (monotonic ms) ends as an error.
        """
        self._turn(self._clock.now())  # notices connections that brokers closed since the last exchange
        ended: dict[int, Response | KafkaError] = {}
        for node_id, make in requests.items():
            node = self._metadata.snapshot.nodes.get(node_id)
            error = (
                NetworkError(f"Broker {node_id} has left the cluster")
                if node is None
                else self._connect(node, deadline)
            )
            if error is not None:
                ended[node_id] = error
                continue

            def completed(response: Response) -> None:
                ended[response.node_id] = response

            self._client.send(node_id, make(completed), self._clock.now())
        # The client ends every request: by its answer, by request.timeout.ms, or with its connection.
        self._turn_until(lambda: len(ended) == len(requests), deadline)
        for node_id in requests.keys() - ended.keys():
            ended[node_id] = NetworkError(f"Broker {node_id} did not respond in time")
            self._client.close_node(node_id)
        return ended

    def pause(self, ms: float) -> None:
        """Let time pass; connections are looked after meanwhile."""
        self._turn_until(lambda: False, self._clock.now() + ms)

    def close(self) -> None:
        self._client.close()
        self._transport.shutdown()

    def _connect(self, node: Node, deadline: float) -> KafkaError | None:
        """Until a request can be sent to ``node``; gives what kept an attempt that was made here from it."""
        deadline = min(deadline, self._clock.now() + self._timeout_ms)
        attempted = False
        while (now := self._clock.now()) < deadline:
            if self._client.ready(node, now):
                return None
            delay = self._client.ready_delay(node, now)
            reason = self._client.last_error(node.id)
            if attempted and delay < math.inf and reason is not None:
                return NetworkError(reason)
            attempted = delay == math.inf
            self._turn(min(deadline, now + delay))
        return NetworkError(f"The connection to {node} was not ready in time")

    def _turn_until(self, done: Callable[[], bool], deadline: float) -> None:
        while not done() and self._clock.now() < deadline:
            self._turn(deadline)

    def _turn(self, deadline: float) -> None:
        """One turn of the loop, at most until ``deadline`` (monotonic ms)."""
        client, now = self._client, self._clock.now()
        wake_at = min(deadline, self._updater.maybe_update(client, now), client.next_deadline(now))
        events = self._transport.poll(max(0.0, wake_at - now))
        now = self._clock.now()
        client.handle(events, now)
        client.expire(now)
