"""The commit of an exactly-once batch by itself: its intent, an EndTxn for each prepared transaction, its done."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks.model import Part, Run, Side
from benchmarks.rounds import rounds_of
from benchmarks.topics import check_rows, new_topics
from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.exactly_once.commit import commit_batch
from spark_kafka_sink.exactly_once.plan import plan_write
from spark_kafka_sink.exactly_once.session import CommitSettings, close_sessions
from spark_kafka_sink.exactly_once.task import TaskTransaction
from spark_kafka_sink.exactly_once.values import TaskAttempt, TaskReport, WriteId, WriteKind
from spark_kafka_sink.producer.core import ProducerCore
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.spark.write import ProducerCache

if TYPE_CHECKING:
    from benchmarks.harness import Harness

KEPT, NEW = "kept", "new"
"""Connections of the micro-batch before, or those of a new process."""


def run_commits(part: Part, rounds: int, harness: Harness) -> Iterator[Run]:
    """Every side once to warm up; ``part.rows`` tasks of one row each."""
    with new_topics(harness.kafka, part.shape.topics, part.shape.partitions) as (topic,):
        query = _Query(harness.kafka.bootstrap_servers, topic, part.rows)
        try:
            for side in part.sides:
                query.run(side)
            for number, side in rounds_of(part, rounds):
                yield Run(side.name, number, part.rows, {"commit_ms": query.run(side)})
        finally:
            query.close()


class _Query:
    """Its driver and its tasks, in this process."""

    def __init__(self, servers: str, topic: str, tasks: int) -> None:
        producer = ProducerConfig.parse({"bootstrap.servers": servers})
        name = f"bench-{uuid.uuid4().hex}"
        self._settings = CommitSettings(producer, name, "__bench_commits")
        self._servers = servers
        self._topic = topic
        self._tasks = tasks
        self._cache = ProducerCache(ProducerCore.open)
        self._number = 0

    def run(self, side: Side) -> float:
        """Milliseconds that the commit of one batch takes."""
        reports = self._prepared()
        if side.writer == NEW:
            close_sessions()
        started = time.perf_counter()
        commit_batch(self._settings, reports)
        seconds = time.perf_counter() - started
        self._number += 1
        check_rows(self._servers, [self._topic], self._number * self._tasks, transactions=True)
        return seconds * 1000

    def close(self) -> None:
        close_sessions()
        self._cache.close()

    def _prepared(self) -> list[TaskReport]:
        plan = plan_write(self._settings)
        write_id = WriteId("query", self._number, WriteKind.MICRO_BATCH)
        row = RecordColumns(value=pa.array([b"row"], pa.binary()))
        reports = []
        for number in range(self._tasks):
            attempt = TaskAttempt(write_id, number)
            with TaskTransaction(self._settings.producer, plan, attempt, SystemClock(), self._cache.leased) as task:
                task.append(self._topic, row, None)
                reports.append(task.prepare())
        return reports
