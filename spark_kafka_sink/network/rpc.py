"""``Rpc``: calls on connections of their own, for the ledger, the committer, the tools and ``SyncProducer``."""

from __future__ import annotations

from collections.abc import Callable, Collection
from random import Random
from typing import Any

from spark_kafka_sink.common.clock import NEVER, Clock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.waiting import BlockingLoop
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.network.calls import Call, Calls, Coordinator
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.connection import ApiVersions
from spark_kafka_sink.network.handshake import ChannelBuilder
from spark_kafka_sink.network.metadata import Metadata
from spark_kafka_sink.network.selector import Selector


class Rpc(Calls, BlockingLoop):
    """``Calls`` without a sender: runs the loop itself while it waits. Owns its connections and metadata, and belongs
    to one thread at a time.

    ``connections``: the most connections to one coordinator. No metadata is requested before a method needs the
    brokers. A client.id is generated if ``config`` has none, because brokers name clients by it, and some brokers
    cannot read a request without a client.id.
    """

    def __init__(
        self,
        config: ProducerConfig,
        clock: Clock,
        transport: Selector | None = None,
        connections: int = 1,
        channels: ChannelBuilder | None = None,
    ) -> None:
        config, random = config.with_client_id("adminclient"), Random()
        self._transport = transport or Selector(config.send_buffer_bytes, config.receive_buffer_bytes)
        client = NetworkClient(config, self._transport, random, channels=channels)
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

    def disconnect(self, reason: KafkaError) -> None:
        """Closes the connections, so that later calls do not queue behind a request that a broker never responds to.
        Later calls make new connections."""
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

    def _poll(self, now: float, deadline: float, condition: Callable[[], bool] = bool) -> None:
        needs_metadata = self.snapshot.generation or self.metadata.is_asked
        update_at = self.metadata.maybe_update(now) if needs_metadata else NEVER
        wake_at = min(deadline, update_at, self.advance(now), self._client.next_deadline(now))
        self._serve(0.0 if condition() else max(0.0, wake_at - now))  # the update may have served the wait

    def _serve(self, timeout_ms: float) -> None:
        events, now = self._transport.poll(timeout_ms), self._clock.now()
        self._client.handle(events, now)
        self._client.expire(now)
