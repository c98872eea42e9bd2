"""A transaction with dead letters, without Spark."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack

import pyarrow as pa

from spark_kafka_sink.clock import SystemClock
from spark_kafka_sink.exactly_once.receipts import TaskName
from spark_kafka_sink.exactly_once.values import TaskReport
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.schema import RowLayout
from spark_kafka_sink.spark.write import append_rows, dead_letters
from tests.unit.exactly_once.runs import Query


def prepared(query: Query, options: SinkOptions, batches: Iterable[pa.RecordBatch], layout: RowLayout) -> TaskReport:
    """Batch 0's only task, as ``write_exactly_once`` runs it."""
    with query.open_task(query.plan(0), 0, 0) as task, ExitStack() as stack:
        letters = dead_letters(task, options, SystemClock(), TaskName(query.query, 0, 0), stack)
        assert letters is not None
        stack.enter_context(letters.refusals_explained(task))
        append_rows(iter(batches), layout, options, SystemClock(), task, letters)
        report = task.prepare()
        letters.finish()
        return report
