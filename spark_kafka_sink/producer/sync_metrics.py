"""``SyncMetrics``: what a ``SyncProducer`` has sent (Kafka 0.8: ``ProducerStats``, ``ProducerTopicStats``)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from spark_kafka_sink.common.metrics import PRODUCER, SAMPLE_WINDOW_MS, SAMPLES, TOPIC


class Count(Enum):
    """Each is a total and a rate; a metric's name begins with the value."""

    MESSAGES = "message"
    BYTES = "byte"
    RESENDS = "resend"
    FAILED_SENDS = "failed-send"
    SERIALIZATION_ERRORS = "serialization-error"


_ALL_TOPICS = ""


class _Sample(NamedTuple):
    """The counts at ``started`` (monotonic ms)."""

    started: float
    counts: Counter[tuple[Count, str]]


class SyncMetrics:
    """Counts and their rates over the last 30 to 60 seconds, for all topics and for each. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may read while its thread counts
        self._counts: Counter[tuple[Count, str]] = Counter()
        self._samples: tuple[_Sample, ...] = ()

    def add(self, what: Count, topics: Iterable[str], now: float) -> None:
        """One for each of ``topics``, repeated ones included."""
        self.add_many(what, by_topic := Counter(topics), by_topic.total(), now)

    def add_once(self, what: Count, topics: Iterable[str], now: float) -> None:
        """An event that concerns these topics: one for all topics together, and one for each of these."""
        self.add_many(what, Counter(set(topics)), 1, now)

    def add_many(self, what: Count, by_topic: Counter[str], of_all: int, now: float) -> None:
        with self._lock:
            if not self._samples or now - self._samples[-1].started >= SAMPLE_WINDOW_MS:
                self._samples = (*self._samples[1 - SAMPLES :], _Sample(now, self._counts.copy()))
            self._counts[what, _ALL_TOPICS] += of_all
            for topic, more in by_topic.items():
                self._counts[what, topic] += more

    def read(self, now: float) -> dict[str, dict[str, float]]:
        """``producer-metrics`` and ``producer-topic-metrics.<topic>``, each with ``<count>-total`` and ``-rate``."""
        with self._lock:
            counts, samples = self._counts.copy(), self._samples
        held = [sample for sample in samples if now - sample.started < SAMPLES * SAMPLE_WINDOW_MS]
        length = now - held[0].started if held else 0.0
        seconds = (length if length >= SAMPLE_WINDOW_MS else length + SAMPLE_WINDOW_MS) / 1000.0
        base = held[0].counts if held else counts
        topics = sorted({topic for _, topic in counts} - {_ALL_TOPICS})
        return {
            f"{TOPIC}.{topic}" if topic else PRODUCER: {
                f"{count.value}-{kind}": value
                for count in Count
                for kind, value in (
                    ("total", counts[count, topic]),
                    ("rate", (counts[count, topic] - base[count, topic]) / seconds),
                )
            }
            for topic in (_ALL_TOPICS, *topics)
        }
