"""Who reads the rows back: librdkafka if it is installed and can log in, else the package's own reader."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import Final

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.tools.certification.rows import KeyAndValue
from spark_kafka_sink.tools.certification.topics import PARTITIONS, ThrowAwayTopics

OWN: Final = "the package's own reader"
_LIBRARY: Final = "confluent_kafka"


@dataclass
class Reader:
    """``note``: why it is not librdkafka. ``name``: of what reads, for people."""

    config: ProducerConfig
    topics: ThrowAwayTopics
    name: str = OWN
    note: str = ""

    def __post_init__(self) -> None:
        if importlib.util.find_spec(_LIBRARY) is None:
            self.note = "confluent-kafka is not installed"
        else:
            self.name = f"confluent-kafka {metadata.version('confluent-kafka')}"

    def read(self, topic: str) -> Iterator[list[KeyAndValue]]:
        """All committed records. Raises ``KafkaError``."""
        if self.note:
            yield from self.topics.read(topic)
            return
        from spark_kafka_sink.tools.demo.check import librdkafka_options, read_topic

        for messages in read_topic(librdkafka_options(self.config), topic, PARTITIONS):
            yield [KeyAndValue(each.key(), each.value()) for each in messages]

    def fall_back(self, error: KafkaError) -> bool:
        """From now on the own reader reads. Returns whether another one read before, which failed with ``error``."""
        if self.note:
            return False
        self.name, self.note = OWN, f"librdkafka could not read: {error}"
        return True
