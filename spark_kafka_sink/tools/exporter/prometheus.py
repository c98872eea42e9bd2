"""Serves an exporter's samples to Prometheus, with the library prometheus-client.

The server is made here, because the library's own starts a thread for each connection and has no timeout for its
request.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import suppress
from socketserver import ThreadingMixIn
from threading import Lock, Thread
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.tools.exporter.totals import EXPORTER_METRICS, METRICS, PREFIX, QUERY_LABELS, Exporter

_log = logging.getLogger("spark_kafka_sink.exporter")

MOST_CONNECTIONS: Final = 32
"""Further connections are closed at once."""
CONNECTION_MS: Final = 30_000.0
"""A connection is closed after this time, whatever it has sent or read."""


class SampleCollector(Collector):
    """Makes the metrics of each scrape."""

    def __init__(self, exporter: Exporter) -> None:
        self._exporter = exporter

    def collect(self) -> Iterator[Metric]:
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        names: dict[str, tuple[str, ...]] = {}
        for metric in (*METRICS, *EXPORTER_METRICS):
            family = CounterMetricFamily if metric.is_counter else GaugeMetricFamily
            names[metric.name] = () if metric in EXPORTER_METRICS else (*QUERY_LABELS, *metric.labels)
            families[metric.name] = family(PREFIX + metric.name, metric.doc, labels=names[metric.name])
        for metric, labels, value in self._exporter.samples:
            families[metric.name].add_metric([labels.get(name, "") for name in names[metric.name]], value)
        yield from families.values()


class _Handler(WSGIRequestHandler):
    def log_message(self, *args: Any, **kwargs: Any) -> None:
        """Logs no requests."""


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each connection, of which there are at most ``MOST_CONNECTIONS``."""

    daemon_threads = True

    def __init__(self, host: str, port: int, clock: Clock) -> None:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        self.address_family = family
        self._clock = clock
        self._lock = Lock()
        self._began: dict[socket.socket, float] = {}
        super().__init__((str(address[0]), port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            is_taken = len(self._began) < MOST_CONNECTIONS
            if is_taken:
                self._began[request] = self._clock.now()
        if is_taken:
            super().process_request(request, client_address)
        else:
            _log.debug("Closing a connection: there are %d already", MOST_CONNECTIONS)
            self.shutdown_request(request)

    def service_actions(self) -> None:
        """Shuts down late connections. Their threads then read the end of the stream, or fail to write."""
        with self._lock:
            before = self._clock.now() - CONNECTION_MS
            late = [request for request, began in self._began.items() if began < before]
            for request in late:
                with suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._began.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("A scrape failed", exc_info=True)


def serve(exporter: Exporter, host: str, port: int, clock: Clock) -> int:
    """Serves ``/metrics`` on daemon threads until the process ends. Returns the port. Raises ``OSError``."""
    registry = CollectorRegistry()
    registry.register(SampleCollector(exporter))
    server = _Server(host, port, clock)
    server.set_app(make_wsgi_app(registry))
    Thread(target=server.serve_forever, name="metrics-server", daemon=True).start()
    return int(server.server_port)
