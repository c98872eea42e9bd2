"""Sends an exporter's samples by OTLP over HTTP, with OpenTelemetry's library.

The data points are made here instead of by the library's instruments, so that a counter's start time is that of the
query's first receipt. After a restart, the exporter then continues the same series instead of beginning another one.
"""

from __future__ import annotations

import logging
from threading import Thread
from typing import Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

import spark_kafka_sink
from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.spark.receipts.exporter import EXPORTER_METRICS, METRICS, PREFIX, Exporter
from spark_kafka_sink.spark.receipts.exporter import Metric as SinkMetric

_NS_PER_MS: Final = 1_000_000
_log = logging.getLogger("spark_kafka_sink.exporter")

_TIMEOUT_S: Final = 2.0
"""The library's timeout of a send with its retries. A response that arrives byte by byte may take longer."""
_WAIT_S: Final = 3.0
"""The longest wait for a send, because receipts are not read meanwhile."""
_UNITS: Final = {"_seconds": "s", "_bytes": "By"}


class OtlpSender:
    """Sends samples to a collector. ``endpoint`` is, for example, ``http://collector:4318/v1/metrics``; None means
    ``OTEL_EXPORTER_OTLP_ENDPOINT``. Headers and certificates come from OpenTelemetry's environment variables.
    """

    def __init__(self, exporter: Exporter, clock: Clock, endpoint: str | None = None) -> None:
        self._exporter = exporter
        self._clock = clock
        self._client = OTLPMetricExporter(endpoint, timeout=_TIMEOUT_S)
        self._sending: Thread | None = None
        self._resource = Resource.create({"service.name": "spark-kafka-sink"})

    def send(self) -> bool:
        """Returns whether the collector took the samples in time; the log says why not.

        Sends nothing while the collector has not ended its response to an earlier send.
        """
        if self._sending is not None and self._sending.is_alive():
            _log.warning("No metrics are sent: the OTLP collector has not ended its last response")
            return False
        now = self._clock.epoch_ms() * _NS_PER_MS
        points: dict[SinkMetric, list[NumberDataPoint]] = {each: [] for each in (*METRICS, *EXPORTER_METRICS)}
        for metric, labels, value, began in self._exporter.samples:
            points[metric].append(NumberDataPoint(labels, began * _NS_PER_MS, now, value))
        metrics = [_metric(metric, found) for metric, found in points.items() if found]
        scope = ScopeMetrics(InstrumentationScope("spark_kafka_sink", spark_kafka_sink.__version__), metrics, "")
        data = MetricsData([ResourceMetrics(self._resource, [scope], "")])
        taken: list[bool] = []
        self._sending = Thread(target=self._export, args=(data, taken), name="otlp-sender", daemon=True)
        self._sending.start()
        self._sending.join(_WAIT_S)
        if self._sending.is_alive():
            _log.warning("The OTLP collector has not ended its response within %.0f s", _WAIT_S)
        return taken == [True]

    def close(self) -> None:
        self._client.shutdown()

    def _export(self, data: MetricsData, taken: list[bool]) -> None:
        taken.append(self._client.export(data) is MetricExportResult.SUCCESS)


def _metric(metric: SinkMetric, points: list[NumberDataPoint]) -> Metric:
    unit = next((unit for suffix, unit in _UNITS.items() if metric.name.endswith(suffix)), "1")
    data = Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True) if metric.is_counter else Gauge(points)
    return Metric(PREFIX + metric.name, metric.doc, unit, data)
