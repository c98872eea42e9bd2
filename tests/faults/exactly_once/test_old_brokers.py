"""On the oldest Kafka that exactly-once is promised for: transactions version 1, and partitions that verify nothing."""

import time

import pytest

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.exactly_once.task import TaskTransaction
from spark_kafka_sink.exactly_once.values import TaskAttempt, WriteId, WriteKind
from spark_kafka_sink.records.arrays import bytes_column
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.testing import LocalKafka
from tests.faults.exactly_once.test_crashes import EACH_ONCE, MORE, ROWS

pytestmark = pytest.mark.jvm

OLDEST = "3.3.2"


@pytest.fixture(scope="module")
def kafka():
    with LocalKafka(version=OLDEST) as kafka:
        yield kafka


@pytest.fixture
def zombie(query):
    """A task of this process, of partition 0 and batch 1, that goes on when it should not, and the plan of its run."""
    query.run(0, ROWS)
    plan = query.plan()
    name = TaskAttempt(WriteId(query.name, 1, WriteKind.MICRO_BATCH), 0)
    return TaskTransaction(query.settings.producer, plan, name, SystemClock()), plan


def send(query, write, value):
    write.append(query.topic, RecordColumns(value=bytes_column([value])), None)
    write.receipts()


@pytest.mark.slow
@pytest.mark.parametrize("who", ["sweep", "abort"])
def test_what_an_aborted_task_sends_later_is_not_committed_with_its_successors_rows(query, zombie, who):
    write, plan = zombie
    send(query, write, b"early")
    if who == "sweep":
        query.plan()
    else:
        query.abort([None, query.start_task(plan, 1, 1, MORE[1]).result()])
    time.sleep(0.5)  # until the markers are in the log
    with pytest.raises(KafkaError, match="INVALID_PRODUCER_EPOCH|PRODUCER_FENCED"):
        send(query, write, b"late")
    query.run(1, MORE)
    with pytest.raises(ZeroDivisionError), write:
        raise ZeroDivisionError
    assert query.committed() == {**EACH_ONCE, b"e": 1, b"f": 1}
