"""``max.message.bytes`` of the topics that tasks write to, per producer, for metadata.max.age.ms."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final
from weakref import WeakKeyDictionary

from spark_kafka_sink.clock import Clock
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.network.rpc import Rpc
from spark_kafka_sink.network.topic_configs import MAX_MESSAGE_BYTES, look_up_limits
from spark_kafka_sink.producer import KafkaProducer

_log = logging.getLogger("spark_kafka_sink.spark")


class TopicLimitCache:
    """Used by one task at a time, as its producer is. A limit that is not known is None, with one warning."""

    def __init__(self) -> None:
        self._limits: WeakKeyDictionary[KafkaProducer, dict[str, tuple[int | None, float]]] = WeakKeyDictionary()

    def limits(self, producer: KafkaProducer, topics: Sequence[str], clock: Clock) -> Mapping[str, int | None]:
        """Looks up those that are not known; takes at most request.timeout.ms."""
        known = self._limits.setdefault(producer, {})
        now = clock.now()
        unknown = [topic for topic in topics if topic not in known or known[topic][1] <= now]
        if unknown:
            self._look_up(producer, unknown, clock, known)
        return {topic: known[topic][0] for topic in topics}

    def _look_up(
        self, producer: KafkaProducer, topics: Sequence[str], clock: Clock, known: dict[str, tuple[int | None, float]]
    ) -> None:
        config = producer.config
        rpc = Rpc(config, clock)
        try:
            found: Mapping[str, int | KafkaError] = look_up_limits(rpc, topics, clock.now() + config.request_timeout_ms)
        except KafkaError as error:
            found = dict.fromkeys(topics, error)
        finally:
            rpc.close()
        until = clock.now() + config.metadata_max_age_ms
        for topic, limit in found.items():
            if isinstance(limit, int):
                producer.keep_batches_below(topic, limit)
                known[topic] = limit, until
                continue
            if topic not in known or known[topic][0] is not None:
                _log.warning(
                    "%s of topic %s is unknown (%s): the principal needs DESCRIBE_CONFIGS on the topic, so that rows "
                    "larger than that are found before they are sent",
                    MAX_MESSAGE_BYTES, topic, limit,
                )  # fmt: skip
            known[topic] = None, until


LIMITS: Final = TopicLimitCache()
