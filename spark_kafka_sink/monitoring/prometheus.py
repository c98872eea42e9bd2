"""Serves an exporter's samples to Prometheus, by the library prometheus-client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from spark_kafka_sink.monitoring.exporter import Exporter
from spark_kafka_sink.monitoring.totals import EXPORTER_METRICS, METRICS, PREFIX

_QUERY: Final = ("query",)


class SampleCollector(Collector):
    """Makes the metrics of one scrape."""

    def __init__(self, exporter: Exporter) -> None:
        self._exporter = exporter

    def collect(self) -> Iterator[Metric]:
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for metric in (*METRICS, *EXPORTER_METRICS):
            family = CounterMetricFamily if metric.is_counter else GaugeMetricFamily
            names = () if metric in EXPORTER_METRICS else (*_QUERY, *metric.labels)
            families[metric.name] = family(PREFIX + metric.name, metric.doc, labels=names)
        for metric, labels, value, _ in self._exporter.samples:
            families[metric.name].add_metric([*labels.values()], value)
        yield from families.values()


def serve(exporter: Exporter, host: str, port: int) -> int:
    """Serves ``/metrics`` on threads of the library until the process ends. Returns the port. Raises ``OSError``."""
    registry = CollectorRegistry()
    registry.register(SampleCollector(exporter))
    server, _ = start_http_server(port, host, registry)
    return int(server.server_port)
