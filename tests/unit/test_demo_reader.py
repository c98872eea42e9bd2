"""How the demo reads a topic with librdkafka, whose consumer is scripted here."""

import pytest
from confluent_kafka import KafkaError

from examples.demo import librdkafka
from spark_kafka_sink.errors import KafkaError as OurKafkaError


class Message:
    def __init__(self, partition, code=None):
        self._partition, self._code = partition, code

    def partition(self):
        return self._partition

    def error(self):
        return None if self._code is None else KafkaError(self._code, "said")


def read(monkeypatch, *script):
    """The partitions of the records that are read from a topic of two partitions."""
    steps = iter(script)

    class Consumer:
        def __init__(self, options):
            pass

        def assign(self, partitions):
            assert len(partitions) == 2

        def consume(self, count, timeout):
            return next(steps)

        def close(self):
            closed.append(True)

    closed = []
    monkeypatch.setattr(librdkafka, "Consumer", Consumer)
    try:
        return [each.partition() for messages in librdkafka.read_topic({}, "t", 2) for each in messages]
    finally:
        assert closed == [True]
        assert next(steps, None) is None, "it ended before the script"


def end(partition):
    return Message(partition, KafkaError._PARTITION_EOF)


def test_a_topic_ends_with_its_last_partition(monkeypatch):
    assert read(monkeypatch, [Message(0), end(1)], [], [Message(0), end(0)]) == [0, 0]


def test_incident_a_partition_that_ended_twice_counted_for_two(monkeypatch):
    """It had grown meanwhile. The other partition was then not read, and its rows were "missing"."""
    script = [end(0)], [Message(0), end(0)], [Message(1), end(1)]
    assert read(monkeypatch, *script) == [0, 1]


def test_another_error_of_a_partition_is_told(monkeypatch):
    with pytest.raises(OurKafkaError, match="t could not be read: said"):
        read(monkeypatch, [Message(0), Message(1, KafkaError._BAD_MSG)])
