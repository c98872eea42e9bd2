"""ZooKeeper, which brokers before Kafka 3.3 need: one server, from the jars of the broker."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from spark_kafka_sink.testing.child_processes import GuardedProcess, WithLogError, tail
from spark_kafka_sink.testing.kafka_node import HOST

DEADLINE_S = 60.0
_POLL_S = 0.05
_ANSWER_S = 10.0

# Its MBeans need a Log4j that is not there, and its web server a port.
_FLAGS = (
    "-Dzookeeper.jmx.log4j.disable=true",
    "-Dzookeeper.admin.enableServer=false",
    "-Dzookeeper.4lw.commands.whitelist=dump",
    "-Xmx128m",
)


class ZooKeeperError(WithLogError):
    """ZooKeeper did not start; the message ends with its log."""

    escapes = False


class ZooKeeper:
    """A ZooKeeper, which runs from its creation until ``close``. ``java``: the command up to the class path.
    ``folder``: a folder for it alone."""

    def __init__(self, java: Sequence[str], folder: Path, port: int) -> None:
        self.port = port
        self._log = folder / "zookeeper.log"
        folder.mkdir()
        main_class = "org.apache.zookeeper.server.ZooKeeperServerMain"
        command = [java[0], *_FLAGS, *java[1:], main_class, str(port), str(folder / "data")]
        self._process = GuardedProcess(command, log=self._log, cwd=folder)

    def await_ready(self) -> None:
        """Returns when it accepts connections. Raises ``ZooKeeperError`` if it ends, or after 60 s."""
        deadline = time.monotonic() + DEADLINE_S
        while not self._accepts():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ZooKeeperError(f"ZooKeeper did not start:\n{tail(self._log)}")
            time.sleep(_POLL_S)

    def close(self) -> None:
        self._process.kill()

    def has_broker(self, node: int) -> bool:
        """Whether the broker has a session, which lasts some seconds longer than a broker that was killed."""
        with socket.create_connection((HOST, self.port), _ANSWER_S) as connection:
            connection.sendall(b"dump")
            with connection.makefile() as answer:
                return any(line.strip() == f"/brokers/ids/{node}" for line in answer)

    def _accepts(self) -> bool:
        try:
            socket.create_connection((HOST, self.port), 1.0).close()
        except OSError:
            return False
        return True


def broker_properties(of_kraft: Mapping[str, str], port: int) -> dict[str, str]:
    """The ``server.properties`` of a broker that uses ZooKeeper, made from those of a broker in KRaft mode."""
    own = {name: value for name, value in of_kraft.items() if not name.startswith(_KRAFT)}
    listeners = [each for each in of_kraft["listeners"].split(",") if not each.startswith("CONTROLLER:")]
    return {
        **own,
        "broker.id": of_kraft["node.id"],
        "listeners": ",".join(listeners),
        "zookeeper.connect": f"{HOST}:{port}",
        "zookeeper.session.timeout.ms": of_kraft["broker.session.timeout.ms"],
        "group.initial.rebalance.delay.ms": "0",
    }


_KRAFT = ("process.roles", "node.id", "controller.", "broker.session.", "broker.heartbeat.", "share.coordinator.")
