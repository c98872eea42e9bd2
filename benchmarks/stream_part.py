"""A stream of small micro-batches: what one costs, from the progress that Spark reports."""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from benchmarks.frames import FRAMES
from benchmarks.model import Part, Run, Side
from benchmarks.rounds import rounds_of
from benchmarks.spark_sides import STREAM_FORMATS, WRITES_NOTHING, Destination, routed
from benchmarks.topics import check_rows, new_topics

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from benchmarks.harness import Harness
    from benchmarks.processes import Usage

MICRO_BATCHES = 40
WARM_UP_RUN = 90
"""Spark remembers a hundred micro-batches."""
WARM_UP = 5
"""Micro-batches that come after the first and are not counted among the others."""
AGES = (0.001, 0.01, 0.1, 1.0)
"""After which share of an aging query's micro-batches it is looked at."""
AGED_ROWS = 10
"""Rows of a micro-batch there."""
DEADLINE_S = 120.0
STALLED_S = 60.0


def run_streams(part: Part, rounds: int, harness: Harness) -> Iterator[Run]:
    """One query per run, of ``MICRO_BATCHES`` batches. The first of each side is longer and does not count: a broker
    and a JVM that have just been started compile, which is what the measured ones would be measuring."""
    for side in part.sides:
        _run(part, side, harness, int(WARM_UP_RUN * side.share))
    for number, side in rounds_of(part, rounds):
        batches = int(MICRO_BATCHES * side.share)
        yield Run(side.name, number, part.rows * batches, _run(part, side, harness, batches))


def run_aging(part: Part, rounds: int, harness: Harness) -> Iterator[Run]:
    """One long query per round, whose sides are its ages: ``part.rows`` rows, ``AGED_ROWS`` in each micro-batch.

    Each age is measured over a tenth of the micro-batches up to it, at most as many as Spark remembers. A query before
    has warmed the JVMs up.
    """
    total = part.rows // AGED_ROWS
    _run(replace(part, rows=AGED_ROWS), part.sides[0], harness, WARM_UP_RUN)
    for number in range(1, min(rounds, part.most_rounds or rounds) + 1):
        with _query(part, part.sides[0], harness, AGED_ROWS) as query:
            for side, age in zip(part.sides, AGES, strict=True):
                last = max(3, round(total * age))
                first = last - min(max(2, last // 10), WARM_UP_RUN)
                _await_number(query, first)
                with harness.processes.measured() as usage:
                    before = _newest(query)
                    _await_number(query, last)
                    measured = _newest(query) - before
                durations = _durations_ms(query, "addBatch")[-measured:]
                yield Run(
                    side.name,
                    number,
                    AGED_ROWS * measured,
                    {
                        "add_batch_ms": statistics.median(durations),
                        **_cpu_ms(usage, measured),
                        "rss_mib": harness.processes.largest_worker_mib(),
                    },
                )


def _run(part: Part, side: Side, harness: Harness, batches: int) -> dict[str, float]:
    with _query(part, side, harness, part.rows) as query:
        _await_batches(query, 1 + WARM_UP)
        with harness.processes.measured() as usage:
            before = len(_durations_ms(query, "addBatch"))
            _await_batches(query, batches)
            measured = len(_durations_ms(query, "addBatch")) - before
    durations = _durations_ms(query, "addBatch")
    usual = sorted(durations[1 + WARM_UP :])
    return {
        "add_batch_ms": statistics.median(usual),
        "add_batch_p90_ms": usual[int(len(usual) * 0.9)],
        "trigger_ms": statistics.median(_durations_ms(query, "triggerExecution")[1 + WARM_UP :]),
        **_cpu_ms(usage, measured),
    }


def _cpu_ms(usage: Usage, batches: int) -> dict[str, float]:
    return {f"{name}_batch_ms": cpu_s / batches * 1000 for name, cpu_s in usage.cpu_s.items()}


@contextlib.contextmanager
def _query(part: Part, side: Side, harness: Harness, rows: int) -> Iterator[StreamingQuery]:
    """Into topics of its own, whose rows are counted when the block has ended and the query is stopped."""
    servers, shape = harness.kafka.bootstrap_servers, part.shape_of(side)
    with (
        new_topics(harness.kafka, shape.topics, shape.partitions) as topics,
        tempfile.TemporaryDirectory() as checkpoint,
    ):
        source = (
            harness.spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", rows)
            .option("numPartitions", shape.tasks)
            .load()
        )
        frame = source.withColumnRenamed("value", "id").selectExpr(*FRAMES[shape.frame])
        frame, options = routed(frame, Destination(servers, topics, side.options, side.exactly_once))
        writer = frame.writeStream.format(STREAM_FORMATS[side.writer]).option("checkpointLocation", checkpoint)
        if side.writer not in WRITES_NOTHING:
            writer = writer.options(**options, **side.own)
        harness.settle(part.fresh_workers)
        query = writer.start()
        try:
            yield query
        finally:
            harness.spark.sparkContext.setLogLevel("OFF")  # of the micro-batch that this interrupts
            query.stop()
            harness.spark.sparkContext.setLogLevel("ERROR")
        if side.writer not in WRITES_NOTHING:
            # The batch that was on its way when the query was stopped may be there, wholly or in part.
            done = rows * (_newest(query) + 1)
            check_rows(servers, topics, done, more=rows, transactions=side.exactly_once)


def _await_batches(query: StreamingQuery, count: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while len(done := _durations_ms(query, "addBatch")) < count:
        _raise_error(query)
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(done)} of {count} micro-batches in {DEADLINE_S:.0f} s")
        time.sleep(0.05)


def _await_number(query: StreamingQuery, count: int) -> None:
    """Until ``count`` micro-batches have ended, looking seldom: what Spark remembers of a query is long to read."""
    newest, deadline = -1, time.monotonic() + STALLED_S
    while (number := _newest(query)) + 1 < count:
        _raise_error(query)
        if number > newest:
            newest, deadline = number, time.monotonic() + STALLED_S
        elif time.monotonic() > deadline:
            raise TimeoutError(f"no micro-batch has ended in {STALLED_S:.0f} s, {count - number - 1} are to come")
        time.sleep(0.02 if count - number < 50 else 0.5)


def _raise_error(query: StreamingQuery) -> None:
    if (error := query.exception()) is not None:
        raise error


def _newest(query: StreamingQuery) -> int:
    """Number of the last micro-batch that has ended, -1 before the first."""
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


def _durations_ms(query: StreamingQuery, what: str) -> list[float]:
    """Of every batch that has ended: all of it (``triggerExecution``), or planning, write and commit (``addBatch``)."""
    progress = {each["batchId"]: each for each in query.recentProgress if each["numInputRows"]}
    return [float(progress[batch]["durationMs"][what]) for batch in sorted(progress)]
