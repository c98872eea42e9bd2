"""What a task tells the driver, and the one line the driver says of all of them."""

import logging
from uuid import UUID

import pytest

from spark_kafka_sink.common.task_figures import TaskFigures, duration_text
from spark_kafka_sink.exactly_once import values as v
from spark_kafka_sink.exactly_once.receipts import WriteReceipt
from spark_kafka_sink.producer.transaction_requests import END_TXN_V1, PreparedTransaction, TransactionalIdentity
from spark_kafka_sink.spark import write
from spark_kafka_sink.spark.commit_message import KafkaCommitMessage, PartitionWrite, aborted, committed
from tests.support.manual_clock import ManualClock

MESSAGES = [
    KafkaCommitMessage((PartitionWrite("a", 0, 3, 30, 5, 7), PartitionWrite("b", 0, 1, 4, 0, 0))),
    KafkaCommitMessage((PartitionWrite("a", 0, 2, 20, 8, 9), PartitionWrite("a", 1, 1, 6, 0, 0))),
    KafkaCommitMessage(),
]


def test_a_message_with_everything_goes_through_json():
    """As ``write_kafka`` gets it. A field of a type that JSON has no form for would fail here."""
    identity = PreparedTransaction("p-0", 2**63 - 1, 3, END_TXN_V1)
    topics = (v.TopicId("t", UUID(int=5)),)
    driver = v.DriverIdentity(TransactionalIdentity("n-driver", 7, 0, END_TXN_V1))
    report = v.TaskReport(
        v.WriteRun("n", v.LedgerPartitions("l", 1, 2), driver, has_entry=False),
        v.WriteId("q", 3, v.WriteKind.VERSION, v.Target(None)), v.TaskAction.WRITE,
        v.TaskOutcome(v.RowChecksum(2, 2**64 - 1), identity),
        decided=v.RowChecksum(), topics=topics, turn=2, ledger_id=UUID(int=6),
        schemas=(v.SchemaId("key", "s", 1), v.SchemaId("value", "s", UUID(int=7))),
    )  # fmt: skip
    figures = TaskFigures(rows=2, throttle_ms=1, dead_letters=(("encode", 2),))
    message = KafkaCommitMessage(MESSAGES[0].writes, report, figures)
    assert KafkaCommitMessage.from_json(message.to_json()) == message


def test_a_commit_is_summed_up_in_one_line():
    assert committed(MESSAGES, ManualClock()) == "7 rows (60 bytes) written to 3 partitions of 2 topics by 3 tasks"


def timed(began_at, duration_ms, **figures):
    return TaskFigures(began_at=began_at, rows=500, duration_ms=duration_ms, **figures)


def message(figures):
    return KafkaCommitMessage((PartitionWrite("a", 0, figures.rows, 5000, 0, 499),), figures=figures)


def line(*figures, now=0):
    return committed([*map(message, figures), KafkaCommitMessage()], ManualClock(now))


def test_the_line_tells_duration_rate_slowest_task_and_where_the_time_went():
    first = timed(10_000, 1500.0, encode_ms=600.0, memory_wait_ms=150.0, ack_wait_ms=300.0)
    second = timed(10_100, 500.0, encode_ms=400.0, ack_wait_ms=100.0)
    assert line(first, second, now=12_000) == (
        "1000 rows (10000 bytes) written to 1 partition of 1 topic by 3 tasks in 2.0 s (500 rows/s, slowest task "
        "1.5 s; tasks: 50 % encoding, 8 % waiting for buffer.memory, 20 % waiting for acknowledgements, "
        "22 % waiting for rows)"
    )


def test_the_line_tells_retries_throttling_and_dead_letters_when_there_are_some():
    figures = timed(0, 100.0, encode_ms=100.0, retries=1, throttle_ms=30.0, dead_letters=(("encode", 2), ("x", 1)))
    assert line(figures, now=250).endswith(
        "in 250 ms (2000 rows/s, slowest task 100 ms, 1 row sent again, throttled 30 ms, 3 dead letters; "
        "tasks: 100 % encoding)"
    )


def test_dead_letters_of_a_task_without_rows_count_in_the_line():
    bad = KafkaCommitMessage(figures=TaskFigures(began_at=0, duration_ms=5.0, dead_letters=(("encode", 4),)))
    assert "4 dead letters" in committed([message(timed(0, 100.0)), bad], ManualClock(200))


def test_an_executor_whose_clock_is_ahead_makes_the_write_no_shorter_than_its_slowest_task():
    assert "in 800 ms (625 rows/s, slowest task 800 ms;" in line(timed(99_000, 800.0, encode_ms=1.0), now=12_000)


def test_an_abort_says_what_stays_in_kafka():
    assert aborted([MESSAGES[0], None]) == (
        "The write was aborted, but its rows stay in Kafka (at least once): 4 rows (34 bytes) written to 2 partitions "
        "of 2 topics by the 1 of 2 tasks that finished, plus the rows that the others sent",
        logging.WARNING,
    )


def test_a_failed_write_ended_with_a_line_about_0_rows_of_0_tasks_at_level_info():
    assert aborted([None]) == (
        "The write was aborted before a task finished. Rows that a task sent before it failed stay in Kafka, and a "
        "repeated write writes them again (at least once)",
        logging.WARNING,
    )


# Receipts of a streaming query have its name, as Spark tells it to tasks.

QUERY = "30a1f898-eca0-4455-b028-a611186140be"
RECEIPTS = (WriteReceipt(QUERY, 7, 0, "t", 0, 0, 4, 5, 50, 1, 2), WriteReceipt(QUERY, 7, 0, "t", 1, 0, 4, 5, 50, 1, 2))


class Context:
    """A task of a streaming query, whose job has this description."""

    def __init__(self, description, query=QUERY):
        self._properties = {"spark.job.description": description, write.QUERY_ID: query}

    def get(self):
        return self

    def getLocalProperty(self, name):  # noqa: N802 (Spark's name)
        return self._properties.get(name)


@pytest.mark.parametrize(
    ("description", "name"),
    [
        (f"orders\nid = {QUERY}\nrunId = 5\nbatch = 7", "orders"),
        (f"of two\nlines\nid = {QUERY}\nrunId = 5\nbatch = 7", "of two\nlines"),
        (f"\nid = {QUERY}\nrunId = 5\nbatch = 7", ""),
        ("set by the user in foreachBatch", ""),
        (None, ""),
    ],
)
def test_the_name_is_what_sparks_description_of_the_job_begins_with(monkeypatch, description, name):
    monkeypatch.setattr(write, "TaskContext", Context(description))
    named = write.with_query_name(RECEIPTS)
    assert [each.query_name for each in named] == [name, name]
    assert [WriteReceipt.parse(each.line()) for each in named] == [*named]


def test_a_batch_job_whose_description_looks_like_a_querys_has_none(monkeypatch):
    monkeypatch.setattr(write, "TaskContext", Context(f"orders\nid = {QUERY}\nrunId = 5", query=None))
    assert write.with_query_name(RECEIPTS) == RECEIPTS


@pytest.mark.parametrize(("ms", "text"), [(300, "300 ms"), (999.4, "999 ms"), (999.6, "1.0 s"), (2_149, "2.1 s")])
def test_incident_a_second_was_1000_ms(ms, text):
    assert duration_text(ms) == text
