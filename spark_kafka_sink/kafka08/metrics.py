"""The metrics of ``SyncProducer``."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from enum import Enum

from spark_kafka_sink.producer.metrics import PRODUCER, SAMPLE_WINDOW_MS, SAMPLES, TOPIC, Sample, current_samples

_ALL_TOPICS = ""


class Count(Enum):
    """The counts, each of which is a total and a rate. A metric's name begins with the value."""

    MESSAGES = "message"
    BYTES = "byte"
    RESENDS = "resend"
    FAILED_SENDS = "failed-send"
    SERIALIZATION_ERRORS = "serialization-error"


class SyncMetrics:
    """The metrics of a ``SyncProducer`` (Kafka 0.8: ``ProducerStats``, ``ProducerTopicStats``).

    Counts and their rates over the last 30 to 60 seconds, for all topics and for each. Any thread may use it.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may read while its thread counts
        self._counts: Counter[tuple[Count, str]] = Counter()
        self._samples: tuple[Sample[Counter[tuple[Count, str]]], ...] = ()

    def add(self, what: Count, by_topic: Mapping[str, int], of_all: int, now: float) -> None:
        """Counts an event. ``of_all``: the count for all topics together, because one event may concern several
        topics."""
        with self._lock:
            if not self._samples or now - self._samples[-1].started >= SAMPLE_WINDOW_MS:
                self._samples = (*self._samples[1 - SAMPLES :], Sample(now, self._counts.copy()))
            self._counts[what, _ALL_TOPICS] += of_all
            for topic, more in by_topic.items():
                self._counts[what, topic] += more

    def read(self, now: float) -> dict[str, dict[str, float]]:
        """``producer-metrics`` and ``producer-topic-metrics.<topic>``, each with ``<count>-total`` and ``-rate``."""
        with self._lock:
            counts, samples = self._counts.copy(), self._samples
        held, seconds = current_samples(samples, now)
        base = held[0].base if held else counts
        return {
            f"{TOPIC}.{topic}" if topic else PRODUCER: {
                f"{count.value}-{kind}": value
                for count in Count
                for kind, value in (
                    ("total", counts[count, topic]),
                    ("rate", (counts[count, topic] - base[count, topic]) / seconds),
                )
            }
            for topic in sorted({_ALL_TOPICS, *(topic for _, topic in counts)})
        }
