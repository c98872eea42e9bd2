"""Receipts: how many rows a task wrote to each partition, as records of a topic (SPARK-24647).

Unlike the ledger, receipts are a history: one JSON object per task and partition, kept as long as the user keeps the
topic.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, Final, NamedTuple

from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.common.task_figures import TaskFigures, int64, text
from spark_kafka_sink.producer.receipt import Delivery
from spark_kafka_sink.records.arrays import bytes_column
from spark_kafka_sink.records.columns import RecordColumns

_MAX_SHOWN: Final = 100
_NO_ROWS: Final = Delivery(count=0, size=0, first_offset=-1, last_offset=-1)


class TaskName(NamedTuple):
    """The task that wrote the rows of a receipt."""

    query: str
    batch: int
    task: int


@dataclass(frozen=True, slots=True)
class WriteReceipt:
    """The rows that a task wrote to a partition: ``count`` rows of ``bytes`` bytes before compression, between two
    offsets (-1: unknown).

    ``query`` and ``batch``: a streaming query's id and micro-batch, txnAppId and txnVersion, or a batch job's name and
    0. ``began_at`` and ``ended_at``: epoch ms, the executor's clock, of the task's first row and last acknowledgement.
    ``figures``: the figures of the whole task, in the first of its receipts; None in the others. ``query_name``: the
    name of the streaming query that wrote the rows, "" if it has none.
    """

    query: str
    batch: int
    task: int
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    count: int
    bytes: int
    began_at: int
    ended_at: int
    figures: TaskFigures | None = None
    query_name: str = ""

    def line(self) -> str:
        """The receipt as one line of JSON."""
        values = {name: getattr(self, name) for name in _FIELDS}
        if self.query_name:
            values["query_name"] = self.query_name
        if self.figures is not None:
            values["figures"] = self.figures.as_json()
        return json.dumps(values, separators=(",", ":"))

    @classmethod
    def parse(cls, line: str) -> WriteReceipt:
        """The receipt in a line. Ignores fields of later releases. Raises ``ValueError`` for anything but a receipt."""
        try:
            read = json.loads(line)
            values = {name: _of(kind, read[name]) for name, kind in _FIELDS.items()}
            figures = read.get("figures")
            return cls(
                **values,
                figures=None if figures is None else TaskFigures.from_json(figures),
                query_name=_of(str, read.get("query_name", "")),
            )
        except KeyError as error:
            raise ValueError(f"{_start(line)} is not a receipt: it has no field {error}") from None
        except (TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(f"{_start(line)} is not a receipt: {error}") from None


_FIELDS: Final[Mapping[str, type]] = {
    field.name: str if field.type == "str" else int for field in fields(WriteReceipt) if field.default is MISSING
}
"""The fields that each receipt has, as they stand in its line."""


def _of(kind: type, value: Any) -> Any:
    """``value``, if it has this type. Raises ``TypeError``, ``ValueError``."""
    if type(value) is not kind:
        raise TypeError(f"{value!r} is not {kind.__name__}")
    checked: str | int = text(value) if kind is str else int64(value)  # type: ignore[arg-type]
    return checked


def _start(line: str) -> str:
    """The beginning of the line, for an error message."""
    return repr(line if len(line) <= _MAX_SHOWN else line[:_MAX_SHOWN] + "…")


def receipts_of(
    name: TaskName,
    deliveries: Mapping[TopicPartition, Delivery],
    began_at: int,
    ended_at: int,
    figures: TaskFigures | None = None,
) -> tuple[WriteReceipt, ...]:
    """The receipts of a task, sorted by topic and partition. A task that wrote only dead letters has one receipt, of no
    rows."""
    if not deliveries and figures is not None and figures.dead_letters:
        deliveries = {TopicPartition("", -1): _NO_ROWS}
    receipts = [
        WriteReceipt(*name, *to, sent.first_offset, sent.last_offset, sent.count, sent.size, began_at, ended_at)
        for to, sent in sorted(deliveries.items())
    ]
    return (*(replace(first, figures=figures) for first in receipts[:1]), *receipts[1:])


def receipt_columns(receipts: Sequence[WriteReceipt]) -> RecordColumns:
    """Receipts as records of a receipts topic. The key is the query, so that one query's receipts are in one partition,
    in order.
    """
    return RecordColumns(
        key=bytes_column([receipt.query.encode() for receipt in receipts]),
        value=bytes_column([receipt.line().encode() for receipt in receipts]),
    )
