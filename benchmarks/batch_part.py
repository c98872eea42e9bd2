"""Batch writes out of Spark, each run into topics of its own, or into those its part keeps."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from benchmarks.frames import frame
from benchmarks.model import Part, Run, Shape, Side
from benchmarks.rounds import rounds_of, rows_of
from benchmarks.spark_sides import NEEDS_REGISTRY, WRITERS, WRITES_IN_JVM, WRITES_NOTHING, Destination
from benchmarks.throttle import slow_kafka
from benchmarks.topics import BROKER_PROPERTIES, check_rows, count_rows, new_topics
from spark_kafka_sink.testing.local_kafka import LocalKafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from benchmarks.harness import Harness
    from benchmarks.processes import Usage

TLS = "TLS"
"""The listener of sides over TLS."""

ONE_CIPHER = {"ssl.enabled.protocols": "TLSv1.3", "ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}
"""Of the broker, so that both clients use it."""

WARM_UP_ROWS = 1_000_000
WARM_UPS = 10
WARM = 1.05
"""A side is warm when two warm-ups in succession are not that much quicker than those before them: the JVMs of Spark
and the broker compile for several million rows."""

_NO_ROW = "rand() < 0"
"""Not known before the tasks run: a write of nothing, so that there are workers. Spark ends those idle for a minute."""


def run_batches(part: Part, rounds: int, harness: Harness) -> Iterator[Run]:
    """Every side until it is warm, with fewer rows and not reported, then ``rounds`` times in turn."""
    with batch_bench(part, harness) as bench:
        for number, side in rounds_of(part, rounds):
            count = rows_of(side, part.rows)
            yield Run(side.name, number, count, bench.write(side, count))


def run_first_writes(part: Part, rounds: int, harness: Harness) -> Iterator[Run]:
    """Each write is the first of a new session, in one JVM, which a first round warms up. These figures lack Spark's
    look-up of data sources, because it happens once in a JVM.
    """
    for number, side in [*((0, side) for side in part.sides), *rounds_of(part, rounds)]:
        harness.stop_spark()
        with batch_bench(part, harness) as bench:
            measures = bench.write(side, part.rows)
        if number:
            python_s = measures["workers_us"] * part.rows / 1e6
            yield Run(side.name, number, part.rows, {"seconds": measures["seconds"], "python_s": python_s})


@contextlib.contextmanager
def batch_bench(part: Part, harness: Harness) -> Iterator[BatchBench]:
    """All sides warmed up."""
    with contextlib.ExitStack() as stack:
        slow = part.broker_bytes_per_s
        if any(side.tls for side in part.sides):
            kafka = stack.enter_context(LocalKafka(properties=BROKER_PROPERTIES | ONE_CIPHER, listeners={TLS: "SSL"}))
        else:
            kafka = harness.kafka if slow is None else stack.enter_context(slow_kafka(slow))
        bench = BatchBench(part, harness, kafka, stack)
        if not part.fresh_workers:
            for side in part.sides:
                bench.warm_up(side)
        yield bench


class BatchBench:
    """Writes one part's frames."""

    def __init__(self, part: Part, harness: Harness, kafka: LocalKafka, stack: contextlib.ExitStack) -> None:
        """``stack``: what is to be closed after the last run."""
        self._part = part
        self._harness = harness
        self._kafka = kafka
        self._stack = stack
        self._frames: dict[tuple[str, int, int], DataFrame] = {}
        self._kept: dict[str, list[str]] = {}
        stack.callback(self._forget_frames)

    def warm_up(self, side: Side) -> None:
        count = rows_of(side, min(self._part.rows, WARM_UP_ROWS))
        quickest, no_quicker = float("inf"), 0
        for _ in range(WARM_UPS):
            seconds = self.write(side, count)["seconds"]
            no_quicker = 0 if seconds * WARM < quickest else no_quicker + 1
            quickest = min(quickest, seconds)
            if no_quicker == 2:
                break

    def write(self, side: Side, count: int) -> dict[str, float]:
        part, servers, shape = self._part, self._kafka.bootstrap_servers, self._part.shape_of(side)
        rows = self._frame(shape, count)
        with self._topics(shape) as topics:
            before = count_rows(servers, topics) if part.keeps_topics else 0
            destination = self._destination(side, topics)
            self._harness.settle(part.fresh_workers)
            if not part.fresh_workers:
                WRITERS[side.writer](rows.filter(_NO_ROW), destination)
            with self._harness.processes.measured() as usage:
                started = time.perf_counter()
                WRITERS[side.writer](rows, destination)
                seconds = time.perf_counter() - started
            if side.writer not in WRITES_NOTHING:
                check_rows(servers, topics, before + count, transactions=side.exactly_once)
        if side.writer in WRITES_IN_JVM:
            usage.peak_rss_mib = None
        return _measures(count, seconds, usage)

    def _destination(self, side: Side, topics: list[str]) -> Destination:
        kafka = self._kafka
        options = kafka.client_options(TLS) if side.tls else {"bootstrap.servers": kafka.bootstrap_servers}
        servers = options.pop("bootstrap.servers")
        registry_url = self._harness.registry.url if side.writer in NEEDS_REGISTRY else ""
        return Destination(servers, topics, {**options, **side.options}, side.exactly_once, registry_url)

    def _frame(self, shape: Shape, count: int) -> DataFrame:
        key = shape.frame, count, shape.tasks
        if key not in self._frames:
            self._frames[key] = frame(self._harness.spark, *key)
            if self._part.cached:
                self._frames[key].cache().count()
        return self._frames[key]

    def _forget_frames(self) -> None:
        self._frames.clear()
        self._harness.spark.catalog.clearCache()

    @contextlib.contextmanager
    def _topics(self, shape: Shape) -> Iterator[list[str]]:
        new = new_topics(self._kafka, shape.topics, shape.partitions, shape.topic_configs)
        if not self._part.keeps_topics:
            with new as topics:
                yield topics
            return
        key = f"{shape.topics} {shape.partitions} {shape.topic_configs}"
        if key not in self._kept:
            self._kept[key] = self._stack.enter_context(new)
        yield self._kept[key]


def _measures(rows: int, seconds: float, usage: Usage) -> dict[str, float]:
    measures = {"seconds": seconds, "rows_per_s": rows / seconds}
    measures.update((f"{name}_us", cpu_s / rows * 1e6) for name, cpu_s in usage.cpu_s.items())
    measures["cpu_us"] = sum(usage.cpu_s.values()) / rows * 1e6
    if usage.peak_rss_mib is not None:
        measures["peak_rss_mib"] = usage.peak_rss_mib
    return measures
