"""``TopicLimits``: the largest batch that brokers accept for each topic, known after the topic's first refusal
or from a look-up before."""

from __future__ import annotations

from typing import Final

NEVER_REFUSED: Final = 2**31 - 1
"""Bytes; the limit of a topic without a refused batch."""


class TopicLimits:
    """Any thread reads it; the sender writes it, and a caller that has looked a limit up.

    ``max_message_bytes``: per topic its config of that name, or what refusals have taught; bytes of a batch as sent.
    """

    def __init__(self) -> None:
        self.max_message_bytes: dict[str, int] = {}
        self._guessed: set[str] = set()

    def refused(self, topic: str, size: int) -> int:
        """A batch of ``size`` bytes was too large. Returns the topic's limit: the known one below it, or half of it."""
        known = self.max_message_bytes.get(topic)
        if known is None or size <= known:
            known = self.max_message_bytes[topic] = size // 2
            self._guessed.add(topic)
        return known

    def described(self, topic: str, limit: int) -> None:
        """The topic's config is ``limit``."""
        self.max_message_bytes[topic] = limit
        self._guessed.discard(topic)

    def forget_guess(self, topic: str) -> None:
        """A limit that only refusals have taught may be too low by now: the next refusal teaches it again."""
        if topic in self._guessed:
            self._guessed.discard(topic)
            self.max_message_bytes.pop(topic, None)
