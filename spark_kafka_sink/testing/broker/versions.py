"""The Kafka releases that the broker imitates. ``apis/table.py`` has their versions of each API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

LATEST: Final = "4.1"


@dataclass(frozen=True, slots=True)
class OfferedVersions:
    """The lowest and highest version of an API that a broker offers, both included."""

    lowest: int
    highest: int

    def __contains__(self, version: int) -> bool:
        return self.lowest <= version <= self.highest


@dataclass(frozen=True, slots=True)
class Release:
    """Versions and features of a broker of one Kafka release.

    ``features``: the finalized features (name to level). ``transaction.version`` 2 means KIP-890's second part.
    ``verifies_partitions``: a transactional Produce must name a partition of the transaction (3.6 and later).
    ``watermark_needs_min_isr``: the high watermark advances only with ``min.insync.replicas`` in sync (3.7 and later).
    ``commit_acks``: the acks with which group coordinators append (-1: all; 1 since 4.0). ``offset_value_version``: the
    version of the values in ``__consumer_offsets``.
    """

    versions: Mapping[str, OfferedVersions]
    features: Mapping[str, int] = field(default_factory=dict)
    verifies_partitions: bool = False
    watermark_needs_min_isr: bool = False
    commit_acks: int = -1
    offset_value_version: int = 3


Narrowed: TypeAlias = Mapping[str, tuple[int, int] | None]
"""API name → lowest and highest version; None for an API that is not offered."""
