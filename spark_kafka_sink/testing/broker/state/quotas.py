"""Producer quotas by client id (Kafka: ``ClientQuotaManager``, ``Rate``, ``SampledStat``).

Emulated: ``producer_byte_rate`` in bytes per second and node, measured over 11 samples of one second
(``quota.window.num``, ``quota.window.size.seconds``); a client may write ten seconds' worth in one burst.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
_SAMPLES: Final = 11
_SAMPLE_MS: Final = 1000


class SampledRate:
    """A rate in bytes per second over the last samples."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque()

    def record(self, size: int, now_ms: int) -> None:
        if not self._samples or now_ms - self._samples[-1][0] >= _SAMPLE_MS:
            self._samples.append((now_ms, size))
        else:
            start, before = self._samples[-1]
            self._samples[-1] = (start, before + size)
        while now_ms - self._samples[0][0] >= _SAMPLES * _SAMPLE_MS:
            self._samples.popleft()

    def over(self, bytes_per_second: float, now_ms: int) -> int:
        """Milliseconds after which the rate is down to ``bytes_per_second``, 0 when it is not above."""
        window_ms = self._window_ms(now_ms)
        rate = sum(size for _, size in self._samples) / (window_ms / 1000)
        return max(0, round((rate - bytes_per_second) / bytes_per_second * window_ms))

    def _window_ms(self, now_ms: int) -> int:
        """The time since the oldest sample, at least the time of ten full samples."""
        elapsed = now_ms - self._samples[0][0]
        missing = max(0, _SAMPLES - 1 - elapsed // _SAMPLE_MS)
        return elapsed + missing * _SAMPLE_MS


class ClientQuotas:
    """Quotas by client id, and the rate of each client at each node."""

    def __init__(self) -> None:
        self._byte_rates: dict[str, float] = {}
        self._rates: dict[tuple[int, str], SampledRate] = {}

    def set(self, client_id: str, quotas: Mapping[str, float]) -> None:
        """Replace the quotas of a client id; an empty mapping removes them. ``ValueError`` for what is not emulated."""
        unknown = sorted(set(quotas) - {PRODUCER_BYTE_RATE})
        if unknown:
            raise ValueError(f"{', '.join(unknown)}: TestBroker has no such quota, only {PRODUCER_BYTE_RATE}")
        if any(rate <= 0 for rate in quotas.values()):
            raise ValueError(f"{PRODUCER_BYTE_RATE} must be above 0")
        if PRODUCER_BYTE_RATE in quotas:
            self._byte_rates[client_id] = quotas[PRODUCER_BYTE_RATE]
        else:
            self._byte_rates.pop(client_id, None)

    def produced(self, node: int, client_id: str | None, size: int, now_ms: int) -> int:
        """Count a Produce request of ``size`` bytes; the milliseconds to throttle its client for."""
        client = client_id or ""
        quota = self._byte_rates.get(client)
        if quota is None:
            return 0
        rate = self._rates.setdefault((node, client), SampledRate())
        rate.record(size, now_ms)
        return rate.over(quota, now_ms)
