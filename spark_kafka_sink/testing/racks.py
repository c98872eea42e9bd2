"""The racks of a cluster's nodes, as ``LocalKafka`` and ``TestBroker`` are given them."""

from __future__ import annotations

from collections.abc import Sequence


def rack_of_each(nodes: int | Sequence[str]) -> tuple[str | None, ...]:
    """The rack (``broker.rack``) of each node. ``nodes``: the racks, or the number of nodes, which then have none."""
    return (None,) * nodes if isinstance(nodes, int) else tuple(nodes)
