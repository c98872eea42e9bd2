"""A real Apache Kafka on this machine for the duration of a ``with`` block: needs Java 17, no containers."""

from __future__ import annotations

import base64
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Self

from spark_kafka_sink.testing import blocking_admin, zookeeper
from spark_kafka_sink.testing.child_processes import GuardedProcess, WithLogError, tail
from spark_kafka_sink.testing.java import find_java
from spark_kafka_sink.testing.kafka_jars import kafka_jars, needs_zookeeper, tools_jar, tools_version
from spark_kafka_sink.testing.kafka_node import CLIENTS, CONTROLLER, KafkaNode, broker_properties, free_ports, is_free
from spark_kafka_sink.testing.kafka_security import properties_text, scram_arguments, security_properties, write_stores
from spark_kafka_sink.testing.listener import Listener, ListenerOptions, rack_of_each
from spark_kafka_sink.testing.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from kio.schema.metadata.v7.response import MetadataResponse, MetadataResponsePartition

DEFAULT_VERSION = "4.4.0"
DEADLINE_S = 60.0
_POLL_S = 0.05
_NOTHING: Mapping[str, str] = MappingProxyType({})
_JVM_FLAGS = (
    "-Xmx512m",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config=warn",  # not hundreds of lines of defaults
)


class LocalKafkaError(WithLogError):
    """The local Kafka failed; the message ends with its log."""

    escapes = False


class LocalKafka(ListenerOptions):
    """A real Kafka. Starts on ``__enter__`` (about 3 s), and on ``__exit__`` ends every process and removes every file.

    Processes and files are removed even after kill -9 of this process. ``nodes`` brokers, each a controller too,
    numbered from 1, listen on 127.0.0.1 at free ports, or from ``port`` upwards. ``["a", "b"]`` are two nodes and their
    racks (``broker.rack``). ``version`` is a release of Apache Kafka from 2.1 on (with SCRAM from 3.5 on), fetched
    once. Releases before 3.3 run with a ZooKeeper, and without further ``listeners``. ``properties`` go into every
    ``server.properties`` and override the defaults; a key store among them is used by the TLS listeners, whose clients
    then need its CA. ``listeners`` adds listeners, each with a port of its own: name → ``Listener``, or its security
    protocol (``{"SECURE": "SASL_SSL"}``). ``spark_options("SECURE")`` are the options of a job that writes through it.
    ``jvm_flags``: further flags of the brokers' JVM (``-Xmx2g``).

    Methods raise ``LocalKafkaError``, or ``BrokerError`` when a broker refuses. For one thread at a time.
    """

    def __init__(
        self,
        nodes: int | Sequence[str] = 1,
        version: str = DEFAULT_VERSION,
        properties: Mapping[str, str] = _NOTHING,
        port: int | None = None,
        listeners: Mapping[str, str | Listener] = _NOTHING,
        jvm_flags: Sequence[str] = (),
    ) -> None:
        self._racks = rack_of_each(nodes)
        count = nodes if isinstance(nodes, int) else len(nodes)
        if count < 1:
            raise LocalKafkaError(f"A Kafka of {count} nodes cannot start.")
        if port is not None and not 1 <= port <= 65536 - count:
            raise LocalKafkaError(f"{count} nodes from port {port} upwards: ports go from 1 to 65535.")
        self.version = version
        self._node_count = count
        self._properties = dict(properties)
        super().__init__(listeners)
        self._jvm_flags = tuple(jvm_flags)
        self._first_port = port
        self._nodes: dict[int, KafkaNode] = {}
        self._zookeeper: ZooKeeper | None = None
        self._owner = os.getpid()

    def __enter__(self) -> Self:
        self._java = find_java()
        kafka_jars(self.version)
        if needs_zookeeper(self.version) and self._listeners:
            raise LocalKafkaError(f"Kafka {self.version} uses ZooKeeper; LocalKafka gives it no further listeners.")
        self.folder = Path(tempfile.mkdtemp(prefix="local-kafka-"))
        try:
            if needs_zookeeper(self.version):
                self._start_zookeeper()
            self._lay_out()
            if self._zookeeper is None:
                self._format()
            for node in self._nodes.values():
                self._launch(node)
            for node in self._nodes.values():
                self._await_ready(node)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Kills the brokers and removes their data. A second call, or one in a fork, does nothing."""
        if os.getpid() != self._owner:
            return
        for node in self._nodes.values():
            if node.process is not None:
                node.process.kill()
        if self._zookeeper is not None:
            self._zookeeper.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of every node."""
        return self.servers(CLIENTS)

    @property
    def node_ids(self) -> tuple[int, ...]:
        return tuple(self._nodes)

    def servers(self, listener: str) -> str:
        """``bootstrap_servers`` of one listener."""
        return ",".join("{}:{}".format(*node.address(listener)) for node in self._nodes.values())

    def alive(self, node: int) -> bool:
        """Whether the node's process exists. A paused process does."""
        return self._nodes[node].alive()

    def log_tail(self, node: int) -> str:
        """The last lines the broker logged."""
        return tail(self._nodes[node].log)

    # -- faults -------------------------------------------------------------------------------------------------------

    def kill(self, node: int) -> None:
        """Kills the node by SIGKILL, without a controlled shutdown. The page cache is kept."""
        self._process(node).kill()
        self._nodes[node].paused = False

    def stop(self, node: int) -> None:
        """Stops the node by a controlled shutdown, in which leaders move away first, and by SIGKILL after 60 s."""
        self._process(node).stop(DEADLINE_S)

    def start(self, node: int, version: str | None = None) -> None:
        """Starts a killed or stopped node on its old ports and data; returns when it responds.

        ``version``: the release of Kafka that it runs from now on, as in a rolling upgrade.
        """
        if self.alive(node):
            raise LocalKafkaError(f"Node {node} is running.")
        if version is not None:
            if needs_zookeeper(version) is not needs_zookeeper(self.version):
                raise LocalKafkaError(
                    f"From Kafka {self.version} to {version}: LocalKafka moves none to or from KRaft."
                )
            self._nodes[node].version = version
        if (keeper := self._zookeeper) is not None:  # a broker ends at once while its last session is still there
            self._await(lambda: not keeper.has_broker(node), f"the session of node {node} is over")
        self._launch(self._nodes[node])
        self._await_ready(self._nodes[node])

    def pause(self, node: int) -> None:
        """SIGSTOP: connections stay open without responses."""
        self._process(node).pause()
        self._nodes[node].paused = True

    def resume(self, node: int) -> None:
        """SIGCONT after ``pause``."""
        self._process(node).send_signal(signal.SIGCONT)
        self._nodes[node].paused = False

    def set_feature(self, name: str, level: int) -> None:
        """Finalizes a feature of the cluster, such as ``transaction.version``."""
        blocking_admin.update_feature(self._any_address(), name, level)

    def set_quotas(self, client_id: str, quotas: Mapping[str, float]) -> None:
        """Limits a client.id, by Kafka's names (``producer_byte_rate``)."""
        blocking_admin.set_quotas(self._any_address(), client_id, quotas)

    def transaction_coordinator(self, transactional_id: str) -> int:
        """Node id of this id's coordinator, -1 while there is none."""
        return blocking_admin.transaction_coordinator(self._any_address(), transactional_id)

    # -- rights -------------------------------------------------------------------------------------------------------

    def allow(self, user: str, operation: str, resource: str, name: str, *, prefixed: bool = False) -> None:
        """Adds an ACL; returns when every node applies it.

        ``operation``: ``WRITE``, ``DESCRIBE``, …; ``resource``: ``TOPIC``, ``TRANSACTIONAL_ID``, ``GROUP`` or
        ``CLUSTER`` (``name``: ``kafka-cluster``). Everybody has all rights on a resource without ACLs; with its first
        ACL, all other rights on it end (``allow.everyone.if.no.acl.found``). Clients of the plaintext listener have
        every right.
        """
        acl = blocking_admin.Acl(f"User:{user}", operation, resource, name, prefixed)
        blocking_admin.create_acl(self._any_address(), acl)
        self._await(
            lambda: all(blocking_admin.has_acl(node.address(), acl) for node in self._responding()), f"{acl} applies"
        )

    # -- topics -------------------------------------------------------------------------------------------------------

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] = _NOTHING, replication: int | None = None
    ) -> None:
        """Returns when every node knows the topic, with all replicas in sync.

        ``replication``: number of replicas, default one per node, at most 3.
        """
        factor = min(self._node_count, 3) if replication is None else replication
        blocking_admin.create_topic(self._controller_address(), name, partitions, factor, configs)
        self.await_in_sync(name)

    def delete_topic(self, name: str) -> None:
        """Returns when no node knows the topic."""
        blocking_admin.delete_topic(self._controller_address(), name)
        self._await(lambda: not any(self._partitions(node, name) for node in self._responding()), f"{name} is deleted")

    def await_in_sync(self, topic: str) -> None:
        """Waits (60 s) until all nodes see a leader and all replicas in sync for each partition."""

        def in_sync_on(node: KafkaNode) -> bool:
            partitions = self._partitions(node, topic)
            # A broker publishes metadata a moment before it has the log, and until then refuses its clients.
            logs = [
                (node.data / f"{topic}-{p.partition_index}").is_dir() for p in partitions if node.id in p.replica_nodes
            ]
            synced = [p.leader_id >= 0 and set(p.isr_nodes) == set(p.replica_nodes) for p in partitions]
            return bool(partitions) and all(synced) and all(logs)

        self._await(lambda: all(map(in_sync_on, self._responding())), f"all replicas of {topic} are in sync")

    def leader(self, topic: str, partition: int) -> int:
        """Node id of the partition's leader, -1 when it has none."""
        for info in self._partitions(self._responding()[0], topic):
            if info.partition_index == partition:
                return int(info.leader_id)
        raise LocalKafkaError(f"There is no partition {topic}-{partition}.")

    def log_dir(self, topic: str, partition: int, node: int | None = None) -> Path:
        """The partition's folder on ``node``."""
        nodes = self._nodes.values() if node is None else [self._nodes[node]]
        for each in nodes:
            folder = each.data / f"{topic}-{partition}"
            if folder.is_dir():
                return folder
        raise LocalKafkaError(f"No node has a replica of {topic}-{partition}.")

    def dump_log_segments(self, topic: str, partition: int | None = None, node: int | None = None) -> str:
        """The output of Kafka's ``DumpLogSegments --deep-iteration``.

        ``partition``: None for all partitions, one after the other.
        """
        every = range(len(self._partitions(self._responding()[0], topic))) if partition is None else [partition]
        folders = [self.log_dir(topic, each, node) for each in every]
        segments = [str(segment) for folder in folders for segment in sorted(folder.glob("*.log"))]
        with zipfile.ZipFile(tools_jar(self.version)) as tools:
            moved = "org/apache/kafka/tools/DumpLogSegments.class" in tools.namelist()
        main_class = "org.apache.kafka.tools.DumpLogSegments" if moved else "kafka.tools.DumpLogSegments"
        version = tools_version(self.version)
        return self._run_tool(main_class, "--deep-iteration", "--files", ",".join(segments), version=version)

    # -- internals ----------------------------------------------------------------------------------------------------

    def _lay_out(self) -> None:
        names = (CLIENTS, CONTROLLER, *self._listeners)
        free = iter(free_ports(self._node_count * len(names)))
        for id_ in range(1, self._node_count + 1):
            ports = {name: next(free) for name in names}
            if self._first_port is not None:
                ports[CLIENTS] = self._first_port + id_ - 1
                if not is_free(ports[CLIENTS]):
                    raise LocalKafkaError(f"Port {ports[CLIENTS]} is in use; choose another one.")
            rack = self._racks[id_ - 1]
            self._nodes[id_] = KafkaNode(id_, self.folder / f"node-{id_}", ports, self.version, rack)
        if self._authority is not None:
            write_stores(self._listeners, self._authority, self.folder)
        nodes = list(self._nodes.values())
        protocols = {name: listener.protocol for name, listener in self._listeners.items()}
        own = {**security_properties(self._listeners, self.folder, self._properties), **self._properties}
        for node in nodes:
            node.folder.mkdir()
            properties = broker_properties(node, nodes, protocols, own)
            if self._zookeeper is not None:
                properties = zookeeper.broker_properties(properties, self._zookeeper.port)
            node.properties_file.write_text(properties_text(properties))

    def _start_zookeeper(self) -> None:
        (port,) = free_ports(1)
        self._zookeeper = ZooKeeper(self._java_command(self.version), self.folder / "zookeeper", port)
        self._zookeeper.await_ready()

    def _format(self) -> None:
        # Of ASCII, so that it never begins with the "-" of an option.
        cluster = base64.urlsafe_b64encode(secrets.token_hex(8).encode()).decode().rstrip("=")
        arguments = ["-t", cluster, *scram_arguments(self._listeners)]
        for node in self._nodes.values():
            self._run_tool("kafka.tools.StorageTool", "format", "-c", str(node.properties_file), *arguments)

    def _run_tool(self, main_class: str, *arguments: str, version: str | None = None) -> str:
        done = subprocess.run(
            [*self._java_command(version or self.version, "-XX:TieredStopAtLevel=1"), main_class, *arguments],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        if done.returncode != 0:
            said = (line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("\tat "))
            raise LocalKafkaError("\n".join([f"{main_class} failed:", *said]))
        return done.stdout

    def _java_command(self, version: str, *flags: str) -> list[str]:
        return [str(self._java), *_JVM_FLAGS, *flags, "-cp", f"{kafka_jars(version)}/*"]

    def _launch(self, node: KafkaNode) -> None:
        java = self._java_command(node.version, *self._jvm_flags)
        command = [*java, "kafka.Kafka", str(node.properties_file)]
        node.paused = False
        node.process = GuardedProcess(command, log=node.log, cwd=node.folder, scratch=self.folder)

    def _await_ready(self, node: KafkaNode) -> None:
        def ready() -> bool:
            if not node.alive():
                raise LocalKafkaError(f"Kafka {node.version} node {node.id} ended at once:\n{tail(node.log)}")
            try:
                known = {int(broker.node_id) for broker in self._metadata(node).brokers}
            except OSError:
                return False
            return known.issuperset(each.id for each in self._responding())

        self._await(ready, f"node {node.id} responds", node)

    def _await(self, condition: Callable[[], bool], what: str, node: KafkaNode | None = None) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            if time.monotonic() > deadline:
                log = tail((node or self._nodes[1]).log)
                raise LocalKafkaError(f"Waited {DEADLINE_S:.0f} s in vain until {what}:\n{log}")
            time.sleep(_POLL_S)

    def _partitions(self, node: KafkaNode, topic: str) -> tuple[MetadataResponsePartition, ...]:
        return self._metadata(node, topic).topics[0].partitions

    def _metadata(self, node: KafkaNode, *topics: str) -> MetadataResponse:
        return blocking_admin.metadata(node.address(), topics)

    def _responding(self) -> list[KafkaNode]:
        nodes = [node for node in self._nodes.values() if node.responds()]
        if not nodes:
            raise LocalKafkaError("No node is running.")
        return nodes

    def _controller_address(self) -> tuple[str, int]:
        """The address at which topics are created: the controller's, or any node's with KRaft."""
        if self._zookeeper is None:
            return self._any_address()
        controller = int(self._metadata(self._responding()[0]).controller_id)
        return self._nodes[controller].address() if controller in self._nodes else self._any_address()

    def _any_address(self) -> tuple[str, int]:
        return self._responding()[0].address()

    def _process(self, node: int) -> GuardedProcess:
        process = self._nodes[node].process
        if process is None or process.poll() is not None:
            raise LocalKafkaError(f"Node {node} is not running.")
        return process
