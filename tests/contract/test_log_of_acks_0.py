"""An error with acks=0 has no response: the line in the broker's log is the same on TestBroker and on Kafka."""

from __future__ import annotations

import base64
import logging

import pytest

from spark_kafka_sink.testing import LocalKafka, TestBroker
from tests.contract.plain_client import PlainClient, batch
from tests.contract.scenario import name, new_topic
from tests.support.kafka_versions import on_kafka
from tests.support.waiting import until


def lines_of_a_failed_produce(bootstrap_servers: str) -> list[str]:
    """Writes to one partition that exists and one that does not, with acks=0; what the broker has to log."""
    client_id = name("client")
    with PlainClient(bootstrap_servers, client_id) as client:
        topic = new_topic(client)
        topic_id = client.ask("Metadata", 12, topics=[{"name": topic}]).topics[0].topic_id
        prefix = base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
        partitions = [{"index": index, "records": batch([b"x"])} for index in (0, 7)]
        data = [{"name": topic, "partition_data": partitions}]
        correlation_id = client.tell("Produce", 9, acks=0, timeout=1000, topic_data=data)
        assert client.is_hung_up()
    return [
        f"Closing connection due to error during produce request with correlation id {correlation_id} from client id "
        f"{client_id} with ack=0",
        f"Topic and partition to exceptions: {prefix}:{topic}-0 -> null, {prefix}:{topic}-7 -> "
        "org.apache.kafka.common.errors.UnknownTopicOrPartitionException",
    ]


def test_test_broker_logs_it(kafka_test_broker: TestBroker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "spark_kafka_sink.testing.broker")

    expected = lines_of_a_failed_produce(kafka_test_broker.bootstrap_servers)

    assert "\n".join(expected) in [record.getMessage() for record in caplog.records]


@pytest.mark.jvm
@on_kafka("4.1.1")
def test_kafka_logs_it(local_kafka: LocalKafka) -> None:
    expected = lines_of_a_failed_produce(local_kafka.bootstrap_servers)

    logged = until(lambda: local_kafka.log_tail(1).splitlines(), lambda logged: expected[1] in logged)
    assert logged[logged.index(expected[1]) - 1].endswith(expected[0])
