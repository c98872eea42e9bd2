"""A transaction with dead letters, without Spark."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.exactly_once.receipts import TaskName
from spark_kafka_sink.exactly_once.values import TaskReport, WritePlan
from spark_kafka_sink.spark.exactly_once import refusals_explained
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.pipeline import Pipeline
from spark_kafka_sink.spark.schema import RowLayout
from tests.contract.exactly_once.runs import Query


def prepared(
    query: Query,
    options: SinkOptions,
    batches: Iterable[pa.RecordBatch],
    layout: RowLayout,
    plan: WritePlan | None = None,
    number: int = 0,
) -> TaskReport:
    """Task ``number`` of batch 0, as ``write_exactly_once`` runs it. ``plan``: of all its tasks."""
    plan = query.plan(0) if plan is None else plan
    with query.open_task(plan, 0, number) as task, refusals_explained(task, options):
        name = TaskName(query.query, 0, number)
        Pipeline(options, task, SystemClock(), name).write(iter(batches), layout)
        return task.prepare()
