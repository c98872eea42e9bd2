"""Producers without Spark: each run in a process of its own, see ``clients``; Java's is Kafka's own program."""

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
from spark_kafka_sink.testing.kafka_jars import kafka_jars

if TYPE_CHECKING:
    from benchmarks.harness import Harness

RATE = 10_000
DEADLINE_S = 180

# "50000 records sent, 9999.2 records/sec (0.95 MB/sec), 0.45 ms avg latency, 12.00 ms max latency, 0 ms 50th, ..."
_SPEED = re.compile(r"(\d+) records sent, ([\d.]+) records/sec .* (\d+) ms 50th, .* (\d+) ms 99th")


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
        return _performance(work, harness.kafka.version), 0
    program = [sys.executable, "-m", "benchmarks.clients", side.writer, json.dumps(asdict(work))]
    measures: dict[str, float] = json.loads(_output(program))
    return measures, work.first_rows


def _performance(work: Work, kafka_version: str) -> dict[str, float]:
    """Kafka's ``ProducerPerformance``. Its latencies are whole milliseconds; its start is part of the time it takes."""
    properties = {"bootstrap.servers": work.servers, "acks": "all", **work.options}
    shown = _output([
        str(find_java()), "-Xmx512m", "-cp", f"{kafka_jars(kafka_version)}/*",
        "org.apache.kafka.tools.ProducerPerformance", "--topic", work.topic, "--num-records", str(work.rows),
        "--record-size", str(VALUE_BYTES), "--throughput", str(work.rate or -1),
        "--producer-props", *(f"{name}={value}" for name, value in properties.items()),
    ])  # fmt: skip
    total = _SPEED.findall(shown)[-1]
    if work.rate is not None:
        return {"p50_ms": float(total[2]), "p99_ms": float(total[3])}
    return {"seconds": work.rows / float(total[1]), "rows_per_s": float(total[1])}


def _output(program: list[str]) -> str:
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(program)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout
