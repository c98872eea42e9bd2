"""The rows that are written, and the comparison of the records that are read back with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class KeyAndValue(NamedTuple):
    """A record as it was read."""

    key: bytes | None
    value: bytes | None


def columns(frame: DataFrame, number: str, run: str) -> DataFrame:
    """The rows of a frame whose column ``number`` counts them: a key, and a value that follows from key and run."""
    text = f"CAST({number} AS STRING)"
    return frame.selectExpr(f"{text} AS key", f"sha2(concat('{run}:', {text}), 256) AS value")


class RowCheck:
    """Counts how often each of the rows 0 to ``rows`` - 1 was read, and records that are none of them."""

    def __init__(self, run: str, rows: int) -> None:
        self.rows = rows
        self._run = run
        self._seen: Counter[int] = Counter()
        self._foreign = 0

    def afresh(self) -> RowCheck:
        """A check of the same rows that has seen no record."""
        return RowCheck(self._run, self.rows)

    def add(self, records: Iterable[KeyAndValue]) -> None:
        for record in records:
            number = self._number(record)
            if number is None:
                self._foreign += 1
            else:
                self._seen[number] += 1

    @property
    def records(self) -> int:
        return self._seen.total() + self._foreign

    @property
    def repeated(self) -> int:
        """Records beyond the first of each row."""
        return self._seen.total() - len(self._seen)

    def faults(self, *, exactly_once: bool) -> list[str]:
        """What is wrong. A row may be there twice unless it was written exactly once."""
        counts = {
            "missing": self.rows - len(self._seen),
            "records that match no row": self._foreign,
            "duplicates": self.repeated if exactly_once else 0,
        }
        return [f"{count:,} {what}" for what, count in counts.items() if count]

    def _number(self, record: KeyAndValue) -> int | None:
        key = record.key or b""
        if not key.isdigit() or not 0 <= (number := int(key)) < self.rows or str(number).encode() != key:
            return None
        expected = sha256(f"{self._run}:{number}".encode()).hexdigest().encode()
        return number if record.value == expected else None
