"""Replays of decided batches with dead letters, after limits and partitions have changed."""

import pyarrow as pa
import pytest

from spark_kafka_sink.exactly_once.errors import LostRowsError
from spark_kafka_sink.exactly_once.values import TaskAction
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.schema import RowLayout
from spark_kafka_sink.testing import TestBroker
from tests.unit.exactly_once.runs import Query, new_process
from tests.unit.spark.dead_letter_runs import prepared

LARGE = bytes(range(256)) * 10
ROWS = ([b"a", LARGE + b"0", b"b"], [b"c", LARGE + b"1"])


@pytest.fixture
def broker():
    with TestBroker(config={"auto.create.topics.enable": False}) as broker:
        broker.create_topic("out", partitions=2, configs={"max.message.bytes": 2_000})
        broker.create_topic("dead")
        yield broker
    new_process()


def tasks(broker, query, plan):
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "out", "deadlettertopic": "dead"}
    options = SinkOptions.parse(given)
    partitions = [pa.array([0, 1, None], pa.int32()), pa.array([5, 0], pa.int32())]
    return [
        prepared(query, options, [pa.record_batch([values, where], ["value", "partition"])], LAYOUT, plan, number)
        for number, (values, where) in enumerate(zip(map(pa.array, ROWS), partitions, strict=True))
    ]


LAYOUT = RowLayout(value=0, partition=1)


def visible(broker, topic):
    return sorted(record.value for record in broker.topic(topic).records(read_committed=True))


def test_a_task_whose_rows_are_gone_writes_them_by_the_limits_of_today(broker):
    """Task 0 is committed with a dead letter. Task 1 timed out behind the intent; its rows could be written now."""
    query = Query(broker.bootstrap_servers)
    reports = tasks(broker, query, query.plan(0))
    with pytest.raises(LostRowsError, match="task 1 are gone"):
        query.commit(reports, lambda: broker.expire_transaction("app-1"))
    assert (visible(broker, "out"), visible(broker, "dead")) == ([b"a", b"b"], [LARGE + b"0"])
    broker.set_topic_configs("out", {"max.message.bytes": 1_000_000})
    broker.create_partitions("out", 6)
    again = tasks(broker, query, query.plan(0))
    assert [report.action for report in again] == [TaskAction.VERIFY, TaskAction.REWRITE]
    query.commit(again)
    assert visible(broker, "out") == sorted([b"a", b"b", b"c", LARGE + b"1"])
    assert visible(broker, "dead") == [LARGE + b"0"]
    assert broker.topic("out").values(5) == [b"c"]
