"""How well each topic compresses, as far as its batches have shown (Kafka: ``CompressionRatioEstimator``)."""

from __future__ import annotations

_IMPROVING_STEP = 0.005
_DETERIORATING_STEP = 0.05
_SAFETY = 1.05


class CompressionRatios:
    """Guarded by the accumulator's lock.

    An estimate falls slowly towards better ratios and jumps up to worse ones, so that batches seldom outgrow
    batch.size.
    """

    def __init__(self) -> None:
        self._ratios: dict[str, float] = {}

    def estimate(self, topic: str) -> float:
        """Compressed bytes per byte of records, safety margin included; 1.05 for a topic not seen yet."""
        return self._ratios.get(topic, 1.0) * _SAFETY

    def observe(self, topic: str, ratio: float) -> None:
        current = self._ratios.get(topic, 1.0)
        if ratio > current:
            self._ratios[topic] = max(current + _DETERIORATING_STEP, ratio)
        elif ratio < current:
            self._ratios[topic] = max(current - _IMPROVING_STEP, ratio)

    def reset(self, topic: str, ratio: float) -> None:
        """Start again from ``ratio``: a broker found a batch too large."""
        self._ratios[topic] = ratio
