"""What every encoder of a column does, whatever the format, and the errors of encoding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

from spark_kafka_sink.errors import LONGEST_ERROR, InvalidRecordError, error_list, shown


class Encoder(Protocol):
    """A plan from an Arrow type to a schema, made once on the driver. Picklable, and safe to use in any thread."""

    def encode(self, array: pa.Array, prefix: bytes = b"", faults: list[Fault] | None = None) -> pa.BinaryArray:
        """``prefix`` and the encoded value of each row, null where the row is null. At most 2 GiB.

        Raises ``UnencodableRowsError`` with all faulty rows. If ``faults`` is given, they are added to it instead, and
        their values are null.
        """


def column_of(rows: object) -> pa.Array | pa.ChunkedArray:
    """An Arrow array, or the rows of a table or record batch as structs. Raises ``InvalidRecordError`` for all else."""
    if isinstance(rows, pa.Table | pa.RecordBatch):
        return rows.to_struct_array()
    if not isinstance(rows, pa.Array | pa.ChunkedArray):
        raise InvalidRecordError(f"give an Arrow array, a table or a record batch, not {type(rows).__name__}")
    return rows


class Fault(NamedTuple):
    """A row that its schema does not allow. ``path``: such as ``address.lines[]``. ``problem``: has the row's value."""

    row: int
    path: str
    problem: str


class UnencodableRowsError(InvalidRecordError):
    """Rows that cannot be encoded. ``faults``: one for each such row, in their order. ``row``: the first of them."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        first = self.faults[0]
        super().__init__(shown(f"{first.path}: {first.problem}" if first.path else first.problem), first.row)

    def __reduce__(self) -> tuple[type[UnencodableRowsError], tuple[tuple[Fault, ...]]]:
        return type(self), (self.faults,)


class SchemaMismatchError(InvalidRecordError):
    """A column's type does not fit its schema. ``mismatches``: a sentence for each path, with both types."""

    def __init__(self, mismatches: Sequence[str]) -> None:
        self.mismatches = tuple(shown(each, LONGEST_ERROR) for each in mismatches)
        super().__init__(error_list(mismatches))

    def __reduce__(self) -> tuple[type[SchemaMismatchError], tuple[tuple[str, ...]]]:
        return type(self), (self.mismatches,)


class InvalidSchemaError(SchemaMismatchError):
    """A text is not a schema. The message has the text, shortened."""
