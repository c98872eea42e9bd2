"""The synchronous producer and its console on a real Kafka; librdkafka reads."""

import subprocess
import sys
from uuid import uuid4

import pytest

from tests.spark.topics import Topic
from tests.support.waiting import DEADLINE_S

pytestmark = pytest.mark.jvm


def test_the_console_of_kafka_0_8_writes_each_line_in_order(local_kafka):
    topic = f"test-topic-{uuid4().hex[:8]}"
    local_kafka.create_topic(topic, partitions=1)  # for a topic that brokers create first, the log has a warning
    command = [sys.executable, "-m", "spark_kafka_sink.tools.cli.main", "console-producer", "--topic", topic, "--sync"]
    command += ["--broker-list", local_kafka.bootstrap_servers]
    done = subprocess.run(command, input=b"one\ntwo\nthree\n", capture_output=True, timeout=DEADLINE_S, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    records = Topic(local_kafka.bootstrap_servers, topic).records()
    assert [(record.offset, record.value) for record in records] == [(0, b"one"), (1, b"two"), (2, b"three")]
