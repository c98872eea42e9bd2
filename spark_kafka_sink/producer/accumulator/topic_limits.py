"""``TopicLimits``: the ``max.message.bytes`` of topics, as far as refused batches show them."""

from __future__ import annotations

from typing import Final

NEVER_REFUSED: Final = 2**31 - 1
"""Bytes; the limit of a topic without a refused batch."""


class TopicLimits:
    """Any thread may read ``max_message_bytes``, in bytes of a batch as sent. The sender thread writes it.

    A limit is forgotten after metadata.max.age.ms, because that of the topic may have been raised.
    """

    def __init__(self, max_age_ms: float) -> None:
        self.max_message_bytes: dict[str, int] = {}
        self._max_age_ms = max_age_ms
        self._until: dict[str, float] = {}

    def refused(self, topic: str, size: int, now: float) -> int:
        """A batch of ``size`` bytes was too large. Returns the topic's limit: the known one below it, or half of it."""
        known = self.max_message_bytes.get(topic)
        if known is None or size <= known:
            known = self.max_message_bytes[topic] = size // 2
            self._until[topic] = now + self._max_age_ms
        return known

    def forget_old(self, now: float) -> None:
        """Forgets old limits. If a limit still holds, the next refusal shows it again."""
        for topic in [topic for topic, until in self._until.items() if until <= now]:
            del self._until[topic], self.max_message_bytes[topic]
