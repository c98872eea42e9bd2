"""Producers without Spark: each run in a process of its own, see ``clients``; Java's is ``ProducerPerformance``."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from benchmarks.clients import VALUE_BYTES, Work
from benchmarks.harness import ROOT
from benchmarks.model import Part, Run, Side
from benchmarks.rounds import rounds_of, rows_of
from benchmarks.topics import check_rows, new_topics
from spark_kafka_sink.testing.java import find_java
from spark_kafka_sink.testing.kafka_jars import kafka_jars, tools_version

if TYPE_CHECKING:
    from benchmarks.harness import Harness

RATE = 10_000
DEADLINE_S = 180

# A JVM compiles the producer within a few seconds; the other clients have nothing to compile.
JAVA_WARM_UP_RUNS = 3
JAVA_WARM_UP_S = 10

# "50000 steady state records sent, 9999.2 records/sec (0.95 MB/sec), 0.45 ms avg latency, …, 0 ms 50th, ..."
_SPEED = re.compile(r"(\d+) steady state records sent, ([\d.]+) records/sec .* (\d+) ms 50th, .* (\d+) ms 99th")


def run_producers(part: Part, rounds: int, harness: Harness) -> Iterator[Run]:
    for number, side in rounds_of(part, rounds):
        count = rows_of(side, part.rows)
        with new_topics(harness.kafka, 1, part.shape_of(side).partitions) as (topic,):
            rate = RATE if part.kind == "latency" else None
            keyed = part.shape_of(side).frame == "keyed"
            work = Work(harness.kafka.bootstrap_servers, topic, count, side.options, rate, keyed)
            measures, first = _run(side, work, harness)
            check_rows(work.servers, [topic], count + first)
        yield Run(side.name, number, count, measures)


def _run(side: Side, work: Work, harness: Harness) -> tuple[dict[str, float], int]:
    """The measures, and how many records were sent besides."""
    if side.writer == "java":
        warm_up = JAVA_WARM_UP_S * work.rate if work.rate is not None else JAVA_WARM_UP_RUNS * work.rows
        return _performance(work, warm_up, harness.kafka.version), warm_up
    program = [sys.executable, "-m", "benchmarks.clients", side.writer, json.dumps(asdict(work))]
    measures: dict[str, float] = json.loads(_output(program))
    return measures, work.first_rows


def _performance(work: Work, warm_up: int, kafka_version: str) -> dict[str, float]:
    """Kafka's ``ProducerPerformance``, timed after ``warm_up`` records. Its latencies are whole milliseconds."""
    properties = {"bootstrap.servers": work.servers, "acks": "all", **work.options}
    shown = _output([
        str(find_java()), "-Xmx512m", "-cp", f"{kafka_jars(tools_version(kafka_version))}/*",
        "org.apache.kafka.tools.ProducerPerformance", "--topic", work.topic, "--num-records", str(warm_up + work.rows),
        "--warmup-records", str(warm_up),
        "--record-size", str(VALUE_BYTES), "--throughput", str(work.rate or -1),
        "--producer-props", *(f"{name}={value}" for name, value in properties.items()),
    ])  # fmt: skip
    _, per_s, p50_ms, p99_ms = _SPEED.findall(shown)[-1]
    if work.rate is not None:
        return {"p50_ms": float(p50_ms), "p99_ms": float(p99_ms)}
    return {"seconds": work.rows / float(per_s), "rows_per_s": float(per_s)}


def _output(program: list[str]) -> str:
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(program)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout
