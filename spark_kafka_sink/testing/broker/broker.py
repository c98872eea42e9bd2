"""``TestBroker``: a Kafka cluster in this process, for tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Final, Self, TypeVar

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.model import NO_LEADER
from spark_kafka_sink.errors import IllegalStateError
from spark_kafka_sink.testing.broker.acceptor import server_contexts
from spark_kafka_sink.testing.broker.apis.table import APIS, release
from spark_kafka_sink.testing.broker.authentication import AuthenticationLog
from spark_kafka_sink.testing.broker.faults import Faults, error_code
from spark_kafka_sink.testing.broker.loop_thread import LoopThread
from spark_kafka_sink.testing.broker.node import PLAINTEXT, Listeners
from spark_kafka_sink.testing.broker.request_log import RequestLog
from spark_kafka_sink.testing.broker.server import Server
from spark_kafka_sink.testing.broker.state.config import Setting, broker_config
from spark_kafka_sink.testing.broker.state.partition import Partition
from spark_kafka_sink.testing.broker.topic_view import TopicView
from spark_kafka_sink.testing.broker.versions import LATEST, Narrowed
from spark_kafka_sink.testing.listener import Listener, ListenerOptions, rack_of_each

_T = TypeVar("_T")
_CLOCK: Final = SystemClock()
_NOTHING: Final[Mapping[str, Setting]] = MappingProxyType({})
_NO_LISTENERS: Final[Mapping[str, str | Listener]] = MappingProxyType({})
_MAX_DEFAULT_REPLICATION: Final = 3


class TestBroker(ListenerOptions):
    """A Kafka cluster in this process, which runs from ``__enter__`` to ``__exit__`` on one background thread.

    Listens on 127.0.0.1 only, keeps everything in memory, and responds like the Kafka release ``like`` ("2.1", "2.4",
    "2.8", "3.5", "3.9", "4.1"). The page TestBroker of the documentation lists the differences.

    ``nodes``: the number of nodes, which are numbered from 1 and have a port each, or the rack of each node. ``port``:
    the port of the first node, with the others' following upwards; 0 for any free ports. ``config``: broker settings by
    Kafka's names (see ``state/config.py``). ``api_versions``: narrower ranges of versions, API name to (lowest,
    highest), or to None for an API that the broker lacks. ``listeners``: further listeners, as in ``LocalKafka``, whose
    TLS handshakes and SASL logins are in ``authentications``. There are no ACLs: script refusals, such as
    ``faults.answer("Produce", "TOPIC_AUTHORIZATION_FAILED", topic="t")``.

    >>> with TestBroker() as broker:
    ...     broker.create_topic("t", partitions=2)
    ...     write_to(broker.bootstrap_servers)
    ...     assert [record.value for record in broker.topic("t").records()] == [b"1", b"2"]

    Methods may be called from any thread, even from a function that the script runs on the broker's thread. Bad
    settings raise ``ConfigError``, a port in use ``OSError``; refusals of the cluster raise ``ApiError`` with Kafka's
    error.
    """

    __test__ = False  # pytest: not a class of tests, despite its name

    def __init__(
        self,
        nodes: int | Sequence[str] = 1,
        *,
        port: int = 0,
        like: str = LATEST,
        config: Mapping[str, Setting] = _NOTHING,
        api_versions: Narrowed | None = None,
        listeners: Mapping[str, str | Listener] = _NO_LISTENERS,
    ) -> None:
        self._racks = rack_of_each(nodes)
        if not self._racks:
            raise ValueError("a cluster of 0 nodes cannot start")
        self.faults = Faults(APIS)
        self.requests = RequestLog()
        self.authentications = AuthenticationLog()
        self._nodes = len(self._racks)
        self._port = port
        self._config = broker_config(config)
        self._like = like
        self._release = release(like, api_versions)
        super().__init__(listeners)
        self._thread: LoopThread | None = None
        self._started: Server | None = None
        self._owner = os.getpid()

    def __enter__(self) -> Self:
        thread = LoopThread("kafka-test-broker")
        try:
            self._started = thread.run(self._start())
        except BaseException:
            thread.stop()
            raise
        self._thread = thread
        self._owner = os.getpid()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Cut every connection and end the thread. A second call, or one in a fork, does nothing."""
        thread, self._thread = self._thread, None
        if thread is None or os.getpid() != self._owner:
            return
        server = self._server
        try:
            thread.run(server.close())
        finally:
            thread.stop()

    async def _start(self) -> Server:
        ports = [self._port + step if self._port else 0 for step in range(self._nodes)]
        contexts = server_contexts(self._listeners, self._authority)
        max_reauth_ms = int(self._config["connections.max.reauth.ms"])
        listeners = Listeners(self._listeners, contexts, self.authentications, max_reauth_ms)
        server = Server(ports, self._config, self._release, self.faults, self.requests, listeners)
        for node, rack in enumerate(self._racks, 1):
            server.state.cluster.nodes[node].rack = rack
        return server

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of every node."""
        return self.servers(PLAINTEXT)

    def servers(self, listener: str) -> str:
        """``bootstrap_servers`` of one listener."""
        nodes = self._server.state.cluster.nodes.values()
        return ",".join(f"{node.host}:{node.port_of(listener)}" for node in nodes)

    @property
    def node_ids(self) -> tuple[int, ...]:
        return tuple(range(1, self._nodes + 1))

    # -- topics -------------------------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, Setting] = _NOTHING,
        replication: int | None = None,
    ) -> TopicView:
        """Creates a topic. ``replication``: the number of replicas, by default one per node, at most 3."""
        factor = min(self._nodes, _MAX_DEFAULT_REPLICATION) if replication is None else replication
        self._call(lambda server: server.state.cluster.create_topic(name, partitions, factor, configs))
        return self.topic(name)

    def refuse_topic_configs(self, *names: str, error: str = "POLICY_VIOLATION", message: str | None = None) -> None:
        """Respond ``error`` to each CreateTopics that sets one of them.

        ``message``: the response's message; by default it names the first of these settings that is set.
        """
        code = error_code(error)
        self._call(lambda server: server.state.cluster.limits.refuse(names, code, message))

    def hide_configs(self, *names: str) -> None:
        """Leave these settings out of DescribeConfigs responses."""
        self._call(lambda server: server.state.cluster.limits.hidden.update(names))

    def create_partitions(self, name: str, count: int) -> None:
        """Raise the number of partitions to ``count``."""
        self._call(lambda server: server.state.cluster.create_partitions(name, count))

    def set_topic_configs(self, name: str, configs: Mapping[str, Setting]) -> None:
        """Change some settings of a topic, by Kafka's names."""
        self._call(lambda server: server.state.cluster.set_topic_configs(name, configs))

    def delete_topic(self, name: str) -> None:
        self._call(lambda server: server.state.cluster.delete_topic(name))

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of all topics, including topics that were created automatically."""
        return self._call(lambda server: tuple(server.state.cluster.topics))

    def topic(self, name: str) -> TopicView:
        """The topic's contents."""
        return TopicView(name, lambda read: self._call(lambda server: read(server.state.cluster.topics.get(name))))

    def leader(self, topic: str, partition: int) -> int:
        """Node id of the partition's leader, -1 when it has none."""
        return self._call(lambda server: _partition(server, topic, partition).leader)

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """The group's committed offsets."""
        return self._call(
            lambda server: {
                (name.topic, name.partition): at.offset for name, at in server.state.offsets.of(group).items()
            }
        )

    def metrics(self) -> dict[str, dict[str, float]]:
        """The broker's metrics by Kafka's names: ``{"KafkaRequestHandlerPool": {"RequestHandlerAvgIdlePercent":
        0.98}}``, 1.0 is idle."""
        idle = self._call(lambda server: server.pool.idle.ratio())
        return {"KafkaRequestHandlerPool": {"RequestHandlerAvgIdlePercent": idle}}

    # -- faults: nodes ------------------------------------------------------------------------------------------------

    def kill(self, node: int) -> None:
        """Cut the node's connections and stop listening. Other replicas in the ISR become leaders."""
        self._at(node, lambda server: server.kill(node))

    def start(self, node: int) -> None:
        """Start a killed node on its old port; it is in sync at once."""
        self._at(node, lambda server: server.start(node))

    def pause(self, node: int) -> None:
        """Connections stay open without responses, as under SIGSTOP."""
        self._at(node, lambda server: server.node(node).pause())

    def resume(self, node: int) -> None:
        """After ``pause``: requests that came in meanwhile are handled now."""
        self._at(node, lambda server: server.node(node).resume())

    def cut_connections(self, node: int) -> None:
        """Close the node's connections; it goes on listening."""
        self._at(node, lambda server: server.node(node).cut_connections())

    # -- faults: partitions -------------------------------------------------------------------------------------------

    def move_leader(self, topic: str, partition: int, to: int = NO_LEADER) -> None:
        """Elect another leader with the next epoch; ``to`` -1: none, until the next call."""
        if to != NO_LEADER:
            self._check_node(to)
        self._call(lambda server: _partition(server, topic, partition).elect(to))

    def set_api_versions(self, node: int, api_versions: Narrowed) -> None:
        """The node speaks narrower ranges than ``like`` from now on. Its connections are cut."""
        narrowed = release(self._like, api_versions)
        self._call(lambda server: server.state.node_releases.__setitem__(node, narrowed))
        self.cut_connections(node)

    def set_isr(self, topic: str, partition: int, isr: Sequence[int]) -> None:
        """Set the in-sync replicas."""
        self._call(lambda server: _partition(server, topic, partition).set_isr(isr))

    def hold_followers(self, topic: str, partition: int, nodes: Sequence[int] | None = None) -> None:
        """Stop replication, so that acks=all waits and consumers see no new records.

        ``nodes``: these followers only; default all. A held follower counts until ``set_isr`` takes it out of the
        in-sync replicas. ``ValueError`` for a partition without such a follower: it needs ``replication=2``.
        """
        held = self.node_ids if nodes is None else nodes
        self._call(lambda server: _partition(server, topic, partition).hold_followers(held))

    def release_followers(self, topic: str, partition: int) -> None:
        """End ``hold_followers``: followers have everything again, and delayed responses are sent."""
        self._call(lambda server: _partition(server, topic, partition).release_followers())

    def fail_storage(self, topic: str, partition: int, failed: bool = True, *, halt: bool = False) -> None:
        """Respond KAFKA_STORAGE_ERROR for the partition until called with ``failed=False``.

        ``halt``: instead, the next Produce to the partition stops its node as ``kill`` does, without a response, like a
        broker whose only log directory fails. ``start`` brings the node back with a disk that works.
        """
        self._call(lambda server: _partition(server, topic, partition).fail_storage(failed, halt=halt))

    def drop_producer_state(self, topic: str, partition: int, *, refuse_unknown: bool = False) -> None:
        """Forget every producer of the partition, as retention may.

        ``refuse_unknown``: respond UNKNOWN_PRODUCER_ID to sequences other than 0 from then on, as brokers before 2.5
        did; later brokers accept any sequence of an unknown producer.
        """
        self._call(lambda server: _partition(server, topic, partition).producers.drop(refuses_unknown=refuse_unknown))

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Move the log start offset to ``before``."""
        self._call(lambda server: _partition(server, topic, partition).log.delete_records(before))

    def set_quotas(self, client_id: str, quotas: Mapping[str, float]) -> None:
        """Limit a client.id: ``producer_byte_rate`` in bytes per second and node; an empty mapping removes it.

        As on a real broker, a burst of ten seconds' worth is free.
        """
        self._call(lambda server: server.state.quotas.set(client_id, quotas))

    # -- faults: transactions -----------------------------------------------------------------------------------------

    def hold_markers(self) -> None:
        """Write no markers, so that ended transactions stay in PrepareCommit or PrepareAbort."""
        self._call(lambda server: server.state.transactions.hold_markers(True, _CLOCK.epoch_ms()))

    def release_markers(self) -> None:
        """Write the markers that were held."""
        self._call(lambda server: server.state.transactions.hold_markers(False, _CLOCK.epoch_ms()))

    def expire_transaction(self, transactional_id: str) -> None:
        """Abort and fence the transaction now, as its timeout would."""
        self._call(lambda server: server.state.transactions.fence(transactional_id, _CLOCK.epoch_ms()))

    def transaction_state(self, transactional_id: str) -> str | None:
        """The transaction's state by Kafka's name (``Ongoing``, ``CompleteCommit``, …); None when the id is unknown."""

        def state(server: Server) -> str | None:
            transaction = server.state.transactions.transactions.get(transactional_id)
            return None if transaction is None else transaction.state.value

        return self._call(state)

    # -- internals ----------------------------------------------------------------------------------------------------

    @property
    def _server(self) -> Server:
        if self._started is None:
            raise IllegalStateError(
                "TestBroker is not running; use it as a context manager: with TestBroker() as broker"
            )
        return self._started

    def _call(self, function: Callable[[Server], _T]) -> _T:
        """Change the state on the broker's thread, then send the responses that waited for the change."""
        server, thread = self._server, self._thread
        if thread is None:
            raise IllegalStateError("TestBroker is closed")
        if os.getpid() != self._owner:
            raise IllegalStateError("TestBroker runs in the process that started it, not in a fork of it")

        def change() -> _T:
            try:
                return function(server)
            finally:
                server.purgatory.check()

        return thread.call(change)

    def _at(self, node: int, function: Callable[[Server], object]) -> None:
        self._check_node(node)
        self._call(function)

    def _check_node(self, node: int) -> None:
        if node not in self.node_ids:
            raise ValueError(f"there is no node {node}; nodes are 1 to {self._nodes}")


def _partition(server: Server, topic: str, index: int) -> Partition:
    partition = server.state.cluster.partition(topic, index)
    if partition is None:
        raise ValueError(f"there is no partition {topic}-{index}")
    return partition
