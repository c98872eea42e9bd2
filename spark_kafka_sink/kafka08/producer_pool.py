"""``ProducerPool``: the connections of a ``SyncProducer`` to its leaders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from spark_kafka_sink.common.clock import NEVER
from spark_kafka_sink.common.model import Node
from spark_kafka_sink.errors import KafkaError, NetworkError
from spark_kafka_sink.network.calls import BrokerGoneError
from spark_kafka_sink.network.messages import CompletionHandler, Request, Response
from spark_kafka_sink.network.rpc import Rpc

MakeRequest: TypeAlias = Callable[[CompletionHandler], Request]
"""Makes one request that completes with the handler."""


class ProducerPool(Rpc):
    """The connections to the leaders, with one request to each at a time, on the thread of the caller (Kafka 0.8:
    ``ProducerPool``)."""

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

    def _connect(self, node: Node) -> KafkaError | None:
        """Connects. Returns None when ``node`` is ready, otherwise the error of an attempt that was made here."""
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
        why = self._client.why_waiting(node, now)
        return NetworkError(f"The connection to {node} was not ready in time" if why is None else why.text)
