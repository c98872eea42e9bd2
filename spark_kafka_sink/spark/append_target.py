"""How many rows a task appends at once: Spark's Arrow batches are gathered to a target size."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pyarrow as pa

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.producer.task_output import TaskOutput
from spark_kafka_sink.spark.rows import TaskRows

_BYTES_PER_TOPIC = 256 << 10
_MIN_BYTES = 2 << 20
_LARGE_ROW = 16 << 10
"""Size in bytes. Collecting batches of larger rows costs more than appending them."""


class AppendTarget:
    """The target size of an append, ``bytes``: a batch per partition of the task's topics, at least 256 KiB per topic
    and 2 MiB in all, at most half of ``buffer.memory``.

    Spark passes 10,000 rows at a time, which are 10 per partition of a topic with 1,000 partitions. Appended as they
    come, 10 rows would cost a batch, a part of a request and the broker's work for both. The append itself takes 0.4
    ms even for few rows.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self.bytes = 0
        self._full = 0
        self._growth = 1.0
        self._appended = 0
        self._batch_size = config.batch_size
        self._most = config.buffer_memory // 2
        self._topics: set[str] = set()

    def add(self, topics: Collection[str], output: TaskOutput) -> None:
        """Counts the topics that are new to the task. A replay, which writes nothing, looks up no partitions."""
        for topic in topics:
            if topic not in self._topics:
                self._topics.add(topic)
                partitions = output.core().partition_count(topic) if output.writes else 0
                self._full += max(self._batch_size * partitions, _BYTES_PER_TOPIC)
                self.bytes = min(max(self._full, _MIN_BYTES), self._most)

    def of(self, size: int) -> float:
        """The estimated bytes of a batch of ``size`` bytes once it is encoded, by the growth of the batch before it."""
        return size * self._growth

    def appended(self, rows: TaskRows) -> None:
        """Counts rows of the batch, once they are encoded."""
        columns = rows.columns
        self._appended += sum(
            column.nbytes for column in (columns.key, columns.value, columns.headers) if column is not None
        )

    def end_batch(self, batch: pa.RecordBatch) -> None:
        """Notes how much ``batch`` grew, once all its rows are appended: structs may be much larger or smaller than
        their encoded form."""
        if self._appended:
            self._growth, self._appended = self._appended / max(1, batch.nbytes), 0


def gather(batches: Iterator[pa.RecordBatch], target: AppendTarget) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of at least the target size; none is empty. Yielded batches are not held.

    Batches of large rows stay as they are, because to gather them is to copy them.
    """
    held: list[pa.RecordBatch] = []
    size = 0.0
    for batch in batches:
        given = batch.nbytes
        is_large = given >= _LARGE_ROW * max(1, batch.num_rows)
        if is_large:
            yield from _combine(held)
        held.append(batch)
        size += target.of(given)
        del batch
        if is_large or size >= target.bytes:
            yield from _combine(held)
            size = 0.0
    yield from _combine(held)


def _combine(held: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Empties ``held`` into one batch; several if a column of strings or binary exceeds 2 GiB, the limit of an Arrow
    array.
    """
    if len(held) > 1:
        held[:] = pa.Table.from_batches(held).combine_chunks().to_batches()
    held[:] = [batch for batch in reversed(held) if batch.num_rows]
    while held:
        yield held.pop()
