"""The expected compression ratio of each topic (Java: ``CompressionRatioEstimator``)."""

from __future__ import annotations

_IMPROVING_STEP = 0.005
_DETERIORATING_STEP = 0.05
_SAFETY = 1.05


class CompressionRatioEstimator:
    """Guarded by the accumulator's lock. An estimate falls slowly and rises at once: few batches outgrow batch.size."""

    def __init__(self) -> None:
        self._ratios: dict[str, float] = {}

    def estimate(self, topic: str) -> float:
        """Compressed bytes per byte of records, with a safety factor; 1.05 for a new topic."""
        return self._ratios.get(topic, 1.0) * _SAFETY

    def update(self, topic: str, ratio: float) -> None:
        current = self._ratios.get(topic, 1.0)
        if ratio > current:
            self._ratios[topic] = max(current + _DETERIORATING_STEP, ratio)
        elif ratio < current:
            self._ratios[topic] = max(current - _IMPROVING_STEP, ratio)
