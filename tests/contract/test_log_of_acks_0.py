"""An error with acks=0 has no response: the line in the broker's log is the same on TestBroker and on Kafka."""

from __future__ import annotations

import base64
import logging

import pytest

from spark_kafka_sink.testing import LocalKafka
from tests.contract.plain_client import PlainClient, batch
from tests.contract.scenario import Cluster, name, new_topic
from tests.support.kafka_versions import TEST_BROKER, on_kafka
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


@on_kafka("4.1.1", TEST_BROKER)
def test_both_log_it(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "spark_kafka_sink.testing.broker")

    def logged() -> str:
        return cluster.log_tail(1) if isinstance(cluster, LocalKafka) else caplog.text

    first, second = lines_of_a_failed_produce(cluster.bootstrap_servers)
    assert f"{first}\n{second}" in until(logged, lambda log: second in log)
