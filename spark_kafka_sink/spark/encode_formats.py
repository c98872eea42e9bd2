"""The stage ``encode`` for ``keyFormat`` and ``valueFormat``: structs become Avro, Protobuf or JSON of their schema."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.records.columns import RecordColumns, binary_column
from spark_kafka_sink.records.encode import header_column
from spark_kafka_sink.schemas.encoding.encoder import Fault, UnencodableRowsError
from spark_kafka_sink.schemas.formats.task_formats import EncodedColumn, TaskFormats, with_schema_headers
from spark_kafka_sink.schemas.registry.schema import Side
from spark_kafka_sink.spark.dead_letter_options import NO_TOPIC, Reason
from spark_kafka_sink.spark.json_text import json_column
from spark_kafka_sink.spark.read import RawEncoder, headers_with_keys
from spark_kafka_sink.spark.rows import SERIALIZATION, FaultKind, RejectedRows, Rows, in_task

_HEADERS: Final = {Side.KEY: "__key_schema_id", Side.VALUE: "__value_schema_id"}


class FormatEncoder:
    """Rows of one task. Rejects, or raises for, a row that cannot be encoded. Its dead letter has key and value as
    JSON, and so has that of a row without a topic, which has no schema.
    """

    def __init__(self, formats: TaskFormats, rejects: Collection[Reason] = frozenset()) -> None:
        self._formats = formats
        self._rejects = rejects
        self._raw = RawEncoder(rejects)

    def __call__(self, rows: Rows) -> Iterator[Rows]:
        yield self._raw.as_bytes(self._encoded(rows))

    def _encoded(self, rows: Rows) -> Rows:
        given = rows.columns
        fields = {Side.KEY: given.key, Side.VALUE: given.value}
        not_encoded = {place for each in rows.rejected if each.kind.reason in NO_TOPIC for place in each.rows.tolist()}
        rows = replace(rows, rejected=tuple(self._as_json(each, given) for each in rows.rejected))
        added: dict[str, pa.BinaryArray] = {}
        for side, column in fields.items():
            if side not in self._formats.sides:
                fields[side] = None if column is None else binary_column(column)
                continue
            if column is None:
                continue
            if len(not_encoded) == len(rows):
                fields[side] = pa.nulls(len(rows), pa.binary())
                continue
            encoded, faults = self._column(side, column, rows)
            fields[side] = encoded.values
            if encoded.headers is not None:
                added[_HEADERS[side]] = encoded.headers
            faults = [fault for fault in faults if fault.row not in not_encoded]
            if faults:
                not_encoded |= {fault.row for fault in faults}
                rows = rows.rejecting_first(self._as_json(_rejected(side, faults), given))
        headers = given.headers
        if added or (self._formats.has_headers and len(not_encoded) == len(rows)):
            headers = with_schema_headers(headers, added, len(rows))
        return replace(rows, columns=RecordColumns(fields[Side.KEY], fields[Side.VALUE], headers, given.timestamps))

    def _column(self, side: Side, column: pa.Array, rows: Rows) -> tuple[EncodedColumn, list[Fault]]:
        faults: list[Fault] = []
        try:
            wanted = faults if Reason.ENCODE in self._rejects else None
            return self._formats.encode(side, column, rows.topics, wanted), faults
        except UnencodableRowsError as error:
            kept = rows.kept
            fault = next((each for each in error.faults if kept is None or kept[each.row]), error.faults[0])
            raise in_task(InvalidRecordError(_text(side.value, fault)), rows.first_row + fault.row) from None

    def _as_json(self, rejected: RejectedRows, given: RecordColumns) -> RejectedRows:
        """With columns of its own, if these rows are not encoded. Headers without a key are left out."""
        if rejected.kind.reason not in NO_TOPIC | {Reason.ENCODE}:
            return rejected
        columns = given.take(rejected.rows)
        fields = {Side.KEY: columns.key, Side.VALUE: columns.value}
        key, value = (
            None if column is None else json_column(column) if side in self._formats.sides else binary_column(column)
            for side, column in fields.items()
        )
        headers = None if columns.headers is None else header_column(headers_with_keys(columns.headers)[0])
        return rejected._replace(columns=RecordColumns(key, value, headers, columns.timestamps))


def _rejected(side: Side, faults: list[Fault]) -> RejectedRows:
    kind = FaultKind(Reason.ENCODE, SERIALIZATION, f"{side.name}_CONVERTER")
    places: npt.NDArray[np.intp] = np.array([fault.row for fault in faults], np.intp)
    field = side.value
    return RejectedRows(kind, places, [_text(field, fault) for fault in faults])


def _text(field: str, fault: Fault) -> str:
    _, path, problem = fault
    return f"{field}.{path}: {problem}" if path else f"{field}: {problem}"
