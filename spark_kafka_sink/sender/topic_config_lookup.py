"""Asks brokers for ``max.message.bytes`` of topics (DescribeConfigs), once a broker found a batch too large."""

from __future__ import annotations

import logging
from types import ModuleType
from typing import Any

from spark_kafka_sink.accumulator.topic_limits import TopicLimits
from spark_kafka_sink.clock import NEVER
from spark_kafka_sink.network.calls import Call, CallEnd, Calls, CodeAt

_log = logging.getLogger("spark_kafka_sink.sender")

_VERSIONS = (1, 4)
_TOPIC = 2
_LIMIT = "max.message.bytes"


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
            _log.info("No broker has responded in time with %s of %s", _LIMIT, ", ".join(self._deadlines))
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
        def make(module: ModuleType, version: int) -> Any:
            resource = module.request.DescribeConfigsResource
            wanted = resource(resource_type=_TOPIC, resource_name=topic, configuration_keys=(_LIMIT,))
            return module.DescribeConfigsRequest(resources=(wanted,))

        def codes(body: Any) -> list[CodeAt]:
            return [CodeAt(f"DescribeConfigs of {topic}", each.error_code, each.error_message) for each in body.results]

        def ended(end: CallEnd) -> None:
            if self._deadlines.pop(topic, None) is None:
                return
            self._ended.append(topic)
            value = None if end.error is not None else _limit(end.body)
            if value is None:
                _log.info("%s of topic %s is unknown, smaller batches are tried: %s", _LIMIT, topic, end.error)
            else:
                self._limits.max_message_bytes[topic] = value
                _log.info("%s of topic %s is %d: its batches are kept below", _LIMIT, topic, value)

        return Call("describe_configs", _VERSIONS, None, make, codes, ended)


def _limit(body: Any) -> int | None:
    values = [config.value for each in body.results for config in each.configs if config.name == _LIMIT]
    return int(values[0]) if values and values[0] else None
