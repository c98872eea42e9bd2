"""What a task tells the driver, and the one line the driver says of all of them."""

import logging
import pickle
import re

import pytest
from pyspark.sql.datasource import WriterCommitMessage

from spark_kafka_sink.spark.commit_message import KafkaCommitMessage, PartitionWrite, aborted, announce, committed

MESSAGES = [
    KafkaCommitMessage((PartitionWrite("a", 0, 3, 30, 5, 7), PartitionWrite("b", 0, 1, 4, 0, 0))),
    KafkaCommitMessage((PartitionWrite("a", 0, 2, 20, 8, 9), PartitionWrite("a", 1, 1, 6, 0, 0))),
    KafkaCommitMessage(),
]


def test_a_message_is_a_plain_value_that_spark_takes():
    copy = pickle.loads(pickle.dumps(MESSAGES[0]))
    assert copy == MESSAGES[0]
    assert isinstance(copy, WriterCommitMessage)
    assert hash(copy) == hash(MESSAGES[0])


def test_a_commit_is_summed_up_in_one_line():
    assert committed(MESSAGES) == "7 rows (60 bytes) written to 3 partitions of 2 topics by 3 tasks"


def test_one_of_each_is_said_in_the_singular():
    assert committed([KafkaCommitMessage((PartitionWrite("a", 0, 1, 9, 0, 0),))]) == (
        "1 row (9 bytes) written to 1 partition of 1 topic by 1 task"
    )


def test_an_abort_says_what_stays_in_kafka():
    assert aborted([MESSAGES[0], None]) == (
        "write aborted, but its rows stay in Kafka (at least once): 4 rows (34 bytes) written to 2 partitions of "
        "2 topics by the 1 of 2 tasks that finished, plus the rows that the others sent"
    )


@pytest.fixture
def logger(monkeypatch):
    """The logger as Spark's Python processes find it: no level, and no handler (pytest's aside)."""
    logger = logging.getLogger("spark_kafka_sink")
    monkeypatch.setattr(logger, "hasHandlers", lambda: False)
    yield logger
    logger.setLevel(logging.NOTSET)


def test_the_line_reaches_stderr_where_no_logging_is_configured(logger, capsys):
    announce("7 rows")
    assert re.fullmatch(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d INFO pykafka: 7 rows\n", capsys.readouterr().err)


def test_the_line_goes_to_the_users_handlers_where_there_are_some(logger, monkeypatch, capsys, caplog):
    monkeypatch.setattr(logger, "hasHandlers", lambda: True)
    announce("7 rows")
    assert caplog.messages == ["7 rows"]
    assert capsys.readouterr().err == ""


def test_a_raised_level_silences_the_line(logger, capsys, caplog):
    logger.setLevel(logging.WARNING)
    announce("7 rows")
    assert (capsys.readouterr().err, caplog.messages) == ("", [])
