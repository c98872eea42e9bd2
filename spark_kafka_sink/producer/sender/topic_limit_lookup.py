"""Asks brokers for ``max.message.bytes`` of topics (DescribeConfigs): after a refused batch, or for a caller."""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, Final, Protocol

from spark_kafka_sink.common.clock import NEVER, Clock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.waiting import Waiters
from spark_kafka_sink.errors import KafkaError, KafkaTimeoutError
from spark_kafka_sink.network.calls import Call, CallEnd, CallHandler, Calls, CodeAt, timeout_error
from spark_kafka_sink.producer.accumulator.topic_limits import LimitAnswer, TopicLimits

_log = logging.getLogger("spark_kafka_sink.sender")

MAX_MESSAGE_BYTES: Final = "max.message.bytes"

_VERSIONS: Final = (1, 4)
_TOPIC: Final = 2
_GRACE_MS: Final = 1_000.0
"""A caller waits this much longer than request.timeout.ms for the sender thread, which ends each look-up."""


class Wakeable(Protocol):
    """The sender thread."""

    def wakeup(self) -> None: ...


class TopicLimitLookup:
    """The sender thread asks, and ``TopicLimits`` has the answers. Without one within request.timeout.ms, the limit is
    unknown.

    After a refused batch (``begin``, ``refresh``) it asks at most once in ``metadata.max.age.ms`` for a topic, also
    after an error. A caller (``limits``) is answered by what is known for that long. The sender calls ``advance`` in
    each iteration while it is ``busy``, then ``take_ended``. Callers set ``busy`` after they have added a topic; only
    ``advance`` clears it, before it looks at the topics.
    """

    def __init__(self, config: ProducerConfig, calls: Calls, limits: TopicLimits) -> None:
        self._calls = calls
        self._limits = limits
        self._timeout_ms = config.request_timeout_ms
        self._max_age_ms = config.metadata_max_age_ms
        self._in_progress: dict[str, Call] = {}
        self._asked_at: dict[str, float] = {}
        self._known_since: dict[str, float] = {}
        self._of_batches: set[str] = set()
        self._ended: list[str] = []
        self._lock = threading.Lock()
        self._changed = Waiters()
        self._of_callers: deque[str] = deque()
        self._closed_by: KafkaError | None = None
        self.busy = False

    # Any thread

    def limits(self, topics: Sequence[str], clock: Clock, sender: Wakeable) -> Mapping[str, int | KafkaError]:
        """The limit of each topic, or why it is not known. Asks for those that are not known or too old."""
        answers, now = self._limits.answers, clock.now()
        before = {topic: answers.get(topic) for topic in topics}
        due = [topic for topic, answer in before.items() if answer is None or answer.until <= now]
        if due:
            self._of_callers.extend(due)
            self.busy = True
            sender.wakeup()
            self._changed.wait_for(
                self._lock,
                lambda: self._closed_by is not None or all(answers.get(topic) is not before[topic] for topic in due),
                self._timeout_ms + _GRACE_MS,
            )
        silent = self._closed_by or KafkaTimeoutError(
            f"The sender thread has not responded within {self._timeout_ms:.0f} ms"
        )
        answered = {topic: answer for topic in topics if (answer := answers.get(topic)) is not None}
        for topic in due:
            if answered.get(topic) is before[topic]:
                answered.pop(topic, None)
        return {topic: answered[topic].outcome if topic in answered else silent for topic in topics}

    # The sender thread

    def begin(self, topic: str, now: float) -> bool:
        """A batch was refused. Whether its topic's limit is being looked up, from now on or already."""
        if now >= self._asked_at.get(topic, -math.inf) + self._max_age_ms:
            self._asked_at[topic] = now
            self._start(topic, now)
        if topic not in self._in_progress:
            return False
        self._of_batches.add(topic)
        return True

    def refresh(self, topic: str, now: float) -> None:
        """Batches of a topic with a known limit are about to be sent: look the limit up again once it is old."""
        if now >= self._known_since.setdefault(topic, self._asked_at.get(topic, now)) + self._max_age_ms:
            self._known_since[topic] = now
            self.begin(topic, now)

    def advance(self, now: float) -> float:
        """Send what can be sent; returns when to call it again at the latest (monotonic ms)."""
        self.busy = False
        try:
            while self._of_callers:
                self._start(self._of_callers.popleft(), now)
            return self._advance(now) if self._in_progress else NEVER
        finally:
            if self._in_progress:
                self.busy = True

    def _advance(self, now: float) -> float:
        overdue = [topic for topic, call in self._in_progress.items() if call.began + self._timeout_ms <= now]
        if overdue:
            if waiting := [topic for topic in overdue if topic in self._of_batches]:
                _log.info("No broker has responded in time with %s of %s", MAX_MESSAGE_BYTES, ", ".join(waiting))
            calls = {topic: self._in_progress[topic] for topic in overdue}
            self._calls.stop(calls.values())
            for topic, call in calls.items():
                self._end(topic, timeout_error(call, self._timeout_ms), now)
            return now
        first = min(call.began for call in self._in_progress.values())
        return min(self._calls.advance(now), NEVER, first + self._timeout_ms)

    def take_ended(self) -> list[str]:
        """The topics of refused batches whose look-up has ended since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def close(self, error: KafkaError) -> None:
        """Callers that wait are answered with ``error``."""
        with self._lock:
            self._closed_by = error
            self._changed.notify_all()

    def _start(self, topic: str, now: float) -> None:
        if topic in self._in_progress:
            return

        def ended(end: CallEnd) -> None:
            if self._in_progress.get(topic) is not call:
                return
            if end.error is not None:
                self._end(topic, end.error, call.began)
                return
            limit = described_limit(end.body)
            self._end(topic, KafkaError("the response does not have it") if limit is None else limit, call.began)

        self.busy = True
        call = self._in_progress[topic] = max_message_bytes_call(topic, ended)
        call.began = now
        self._calls.start(call)

    def _end(self, topic: str, outcome: int | KafkaError, now: float) -> None:
        asked_at = self._in_progress.pop(topic).began
        before = self._limits.max_message_bytes.get(topic)
        with self._lock:
            self._limits.answered(topic, LimitAnswer(outcome, asked_at, now + self._max_age_ms))
            if topic in self._of_batches and not isinstance(outcome, int):
                self._limits.forget_guess(topic)
            self._changed.notify_all()
        if topic not in self._of_batches:
            return
        self._of_batches.discard(topic)
        self._ended.append(topic)
        if not isinstance(outcome, int):
            _log.info("%s of topic %s is unknown, smaller batches are tried: %s", MAX_MESSAGE_BYTES, topic, outcome)
        elif outcome != before:
            _log.info("%s of topic %s is %d: its batches are kept below", MAX_MESSAGE_BYTES, topic, outcome)


def max_message_bytes_call(topic: str, ended: CallHandler | None = None) -> Call:
    """Needs the right DESCRIBE_CONFIGS on the topic."""

    def make(module: ModuleType, version: int) -> Any:
        resource = module.request.DescribeConfigsResource
        wanted = resource(resource_type=_TOPIC, resource_name=topic, configuration_keys=(MAX_MESSAGE_BYTES,))
        return module.DescribeConfigsRequest(resources=(wanted,))

    def codes(body: Any) -> list[CodeAt]:
        return [CodeAt(f"DescribeConfigs of {topic}", each.error_code, each.error_message) for each in body.results]

    return Call("describe_configs", _VERSIONS, None, make, codes, ended)


def described_limit(body: Any) -> int | None:
    """The topic's ``max.message.bytes`` in a response; None if the response lacks it."""
    values = [config.value for each in body.results for config in each.configs if config.name == MAX_MESSAGE_BYTES]
    return int(values[0]) if values and values[0] else None
