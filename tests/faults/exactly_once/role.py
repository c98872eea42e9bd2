"""The protocol's processes, each as a function that a process of its own runs."""

from __future__ import annotations

import pyarrow as pa

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.exactly_once.abort import abort_batch
from spark_kafka_sink.exactly_once.commit import commit_batch
from spark_kafka_sink.exactly_once.plan import plan_write
from spark_kafka_sink.exactly_once.task import TaskTransaction
from spark_kafka_sink.exactly_once.values import TaskAttempt
from spark_kafka_sink.network import rpc
from spark_kafka_sink.records.columns import RecordColumns
from tests.faults.support import kill_points
from tests.faults.support.proxy import redirected


def task(config, plan, write_id, number, topic, values):
    """A task's write in two appends, so that it can die between them."""
    with TaskTransaction(config, plan, TaskAttempt(write_id, number), SystemClock()) as write:
        half = len(values) // 2
        for part in (values[:half], values[half:]):
            if part:
                write.append(topic, RecordColumns(value=pa.array(part, pa.binary())), None)
        return write.prepare()


ROLES = {"plan": plan_write, "task": task, "commit": commit_batch, "abort": abort_batch}


def play(answer, role, arguments, through):
    """In the new process: the call's result, or its exception, goes through the pipe."""
    kill_points.install()
    if through:
        rpc.Selector = redirected(through)
    try:
        outcome = ROLES[role](*arguments)
    except Exception as error:
        outcome = error
    answer.send(outcome)
    answer.close()
