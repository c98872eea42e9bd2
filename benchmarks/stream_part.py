"""A stream of small micro-batches: what one costs, from the progress that Spark reports."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from benchmarks.frames import FRAMES
from benchmarks.model import Part, Run, Side
from benchmarks.rounds import rounds_of
from benchmarks.spark_sides import STREAM_FORMATS, WRITES_NOTHING, Destination, routed
from benchmarks.topics import check_rows, new_topics

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from benchmarks.harness import Harness

MICRO_BATCHES = 40
WARM_UP_RUN = 90
"""Spark remembers a hundred micro-batches."""
WARM_UP = 5
"""Micro-batches that come after the first and are not counted among the others."""
DEADLINE_S = 120.0


def run_streams(part: Part, rounds: int, harness: Harness) -> Iterator[Run]:
    """One query per run, of ``MICRO_BATCHES`` batches. The first of each side is longer and does not count: a broker
    and a JVM that have just been started compile, which is what the measured ones would be measuring."""
    for side in part.sides:
        _run(part, side, harness, WARM_UP_RUN)
    for number, side in rounds_of(part, rounds):
        yield Run(side.name, number, part.rows * MICRO_BATCHES, _run(part, side, harness))


def _run(part: Part, side: Side, harness: Harness, batches: int = MICRO_BATCHES) -> dict[str, float]:
    servers = harness.kafka.bootstrap_servers
    with new_topics(harness.kafka, part.topics, part.partitions) as topics, tempfile.TemporaryDirectory() as checkpoint:
        source = (
            harness.spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", part.rows)
            .option("numPartitions", part.tasks)
            .load()
        )
        frame = source.withColumnRenamed("value", "id").selectExpr(*FRAMES[part.frame])
        frame, options = routed(frame, Destination(servers, topics[0], side.options, side.exactly_once))
        writer = frame.writeStream.format(STREAM_FORMATS[side.writer]).option("checkpointLocation", checkpoint)
        if side.writer not in WRITES_NOTHING:
            writer = writer.options(**options)
        harness.settle(part.fresh_workers)
        query = writer.start()
        try:
            _await_batches(query, 1 + WARM_UP)
            with harness.processes.measured() as usage:
                before = len(_durations_ms(query, "addBatch"))
                _await_batches(query, batches)
                measured = len(_durations_ms(query, "addBatch")) - before
        finally:
            harness.spark.sparkContext.setLogLevel("OFF")  # of the micro-batch that this interrupts
            query.stop()
            harness.spark.sparkContext.setLogLevel("ERROR")
        durations = _durations_ms(query, "addBatch")
        whole = _durations_ms(query, "triggerExecution")
        if side.writer not in WRITES_NOTHING:
            # The batch that was on its way when the query was stopped may be there, wholly or in part.
            rows = part.rows * len(durations)
            check_rows(servers, topics, rows, more=part.rows, transactions=side.exactly_once)
    usual = sorted(durations[1 + WARM_UP :])
    return {
        "first_batch_ms": durations[0],
        "add_batch_ms": statistics.median(usual),
        "add_batch_p90_ms": usual[int(len(usual) * 0.9)],
        "trigger_ms": statistics.median(whole[1 + WARM_UP :]),
        **{f"{name}_batch_ms": cpu_s / measured * 1000 for name, cpu_s in usage.cpu_s.items()},
    }


def _await_batches(query: StreamingQuery, count: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while len(done := _durations_ms(query, "addBatch")) < count:
        if (error := query.exception()) is not None:
            raise error
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(done)} of {count} micro-batches in {DEADLINE_S:.0f} s")
        time.sleep(0.05)


def _durations_ms(query: StreamingQuery, what: str) -> list[float]:
    """Of every batch that has ended: all of it (``triggerExecution``), or planning, write and commit (``addBatch``)."""
    progress = {each["batchId"]: each for each in query.recentProgress if each["numInputRows"]}
    return [float(progress[batch]["durationMs"][what]) for batch in sorted(progress)]
