"""On the oldest Kafka that exactly-once is promised for: transactions version 1, and partitions that verify nothing."""

import time
from contextlib import suppress

import pytest

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.exactly_once.task import TaskTransaction
from spark_kafka_sink.exactly_once.values import TaskAttempt, WriteId, WriteKind
from spark_kafka_sink.records.columns import RecordColumns, bytes_column
from spark_kafka_sink.testing import LocalKafka
from tests.faults.exactly_once.test_crashes import EACH_ONCE, MORE, ROWS
from tests.unit.exactly_once.test_failing_tasks import identity_of, send_late

pytestmark = pytest.mark.jvm

OLDEST = "3.3.2"


@pytest.fixture(scope="module")
def kafka():
    with LocalKafka(version=OLDEST) as kafka:
        yield kafka


class Zombie:
    """A task of this process, of partition 0 and batch 1, that goes on when it should not."""

    def __init__(self, query, plan):
        name = TaskAttempt(WriteId(query.name, 1, WriteKind.MICRO_BATCH), 0)
        self._topic = query.topic
        self._write = TaskTransaction(query.settings.producer, plan, name, SystemClock())

    def send(self, value):
        self._write.append(self._topic, RecordColumns(value=bytes_column([value])), None)
        self._write.receipts()

    def prepare(self):
        self._write.prepare()

    def end(self):
        with pytest.raises(ZeroDivisionError), self._write:
            raise ZeroDivisionError

    def fail(self):
        """Gives a row that the task had on its way: its partition, and the identity it is under."""
        (partition,) = self._write.receipt.deliveries
        identity = identity_of(self._write)
        self.end()
        return partition, identity


def test_what_a_failed_task_has_on_its_way_is_not_committed_with_its_successors_rows(query):
    query.run(0, ROWS)
    zombie = Zombie(query, query.plan())
    zombie.send(b"early")
    partition, identity = zombie.fail()
    with suppress(KafkaError):
        send_late(query, partition, identity, b"late")
    query.run(1, MORE)
    assert query.committed() == {**EACH_ONCE, b"e": 1, b"f": 1}


@pytest.mark.parametrize("who", ["sweep", "abort"])
def test_what_an_aborted_task_sends_later_is_not_committed_with_its_successors_rows(query, who):
    query.run(0, ROWS)
    plan = query.plan()
    zombie = Zombie(query, plan)
    zombie.send(b"early")
    if who == "sweep":
        query.plan()
    else:
        query.abort([None, query.start_task(plan, 1, 1, MORE[1]).result()])
    time.sleep(0.5)  # until the markers are in the log
    with pytest.raises(KafkaError, match="INVALID_PRODUCER_EPOCH|PRODUCER_FENCED"):
        zombie.send(b"late")
    query.run(1, MORE)
    zombie.end()
    assert query.committed() == {**EACH_ONCE, b"e": 1, b"f": 1}
