"""Who runs when: all sides in turn, round after round, so that what else the machine does falls on all alike."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.model import Part, Side


def rounds_of(part: Part, rounds: int) -> Iterator[tuple[int, Side]]:
    """Round numbers from 1; every round begins with another side, so that no side always follows the same one."""
    for number in range(1, min(rounds, part.most_rounds or rounds) + 1):
        first = (number - 1) % len(part.sides)
        for side in part.sides[first:] + part.sides[:first]:
            yield number, side


def rows_of(side: Side, rows: int) -> int:
    return max(1, int(rows * side.share))
