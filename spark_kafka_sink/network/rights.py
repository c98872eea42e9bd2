"""What a principal may do, from the bits of authorized operations (KIP-430)."""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum

NOT_TOLD = -(1 << 31)
"""Of a broker that was not asked, or cannot be."""


class Operation(IntEnum):
    """Operations of ACLs by their codes, which are the numbers of their bits (Java: ``AclOperation``)."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


def operations(bits: int) -> frozenset[Operation] | None:
    """The operations of these bits; None if the broker sent none."""
    if bits == NOT_TOLD:
        return None
    return frozenset(each for each in Operation if bits >> each & 1)


def names(some: Collection[Operation]) -> str:
    return ", ".join(each.name for each in sorted(some)) or "nothing"
