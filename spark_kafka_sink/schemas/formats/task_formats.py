"""Encodes the columns key and value of a task, without a Python object per row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from spark_kafka_sink.common.model import RegistryId
from spark_kafka_sink.records.arrays import (
    Int32Array,
    RowsTooLargeError,
    bytes_column,
    int32_array,
    null_mask,
    stable_order,
)
from spark_kafka_sink.records.columns import TopicColumn
from spark_kafka_sink.records.encode import header_entries
from spark_kafka_sink.schemas.encoding.columns import add_faults, prefixed
from spark_kafka_sink.schemas.encoding.encoder import LARGEST_SLICE, Encoder, EncodingFault
from spark_kafka_sink.schemas.formats.plan import EarlierSchemas, FormatPlan, SchemaUse, SubjectSchemas
from spark_kafka_sink.schemas.registry.cache import cached_registry
from spark_kafka_sink.schemas.registry.schema import Side


class EncodedColumn(NamedTuple):
    """The encoded values of a column, null where the column is null.

    ``headers``: for each row the value of the header that names its schema, null for a null value. None if no row has
    such a header.
    """

    values: pa.BinaryArray
    headers: pa.BinaryArray | None = None


class RequiredTopics(Protocol):
    """A check that a topic of the brokers exists."""

    def require(self, topic: str) -> None:
        """Raises ``KafkaError`` if the topic does not exist."""


class TaskFormats:
    """Encodes the columns of one task.

    ``earlier``: the schemas of a batch's first run, with which its replay is written. ``topics``: the look-up of each
    topic that planning does not know, because a topic must exist before the registry gets a schema for it, as in Java.
    None: topics are not looked up.
    """

    def __init__(
        self, plan: FormatPlan, earlier: EarlierSchemas | None = None, topics: RequiredTopics | None = None
    ) -> None:
        self.has_headers = plan.has_headers
        self._columns = {
            side: _TaskColumn(plan, side, {} if earlier is None else earlier.uses.get(side, {}), topics)
            for side in plan.columns
        }

    @property
    def ids(self) -> tuple[tuple[Side, str, RegistryId], ...]:
        """Column, subject and id of each schema that rows of this task were written with."""
        return tuple(
            (side, subject, use.schema_id)
            for side, column in self._columns.items()
            for subject, use in column.uses.items()
            if use.schema_id is not None
        )

    @property
    def sides(self) -> Sequence[Side]:
        return tuple(self._columns)

    def encode(
        self, side: Side, array: pa.Array, topics: TopicColumn, faults: list[EncodingFault] | None = None
    ) -> EncodedColumn:
        """The encoded column. Raises ``UnencodableRowsError``, and ``RegistryError`` for topics that the plan lacks;
        ``RowsTooLargeError`` for rows that are too many at once.

        If ``faults`` is given, faulty rows are added to it instead, and their values are null.
        """
        column = self._columns[side]
        uses = [column.use(topic) for topic in topics.names]
        values = _values(array, uses, topics.codes, faults)
        return EncodedColumn(values, _headers(values, uses, topics.codes))


class _TaskColumn:
    """The column key or value. ``uses``: the schema uses by subject."""

    def __init__(
        self, plan: FormatPlan, side: Side, earlier: Mapping[str, SchemaUse], topics: RequiredTopics | None
    ) -> None:
        self._plan = plan
        self._column = plan.columns[side]
        self._options = None if plan.registry is None else plan.registry.side(side)
        self._topics = topics
        self._known = {**self._column.known, **earlier}
        self._subjects: dict[str, str] = {}
        self.uses: dict[str, SchemaUse] = {}

    def use(self, topic: str) -> SchemaUse:
        subject = self._subjects.get(topic)
        if subject is None:
            subject = "" if self._options is None else self._column.subject(topic, self._options)
            if subject not in self._known and self._topics is not None:
                self._topics.require(topic)
            self.uses[subject] = self._known.get(subject) or self._look_up(subject, topic)
            self._subjects[topic] = subject
        return self.uses[subject]

    def _look_up(self, subject: str, topic: str) -> SchemaUse:
        assert self._plan.registry is not None
        registry = cached_registry(self._plan.registry, self._plan.application)
        return SubjectSchemas(self._column, self._plan.registry, registry).current(subject, topic)


def _values(
    array: pa.Array, uses: Sequence[SchemaUse], codes: Int32Array | None, faults: list[EncodingFault] | None
) -> pa.BinaryArray:
    """The encoded values. ``codes``: the index of the use of each row; None if there is only one use."""
    prefixes = [use.prefix for use in uses]
    if len(set(prefixes)) == 1 and _one_encoder(uses):
        return uses[0].encoder.encode(array, prefixes[0], faults, LARGEST_SLICE)
    assert codes is not None
    if _one_encoder(uses):
        values = uses[0].encoder.encode(array, b"", faults, LARGEST_SLICE)
    else:
        values = _by_encoder(array, uses, codes, faults)
    return prefixed(values, prefixes, codes) if any(prefixes) else values


def _one_encoder(uses: Sequence[SchemaUse]) -> bool:
    return all(use.encoder is uses[0].encoder for use in uses)


def _by_encoder(
    array: pa.Array, uses: Sequence[SchemaUse], codes: Int32Array, faults: list[EncodingFault] | None
) -> pa.BinaryArray:
    """Encodes topics whose schemas differ: the rows of each encoder are taken, encoded and put back."""
    encoders: dict[int, Encoder] = {id(use.encoder): use.encoder for use in uses}
    numbers = {key: number for number, key in enumerate(encoders)}
    encoder_of_row = np.array([numbers[id(use.encoder)] for use in uses], np.int32)[codes]
    order = np.argsort(encoder_of_row, kind="stable")
    ends = np.cumsum(np.bincount(encoder_of_row, minlength=len(encoders))).tolist()
    parts: list[pa.BinaryArray] = []
    found: list[EncodingFault] = []
    for encoder, start, end in zip(encoders.values(), (0, *ends), ends, strict=False):
        rows = order[start:end]
        of_part: list[EncodingFault] = []
        values = array.take(int32_array(rows.astype(np.int32)))
        parts.append(encoder.encode(values, b"", of_part, LARGEST_SLICE))
        if len(array) > 1 and sum(part.nbytes for part in parts) > LARGEST_SLICE:
            raise RowsTooLargeError
        found += [fault._replace(row=int(rows[fault.row])) for fault in of_part]
    add_faults(sorted(found), faults)
    back = np.empty(len(order), np.int32)
    back[order] = np.arange(len(order), dtype=np.int32)
    return pa.concat_arrays(parts).take(int32_array(back))


def _headers(values: pa.BinaryArray, uses: Sequence[SchemaUse], codes: Int32Array | None) -> pa.BinaryArray | None:
    headers = [use.header for use in uses]
    if not any(headers):
        return None
    order = np.zeros(len(values), np.int32) if codes is None else codes
    if values.null_count:
        order = np.where(null_mask(values), np.int32(len(headers)), order)
    return bytes_column([*headers, None]).take(int32_array(np.ascontiguousarray(order, np.int32)))


def with_schema_headers(headers: pa.Array | None, added: Mapping[str, pa.BinaryArray], rows: int) -> pa.ListArray:
    """The rows' headers, and behind them the headers of ``added``: name → a value per row, null for a row without that
    header."""
    none = np.zeros(rows, np.int64), bytes_column([]), bytes_column([])
    counts, keys, values = none if headers is None else header_entries(headers)
    row_of_entry = [np.repeat(np.arange(rows, dtype=np.int32), counts)]
    all_keys, all_values, place_of_key = [keys], [values], [np.arange(len(keys), dtype=np.int32)]
    for name, column in added.items():
        present = np.flatnonzero(~null_mask(column)).astype(np.int32)
        row_of_entry.append(present)
        place_of_key.append(np.full(len(present), sum(map(len, all_keys)), np.int32))
        all_keys.append(bytes_column([name.encode()]))
        all_values.append(column.take(int32_array(present)))
    row_of = np.concatenate(row_of_entry)
    order = stable_order(row_of).astype(np.int32)
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(np.bincount(row_of, minlength=rows), out=offsets[1:])
    entries = pa.StructArray.from_arrays(
        [
            pa.concat_arrays(all_keys).take(int32_array(np.concatenate(place_of_key)[order])),
            pa.concat_arrays(all_values).take(int32_array(order)),
        ],
        ["key", "value"],
    )
    return pa.ListArray.from_arrays(int32_array(offsets), entries)
