"""Batch writes out of Spark, each run into topics of its own."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from benchmarks.frames import TOPIC_NUMBER, frame
from benchmarks.model import Part, Run, Side
from benchmarks.rounds import rounds_of, rows_of
from benchmarks.spark_sides import WRITERS, WRITES_IN_JVM, WRITES_NOTHING, Destination
from benchmarks.throttle import slow_kafka
from benchmarks.topics import check_rows, new_topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from benchmarks.harness import Harness
    from benchmarks.processes import Usage
    from spark_kafka_sink.testing.local_kafka import LocalKafka

WARM_UP_ROWS = 1_000_000
"""Spark's sink and the broker need about as many until their JVMs have compiled what they run."""

_NO_ROW = "rand() < 0"
"""Not known before the tasks run: a write of nothing, so that there are workers. Spark ends those idle for a minute."""


def run_batches(part: Part, rounds: int, harness: Harness) -> Iterator[Run]:
    """Every side once to warm up, with fewer rows and not reported, then ``rounds`` times in turn."""
    with batch_bench(part, harness) as bench:
        for number, side in rounds_of(part, rounds):
            count = rows_of(side, part.rows)
            yield Run(side.name, number, count, bench.write(side, count))


@contextlib.contextmanager
def batch_bench(part: Part, harness: Harness) -> Iterator[BatchBench]:
    """All sides warmed up."""
    with contextlib.ExitStack() as stack:
        slow = part.broker_bytes_per_s
        kafka = harness.kafka if slow is None else stack.enter_context(slow_kafka(slow))
        warm_up = 0 if part.fresh_workers else min(part.rows, WARM_UP_ROWS)
        counts = {rows_of(side, each) for side in part.sides for each in (warm_up, part.rows)}
        frames = stack.enter_context(_frames(part, counts, harness))
        bench = BatchBench(part, harness, kafka, frames)
        if warm_up:
            for side in part.sides:
                bench.write(side, rows_of(side, warm_up))
        yield bench


@contextlib.contextmanager
def _frames(part: Part, counts: Iterable[int], harness: Harness) -> Iterator[Mapping[int, DataFrame]]:
    """A frame for each number of rows."""
    frames = {count: frame(harness.spark, part.frame, count, part.tasks) for count in counts}
    if part.cached:
        for each in frames.values():
            each.cache().count()
    yield frames
    harness.spark.catalog.clearCache()


class BatchBench:
    """Writes one part's frames, each time into new topics."""

    def __init__(self, part: Part, harness: Harness, kafka: LocalKafka, frames: Mapping[int, DataFrame]) -> None:
        self._part = part
        self._harness = harness
        self._kafka = kafka
        self._frames = frames

    def write(self, side: Side, count: int) -> dict[str, float]:
        part, servers = self._part, self._kafka.bootstrap_servers
        with new_topics(self._kafka, part.topics, side.partitions or part.partitions) as topics:
            rows = self._frames[count]
            prefix = topics[0].removesuffix("0") if TOPIC_NUMBER in rows.columns else topics[0]
            destination = Destination(servers, prefix, side.options, side.exactly_once)
            self._harness.settle(part.fresh_workers)
            if not part.fresh_workers:
                WRITERS[side.writer](rows.filter(_NO_ROW), destination)
            with self._harness.processes.measured() as usage:
                started = time.perf_counter()
                WRITERS[side.writer](rows, destination)
                seconds = time.perf_counter() - started
            if side.writer not in WRITES_NOTHING:
                check_rows(servers, topics, count, transactions=side.exactly_once)
        if side.writer in WRITES_IN_JVM:
            usage.peak_rss_mib = None
        return _measures(count, seconds, usage)


def _measures(rows: int, seconds: float, usage: Usage) -> dict[str, float]:
    measures = {"seconds": seconds, "rows_per_s": rows / seconds}
    measures.update((f"{name}_us", cpu_s / rows * 1e6) for name, cpu_s in usage.cpu_s.items())
    measures["cpu_us"] = sum(usage.cpu_s.values()) / rows * 1e6
    if usage.peak_rss_mib is not None:
        measures["peak_rss_mib"] = usage.peak_rss_mib
    return measures
