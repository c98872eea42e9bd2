"""The nodes of the cluster as they run: listeners, handler pool, purgatory, timeouts (Kafka: ``BrokerServer``)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from typing import Final

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.errors import IllegalStateError
from spark_kafka_sink.testing.broker.acceptor import LOOPBACK
from spark_kafka_sink.testing.broker.faults import Faults
from spark_kafka_sink.testing.broker.handler_pool import HandlerPool
from spark_kafka_sink.testing.broker.node import PLAINTEXT, Listeners, ListeningNode
from spark_kafka_sink.testing.broker.purgatory import Purgatory
from spark_kafka_sink.testing.broker.request_context import BrokerState
from spark_kafka_sink.testing.broker.request_log import RequestLog
from spark_kafka_sink.testing.broker.state.cluster import BrokerNode, ClusterState
from spark_kafka_sink.testing.broker.state.config import Setting
from spark_kafka_sink.testing.broker.state.groups import Groups
from spark_kafka_sink.testing.broker.state.offsets import GroupOffsets
from spark_kafka_sink.testing.broker.state.quotas import ClientQuotas
from spark_kafka_sink.testing.broker.state.transactions import TransactionCoordinator
from spark_kafka_sink.testing.broker.versions import Release

EXPIRE_EVERY_S: Final = 0.05


class Server:
    """The running nodes of a cluster. Made, used and closed on the loop's thread."""

    def __init__(
        self,
        ports: Sequence[int],
        config: Mapping[str, Setting],
        offered: Release,
        faults: Faults,
        log: RequestLog,
        listeners: Listeners,
    ) -> None:
        """``ports``: a port for each node, 0 for a free one. Raises ``OSError`` if a port is in use; then nothing is
        left open."""
        cluster = ClusterState([], config, needs_min_isr=offered.watermark_needs_min_isr)
        offsets = GroupOffsets(cluster, offered.offset_value_version, offered.commit_acks)
        transactions = TransactionCoordinator(cluster, offsets)
        self.state = BrokerState(cluster, offsets, Groups(config), transactions, ClientQuotas(), offered)
        self.purgatory = Purgatory(asyncio.get_running_loop())
        self.pool = HandlerPool(self, self.state, faults, self.purgatory, log)
        numbers = itertools.count(1)
        max_bytes = int(config["socket.request.max.bytes"])
        self._nodes = {
            node: ListeningNode(node, port, listeners, self.pool, numbers, max_bytes)
            for node, port in enumerate(ports, 1)
        }
        try:
            for number, node in self._nodes.items():
                node.open()
                others = node.ports
                cluster.nodes[number] = BrokerNode(number, LOOPBACK, others.pop(PLAINTEXT), other_ports=others)
        except OSError:
            for node in self._nodes.values():
                node.close()
            raise
        self._tasks = [*self.pool.start(), asyncio.create_task(self._expire())]

    def kill(self, node: int) -> None:
        self._check_alive(node, True)
        self._nodes[node].close()
        self.state.cluster.node_died(node)

    def halt(self, node: int) -> None:
        """Stops a node like ``kill``, for handlers: the node may be down already."""
        if self.state.cluster.nodes[node].alive:
            self.kill(node)

    def start(self, node: int) -> None:
        self._check_alive(node, False)
        self._nodes[node].open()
        self._nodes[node].resume()
        self.state.cluster.node_came_back(node)

    def node(self, node: int) -> ListeningNode:
        return self._nodes[node]

    def _check_alive(self, node: int, expected: bool) -> None:
        if self.state.cluster.nodes[node].alive is not expected:
            raise IllegalStateError(f"node {node} is {'not running' if expected else 'running'}")

    async def close(self) -> None:
        for node in self._nodes.values():
            node.close()
        for node in self._nodes.values():
            await node.closed()
        await self.pool.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(EXPIRE_EVERY_S)
            now_ms = SystemClock().epoch_ms()
            self.state.transactions.expire(now_ms)
            self.state.groups.advance(now_ms)
            self.purgatory.check()
