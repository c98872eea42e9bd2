"""Asks brokers for ``max.message.bytes`` of topics (DescribeConfigs) in which a broker found a batch too large."""

from __future__ import annotations

import logging
import math

from spark_kafka_sink.common.clock import NEVER
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.network.calls import Call, CallEnd, Calls
from spark_kafka_sink.network.topic_configs import MAX_MESSAGE_BYTES, described_limit, max_message_bytes_call
from spark_kafka_sink.producer.accumulator.topic_limits import TopicLimits

_log = logging.getLogger("spark_kafka_sink.sender")


class TopicConfigLookup:
    """Owned by the sender thread. Asks for each topic at most once in ``metadata.max.age.ms``, also after an error.

    Call ``begin`` or ``refresh``, ``advance`` in each iteration while ``busy``, and ``take_ended``. Without a response
    within request.timeout.ms a lookup ends, and the limit stays unknown.
    """

    def __init__(self, config: ProducerConfig, calls: Calls, limits: TopicLimits) -> None:
        self._calls = calls
        self._limits = limits
        self._timeout_ms = config.request_timeout_ms
        self._max_age_ms = config.metadata_max_age_ms
        self._deadlines: dict[str, float] = {}
        self._asked_at: dict[str, float] = {}
        self._known_since: dict[str, float] = {}
        self._ended: list[str] = []

    @property
    def busy(self) -> bool:
        """Whether a lookup has not ended, or its end was not taken."""
        return bool(self._deadlines or self._ended)

    def begin(self, topic: str, now: float) -> bool:
        """Whether the topic's limit is being looked up, from now on or already."""
        if now >= self._asked_at.get(topic, -math.inf) + self._max_age_ms:
            self._asked_at[topic] = now
            self._deadlines[topic] = now + self._timeout_ms
            self._calls.start(self._call(topic))
        return topic in self._deadlines

    def refresh(self, topic: str, now: float) -> None:
        """Batches of a topic with a known limit are about to be sent: look the limit up again once it is old."""
        if now >= self._known_since.setdefault(topic, self._asked_at.get(topic, now)) + self._max_age_ms:
            self._known_since[topic] = now
            self.begin(topic, now)

    def advance(self, now: float) -> float:
        """Send what can be sent; returns when to call it again at the latest (monotonic ms)."""
        if self._deadlines and min(self._deadlines.values()) <= now:
            _log.info("No broker has responded in time with %s of %s", MAX_MESSAGE_BYTES, ", ".join(self._deadlines))
            self._calls.stop()
            self._ended += self._deadlines
            self._deadlines.clear()
            return now
        return min(self._calls.advance(now), NEVER, *self._deadlines.values())

    def take_ended(self) -> list[str]:
        """The topics whose lookup has ended since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def _call(self, topic: str) -> Call:
        def ended(end: CallEnd) -> None:
            if self._deadlines.pop(topic, None) is None:
                return
            self._ended.append(topic)
            value = None if end.error is not None else described_limit(end.body)
            if value is None:
                self._limits.forget_guess(topic)
                _log.info(
                    "%s of topic %s is unknown, smaller batches are tried: %s", MAX_MESSAGE_BYTES, topic, end.error
                )
            elif value != self._limits.max_message_bytes.get(topic):
                self._limits.described(topic, value)
                _log.info("%s of topic %s is %d: its batches are kept below", MAX_MESSAGE_BYTES, topic, value)

        return max_message_bytes_call(topic, ended)
