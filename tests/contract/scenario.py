"""What scenarios are made of: steps that say what was done, what the broker answered and what it has to answer."""

from collections.abc import Callable
from typing import TypeAlias
from uuid import uuid4

from spark_kafka_sink.testing import LocalKafka, TestBroker
from tests.contract.plain_client import PlainClient

Cluster: TypeAlias = LocalKafka | TestBroker
Steps: TypeAlias = list[tuple[str, object, object]]
Scenario: TypeAlias = Callable[[PlainClient], Steps]


def name(prefix: str) -> str:
    """Tests share the real Kafka; each needs topics and ids of its own."""
    return f"{prefix}-{uuid4().hex[:12]}"


def new_topic(client: PlainClient, **configs: str) -> str:
    topic = name("topic")
    client.create_topic(topic, **configs)
    return topic


def fetched(client: PlainClient, topic: str) -> bytes:
    """The batches of partition 0, from its start."""
    asked = [{"topic": topic, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]}]
    answer = client.ask("Fetch", 4, max_wait=1000, min_bytes=1, max_bytes=1 << 20, topics=asked)
    return bytes(answer.responses[0].partitions[0].records)
