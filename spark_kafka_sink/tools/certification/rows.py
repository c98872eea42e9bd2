"""The rows that are written, and how the records that are read back are compared with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


KeyAndValue = tuple[bytes | None, bytes | None]
"""Key and value of a record that was read back."""


def columns(frame: DataFrame, number: str, mark: str) -> DataFrame:
    """The rows to write, made of a frame that numbers them in the column ``number``. The value is a digest of mark and
    number, so a record that another run wrote is recognised.
    """
    text = f"CAST({number} AS STRING)"
    return frame.selectExpr(f"{text} AS key", f"sha2(concat('{mark}:', {text}), 256) AS value")


class RowCheck:
    """Counts how often each of the rows 0 to ``rows`` - 1 was read, and records that match none of these rows."""

    def __init__(self, mark: str, rows: int) -> None:
        self.rows = rows
        self._mark = mark
        self._seen: Counter[int] = Counter()
        self._foreign = 0

    def add(self, records: Iterable[KeyAndValue]) -> None:
        for key, value in records:
            number = self._number(key or b"", value)
            if number is None:
                self._foreign += 1
            else:
                self._seen[number] += 1

    @property
    def records(self) -> int:
        return self._seen.total() + self._foreign

    @property
    def repeated(self) -> int:
        """How many records repeat a row that was read before."""
        return self._seen.total() - len(self._seen)

    def faults(self, *, exactly_once: bool) -> list[str]:
        """What differs from the rows that were written. A repeated row is a fault only with ``exactly_once``."""
        counts = {
            "missing": self.rows - len(self._seen),
            "records that match no row": self._foreign,
            "duplicates": self.repeated if exactly_once else 0,
        }
        return [f"{count:,} {what}" for what, count in counts.items() if count]

    def _number(self, key: bytes, value: bytes | None) -> int | None:
        if not key.isdigit() or not 0 <= (number := int(key)) < self.rows or str(number).encode() != key:
            return None
        return number if value == sha256(f"{self._mark}:{number}".encode()).hexdigest().encode() else None
