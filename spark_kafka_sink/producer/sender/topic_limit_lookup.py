"""Asks brokers for ``max.message.bytes`` of topics (DescribeConfigs): after a refused batch, or for a caller."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, Final

from spark_kafka_sink.common.clock import NEVER
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.foreign_text import shown
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.network.api_versions import every
from spark_kafka_sink.network.calls import Call, CallEnd, CallHandler, Calls, CodeAt, timeout_error
from spark_kafka_sink.producer.accumulator.topic_limits import LimitAnswer, TopicLimits
from spark_kafka_sink.producer.sender.caller_calls import CallerCalls

_log = logging.getLogger("spark_kafka_sink.sender")

MAX_MESSAGE_BYTES: Final = "max.message.bytes"

_TOPIC: Final = 2
_POSITIVE: Final = re.compile(r"[1-9][0-9]{0,9}")  # Kafka: an int of Java


class TopicLimitLookup:
    """Asks brokers, and ``TopicLimits`` has the answers. Without one within request.timeout.ms, the limit is unknown.

    After a refused batch the sender thread asks (``begin``, ``refresh``), at most once in ``metadata.max.age.ms`` for a
    topic, also after an error. It calls ``advance`` in each iteration while the look-up is ``busy``, then
    ``take_ended``. A caller (``limits``) is answered by what is known for that long.
    """

    def __init__(self, config: ProducerConfig, calls: Calls, callers: CallerCalls, limits: TopicLimits) -> None:
        self._calls = calls
        self._callers = callers
        self._limits = limits
        self._timeout_ms = config.request_timeout_ms
        self._max_age_ms = config.metadata_max_age_ms
        self._deadlines: dict[str, float] = {}
        self._asked_at: dict[str, float] = {}
        self._known_since: dict[str, float] = {}
        self._ended: list[str] = []
        self.busy = False

    # Callers

    def limits(self, topics: Sequence[str]) -> Mapping[str, int | KafkaError]:
        """The limit of each topic, or why it is not known. Asks for those that are not known or too old."""
        answers, now = self._limits.answers, self._callers.now()
        due = [topic for topic in topics if topic not in answers or answers[topic].until <= now]
        if due:
            calls = {topic: max_message_bytes_call(topic) for topic in due}
            self._callers.run(calls.values(), now + self._timeout_ms)
            for topic, call in calls.items():
                silent = self._callers.closed_by or timeout_error(call, self._timeout_ms)
                outcome = silent if call.end is None else described_limit(call.end)
                self._limits.answered(topic, LimitAnswer(outcome, now, now + self._max_age_ms))
        return {topic: answers[topic].outcome for topic in topics}

    # The sender thread

    def begin(self, topic: str, now: float) -> bool:
        """A batch was refused. Whether its topic's limit is being looked up, from now on or already."""
        if now >= self._asked_at.get(topic, -math.inf) + self._max_age_ms:
            self._asked_at[topic] = now
            self._deadlines[topic] = now + self._timeout_ms
            self._calls.start(self._call(topic, now))
            self.busy = True
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
        """The topics whose look-up has ended since the last call."""
        ended, self._ended = self._ended, []
        self.busy = bool(self._deadlines)
        return ended

    def _call(self, topic: str, now: float) -> Call:
        def ended(end: CallEnd) -> None:
            if self._deadlines.pop(topic, None) is None:
                return
            self._ended.append(topic)
            before, outcome = self._limits.max_message_bytes.get(topic), described_limit(end)
            self._limits.answered(topic, LimitAnswer(outcome, now, now + self._max_age_ms))
            if not isinstance(outcome, int):
                self._limits.forget_guess(topic)
                _log.info("%s of topic %s is unknown, smaller batches are tried: %s", MAX_MESSAGE_BYTES, topic, outcome)
            elif outcome != before:
                _log.info("%s of topic %s is %d: its batches are kept below", MAX_MESSAGE_BYTES, topic, outcome)

        return max_message_bytes_call(topic, ended)


def max_message_bytes_call(topic: str, ended: CallHandler | None = None) -> Call:
    """Needs the right DESCRIBE_CONFIGS on the topic."""

    def make(module: ModuleType, version: int) -> Any:
        resource = module.request.DescribeConfigsResource
        wanted = resource(resource_type=_TOPIC, resource_name=topic, configuration_keys=(MAX_MESSAGE_BYTES,))
        return module.DescribeConfigsRequest(resources=(wanted,))

    def codes(body: Any) -> list[CodeAt]:
        return [CodeAt(f"DescribeConfigs of {topic}", each.error_code, each.error_message) for each in body.results]

    asked = {f"DescribeConfigs of {topic}"}
    return Call("describe_configs", every("describe_configs"), None, make, codes, ended, asked)


def described_limit(end: CallEnd) -> int | KafkaError:
    """The topic's ``max.message.bytes``, or why it is not known."""
    if end.error is not None:
        return end.error
    values = [config.value for each in end.body.results for config in each.configs if config.name == MAX_MESSAGE_BYTES]
    if not values or not values[0]:
        return KafkaError("the response does not have it")
    if not _POSITIVE.fullmatch(values[0]):
        return KafkaError(f"the response has {shown(values[0])}, which is not a positive number")
    return int(values[0])
