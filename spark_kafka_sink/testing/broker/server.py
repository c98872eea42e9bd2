"""The nodes of the cluster as they run: listeners, handler pool, purgatory, timeouts (Kafka: ``BrokerServer``)."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Mapping
from typing import Final

from spark_kafka_sink.errors import IllegalStateError
from spark_kafka_sink.testing.broker.call import BrokerState
from spark_kafka_sink.testing.broker.faults import Faults
from spark_kafka_sink.testing.broker.handler_pool import HandlerPool
from spark_kafka_sink.testing.broker.listener import LOOPBACK, Listener
from spark_kafka_sink.testing.broker.purgatory import Purgatory
from spark_kafka_sink.testing.broker.request_log import RequestLog
from spark_kafka_sink.testing.broker.state.cluster import BrokerNode, Cluster
from spark_kafka_sink.testing.broker.state.config import Setting
from spark_kafka_sink.testing.broker.state.offsets import GroupOffsets
from spark_kafka_sink.testing.broker.state.transactions import TransactionCoordinator
from spark_kafka_sink.testing.broker.versions import Release

EXPIRE_EVERY_S: Final = 0.05


class Server:
    """Made, used and closed on the loop's thread."""

    def __init__(
        self, nodes: int, config: Mapping[str, Setting], offered: Release, faults: Faults, log: RequestLog
    ) -> None:
        cluster = Cluster([], config)
        offsets = GroupOffsets()
        self.state = BrokerState(cluster, offsets, TransactionCoordinator(cluster, offsets), offered)
        self.purgatory = Purgatory(asyncio.get_running_loop())
        self._pool = HandlerPool(self.state, faults, self.purgatory, log.add)
        numbers = itertools.count(1)
        max_bytes = int(config["socket.request.max.bytes"])
        self._listeners = {node: Listener(node, self._pool, numbers, max_bytes) for node in range(1, nodes + 1)}
        for node, listener in self._listeners.items():
            listener.open()
            cluster.nodes[node] = BrokerNode(node, LOOPBACK, listener.port)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._pool.run_handler()) for _ in range(int(config["num.io.threads"]))]
        self._tasks.append(loop.create_task(self._expire_transactions()))

    def kill(self, node: int) -> None:
        self._check_alive(node, True)
        self._listeners[node].close()
        self.state.cluster.node_died(node)

    def start(self, node: int) -> None:
        self._check_alive(node, False)
        self._listeners[node].open()
        self._listeners[node].resume()
        self.state.cluster.node_came_back(node)

    def listener(self, node: int) -> Listener:
        return self._listeners[node]

    def _check_alive(self, node: int, expected: bool) -> None:
        if self.state.cluster.nodes[node].alive is not expected:
            raise IllegalStateError(f"node {node} is {'not running' if expected else 'running'}")

    async def close(self) -> None:
        for listener in self._listeners.values():
            listener.close()
        for listener in self._listeners.values():
            await listener.closed()
        await self._pool.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _expire_transactions(self) -> None:
        while True:
            await asyncio.sleep(EXPIRE_EVERY_S)
            self.state.transactions.expire(time.time_ns() // 1_000_000)
            self.purgatory.check()
