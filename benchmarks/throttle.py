"""A slow line to the broker: a TCP proxy that lets so many bytes a second through, all connections together."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

from benchmarks.topics import BROKER_PROPERTIES
from spark_kafka_sink.testing.local_kafka import LocalKafka

_CHUNK = 16 * 1024
_HOST = "127.0.0.1"


@contextlib.contextmanager
def slow_kafka(bytes_per_s: int) -> Iterator[LocalKafka]:
    """A broker that names the proxy's address as its own, so that clients cannot go past it."""
    with socket.create_server((_HOST, 0)) as entrance:
        port = entrance.getsockname()[1]
        advertised = {"advertised.listeners": f"PLAINTEXT://{_HOST}:{port}"}
        with LocalKafka(properties={**BROKER_PROPERTIES, **advertised}) as kafka:
            host, _, broker_port = kafka.bootstrap_servers.partition(":")
            _Line(entrance, (host, int(broker_port)), bytes_per_s).open()
            yield kafka


class _Line:
    """Every connection has two threads, one for each direction; they end when either end closes."""

    def __init__(self, entrance: socket.socket, broker: tuple[str, int], bytes_per_s: int) -> None:
        self._entrance = entrance
        self._broker = broker
        self._bytes_per_s = bytes_per_s
        self._passing = threading.Lock()

    def open(self) -> None:
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the entrance is closed
            while True:
                client, _ = self._entrance.accept()
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _CHUNK)
                broker = socket.create_connection(self._broker)
                threading.Thread(target=self._pass, args=(client, broker, True), daemon=True).start()
                threading.Thread(target=self._pass, args=(broker, client, False), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, slow: bool) -> None:
        with contextlib.suppress(OSError), source, target:
            while data := source.recv(_CHUNK):
                target.sendall(data)
                if slow:
                    with self._passing:  # kept while asleep: the speed is that of all together
                        time.sleep(len(data) / self._bytes_per_s)
