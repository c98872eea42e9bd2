"""Asks brokers for ``max.message.bytes`` of topics (DescribeConfigs), once a broker found a batch too large."""

from __future__ import annotations

import logging

from spark_kafka_sink.accumulator.topic_limits import TopicLimits
from spark_kafka_sink.clock import NEVER
from spark_kafka_sink.network.calls import Call, CallEnd, Calls
from spark_kafka_sink.network.topic_configs import MAX_MESSAGE_BYTES, described_limit, max_message_bytes_call

_log = logging.getLogger("spark_kafka_sink.sender")


class TopicConfigLookup:
    """Owned by the sender thread. Each topic is asked for once, also after an error.

    Call ``begin``, ``advance`` in each iteration, and ``take_ended``. Without a response within ``timeout_ms`` a
    lookup ends, and the limit stays unknown.
    """

    def __init__(self, calls: Calls, limits: TopicLimits, timeout_ms: float) -> None:
        self._calls = calls
        self._limits = limits
        self._timeout_ms = timeout_ms
        self._deadlines: dict[str, float] = {}
        self._asked: set[str] = set()
        self._ended: list[str] = []

    def begin(self, topic: str, now: float) -> bool:
        """Whether the topic's limit is being looked up, from now on or already."""
        if topic not in self._asked:
            self._asked.add(topic)
            self._deadlines[topic] = now + self._timeout_ms
            self._calls.start(self._call(topic))
        return topic in self._deadlines

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
                _log.info(
                    "%s of topic %s is unknown, smaller batches are tried: %s", MAX_MESSAGE_BYTES, topic, end.error
                )
            else:
                self._limits.max_message_bytes[topic] = value
                _log.info("%s of topic %s is %d: its batches are kept below", MAX_MESSAGE_BYTES, topic, value)

        return max_message_bytes_call(topic, ended)
