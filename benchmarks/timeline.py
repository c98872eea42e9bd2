"""A micro-batch over time: Spark's JVM, each call of the writer in each process, and each request to a broker.

``python -m benchmarks.timeline`` runs a stream of 1,000 rows in 10 tasks with a writer that does nothing and with the
sink, writes ``timeline.json``, and with it the pages and the picture.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FIGURES = Path(__file__).with_suffix(".json")
ROWS, TASKS = 1_000, 10
FIRST, LAST = 90, 130
"""The micro-batches that count. In those before, the JVMs of Spark and the broker compile."""

NOTHING, ONCE_OR_MORE, ONCE = "do-nothing Python writer", "at least once", "exactly-once"
SIDES: Mapping[str, Mapping[str, str]] = {
    NOTHING: {},
    ONCE_OR_MORE: {},
    ONCE: {"deliveryGuarantee": "exactly-once"},
}
PLAN, WRITE, COMMIT, TASK, JOB, TRIGGER = "plan", "write", "commit", "task", "job", "trigger"

PHASES = {
    "trigger": "the whole micro-batch",
    "plan": "the writer's plan",
    "plan requests": "of which requests",
    "tasks": "from the first task's start to the last one's end",
    "commit": "the writer's commit",
    "commit requests": "of which requests",
    "rest": "all else of the driver: Spark, its offsets and commit log, starting Python calls",
    "task": "one task, two of which run at once",
    "write": "of which `write()`",
    "write requests": "of which requests",
}


class Span(NamedTuple):
    """``lane``: the number of the task, -1 on the driver. Times in ms, from the epoch or from the trigger."""

    what: str
    lane: int
    begin: float
    end: float

    @property
    def ms(self) -> float:
        return self.end - self.begin

    def within(self, other: Span) -> bool:
        return other.begin <= self.begin and self.end <= other.end


def main() -> int:
    from benchmarks.command import PUBLISHED

    with tempfile.TemporaryDirectory() as folder:
        triggers, spans = _measure(Path(folder))
    figures = {}
    for side, each in triggers.items():
        batches = [_within(trigger, spans) for trigger in each]
        typical = sorted(batches, key=lambda batch: batch[0].ms)[len(batches) // 2]
        phases = [_phases(batch) for batch in batches]
        figures[side] = {
            "medians": {name: round(statistics.median(each[name] for each in phases), 1) for name in PHASES},
            "typical": [(*span[:2], *(round(ms, 2) for ms in span[2:])) for span in typical],
        }
    FIGURES.write_text(json.dumps(figures) + "\n")
    PUBLISHED.draw()
    print(json.dumps({side: each["medians"] for side, each in figures.items()}, indent=1))
    return 0


def _measure(folder: Path) -> tuple[Mapping[str, Sequence[Span]], Sequence[Span]]:
    """The triggers of each side's micro-batches, and all spans of all sides."""
    from benchmarks.harness import SETTINGS, Harness
    from benchmarks.timed_writers import FOLDER
    from benchmarks.topics import new_topics

    notes, events = folder / "notes", folder / "events"
    notes.mkdir()
    events.mkdir()
    os.environ[FOLDER] = str(notes)  # for the JVM that starts now, and its Python processes
    SETTINGS.update({
        "spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false", "spark.eventLog.rolling.enabled": "false",
    })  # fmt: skip
    triggers = {}
    with Harness() as harness, new_topics(harness.kafka, 1, 4) as (topic,):
        servers = harness.kafka.bootstrap_servers
        for side, given in SIDES.items():
            options = {} if side == NOTHING else {"kafka.bootstrap.servers": servers, "topic": topic, **given}
            triggers[side] = _run(harness.spark, side, options, folder / side)
        harness.stop_spark()
    spans = [Span(*json.loads(line)) for file in notes.iterdir() for line in file.read_text().splitlines()]
    spans += [span for file in events.iterdir() for span in _spark_spans(file)]
    return triggers, spans


def _run(spark: SparkSession, side: str, options: Mapping[str, str], checkpoint: Path) -> list[Span]:
    """The triggers of the micro-batches that count."""
    from benchmarks.timed_writers import TimedDataSource, TimedNothing

    spark.dataSource.register(TimedNothing)
    spark.dataSource.register(TimedDataSource)
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", TASKS)
    rows = source.load().selectExpr("cast(value AS string) AS key", "repeat('v', 100) AS value")
    writer = rows.writeStream.format("timed-nothing" if side == NOTHING else "timed").options(**options)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        _await(query)
        progress = [each for each in query.recentProgress if FIRST <= each["batchId"] < LAST]
    finally:
        spark.sparkContext.setLogLevel("OFF")  # of the micro-batch that this interrupts
        query.stop()
    triggers = []
    for each in progress:
        began = time.mktime(time.strptime(each["timestamp"][:19], "%Y-%m-%dT%H:%M:%S")) - time.timezone
        begin = began * 1000 + int(each["timestamp"][20:23])
        triggers.append(Span(TRIGGER, -1, begin, begin + each["durationMs"]["triggerExecution"]))
    return triggers


def _await(query: StreamingQuery) -> None:
    deadline = time.monotonic() + 180
    while query.lastProgress is None or query.lastProgress["batchId"] < LAST:
        if (error := query.exception()) is not None:
            raise error
        if time.monotonic() > deadline:
            raise TimeoutError(f"not {LAST} micro-batches in 180 s")
        time.sleep(0.5)


def _spark_spans(event_log: Path) -> Iterator[Span]:
    """Spark's jobs and tasks."""
    begun: dict[int, float] = {}
    for line in event_log.read_text().splitlines():
        event = json.loads(line)
        match event["Event"]:
            case "SparkListenerTaskEnd":
                info = event["Task Info"]
                yield Span(TASK, info["Index"], info["Launch Time"], info["Finish Time"])
            case "SparkListenerJobStart":
                begun[event["Job ID"]] = event["Submission Time"]
            case "SparkListenerJobEnd":
                yield Span(JOB, -1, begun[event["Job ID"]], event["Completion Time"])


def _within(trigger: Span, spans: Sequence[Span]) -> list[Span]:
    """The spans of one micro-batch, in ms from its trigger."""
    inside = [trigger, *(span for span in spans if span.within(trigger))]
    moved = [Span(what, lane, begin - trigger.begin, end - trigger.begin) for what, lane, begin, end in inside]
    return sorted((span for span in moved if span.what != PLAN or span.ms > 0.2), key=lambda span: span.begin)


def _phases(batch: Sequence[Span]) -> dict[str, float]:
    """What follows each other in a micro-batch, and what a task consists of, in ms."""
    named: dict[str, list[Span]] = {}
    for span in batch:
        named.setdefault(span.what, []).append(span)
    trigger, job = named[TRIGGER][0], named[JOB][0]
    tasks, writes = named[TASK], named[WRITE]
    requests = [span for span in batch if span.what[0].isupper()]
    first, last = min(task.begin for task in tasks), max(task.end for task in tasks)
    commit = named.get(COMMIT, [Span(COMMIT, -1, job.end, job.end)])[0]
    plan = named.get(PLAN, [Span(PLAN, -1, first, first)])[0]
    return {
        "trigger": trigger.ms,
        "plan": plan.ms,
        "plan requests": _covered(requests, plan),
        "tasks": last - first,
        "commit": commit.ms,
        "commit requests": _covered(requests, commit),
        "rest": trigger.ms - plan.ms - (last - first) - commit.ms,
        "task": statistics.mean(task.ms for task in tasks),
        "write": statistics.mean(write.ms for write in writes),
        "write requests": statistics.mean(
            _covered([span for span in requests if span.lane == write.lane], write) for write in writes
        ),
    }


def _covered(spans: Sequence[Span], by: Span) -> float:
    """How many ms of ``by`` are covered by at least one span."""
    total, until = 0.0, by.begin
    for span in sorted((span for span in spans if span.within(by)), key=lambda span: span.begin):
        total += max(0.0, span.end - max(span.begin, until))
        until = max(until, span.end)
    return total


if __name__ == "__main__":
    sys.exit(main())
