"""``TopicLimits``: what brokers have said about ``max.message.bytes``, and what their refusals have taught."""

from __future__ import annotations

from typing import Final, NamedTuple

from spark_kafka_sink.errors import KafkaError

NEVER_REFUSED: Final = 2**31 - 1
"""Bytes; the limit of a topic without a refused batch."""


class LimitAnswer(NamedTuple):
    """A topic's ``max.message.bytes``, or why it is not known. ``until``: when it is too old (monotonic ms)."""

    outcome: int | KafkaError
    asked_at: float
    until: float


class TopicLimits:
    """Any thread reads it. The sender thread writes it, and a caller that has asked (``answered``, ``doubt``).

    ``max_message_bytes``: per topic its config of that name, or what refusals have taught; bytes of a batch as sent.
    """

    def __init__(self) -> None:
        self.max_message_bytes: dict[str, int] = {}
        self.answers: dict[str, LimitAnswer] = {}
        self._guessed: set[str] = set()

    def refused(self, topic: str, size: int) -> int:
        """A batch of ``size`` bytes was too large. Returns the topic's limit: the known one below it, or half of it."""
        known = self.max_message_bytes.get(topic)
        if known is None or size <= known:
            known = self.max_message_bytes[topic] = size // 2
            self._guessed.add(topic)
        return known

    def answered(self, topic: str, answer: LimitAnswer) -> None:
        """A broker has said what the topic's limit is, or no broker has."""
        self.answers[topic] = answer
        if isinstance(answer.outcome, int):
            self.max_message_bytes[topic] = answer.outcome
            self._guessed.discard(topic)

    def forget_guess(self, topic: str) -> None:
        """A limit that only refusals have taught may be too low by now: the next refusal teaches it again."""
        if topic in self._guessed:
            self._guessed.discard(topic)
            self.max_message_bytes.pop(topic, None)

    def doubt(self, topic: str, until: float) -> None:
        """The known answer counts no longer than ``until``."""
        answer = self.answers.get(topic)
        if answer is not None and isinstance(answer.outcome, int):
            self.answers[topic] = answer._replace(until=min(answer.until, until))
