"""The synchronous producer and its console on a real Kafka; librdkafka reads."""

from __future__ import annotations

import subprocess
import sys
from uuid import uuid4

import confluent_kafka
import pytest

from tests.support.waiting import DEADLINE_S

pytestmark = pytest.mark.jvm


def read(address: str, topic: str, count: int) -> list[confluent_kafka.Message]:
    """``count`` messages of the topic, and no more that come within a second."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": uuid4().hex, "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe([topic])
        messages = consumer.consume(count, 30) + consumer.consume(1, 1)
    finally:
        consumer.close()
    assert [message.error() for message in messages] == [None] * count
    return messages


def test_the_console_of_kafka_0_8_writes_each_line_in_order(local_kafka):
    topic = f"test-topic-{uuid4().hex[:8]}"
    local_kafka.create_topic(topic, partitions=1)  # for a topic that brokers create first, the log has a warning
    command = [sys.executable, "-m", "spark_kafka_sink.tools.cli.main", "console-producer", "--topic", topic, "--sync"]
    command += ["--broker-list", local_kafka.bootstrap_servers]
    done = subprocess.run(command, input=b"one\ntwo\nthree\n", capture_output=True, timeout=DEADLINE_S, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    messages = read(local_kafka.bootstrap_servers, topic, 3)
    assert [(message.offset(), message.value()) for message in messages] == [(0, b"one"), (1, b"two"), (2, b"three")]
