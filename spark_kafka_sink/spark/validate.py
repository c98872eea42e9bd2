"""The stage ``validate``: finds the rows that are records and yet cannot be written, by looking at columns."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import numpy as np

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.producer.core import ProducerCore
from spark_kafka_sink.producer.partitioning.partitioner import NOT_GIVEN
from spark_kafka_sink.records.columns import (
    HEADER_SIZE,
    MAX_RECORD_OVERHEAD,
    FieldLengths,
    Int32Array,
    RecordColumns,
    TopicColumn,
    java_size_estimate,
    slot_lengths,
)
from spark_kafka_sink.spark.dead_letters.options import Reason
from spark_kafka_sink.spark.end import End
from spark_kafka_sink.spark.rows import TOO_LARGE, UNKNOWN, FaultKind, RejectedRows, Rows
from spark_kafka_sink.spark.topic_limits import known_limits

_LOOK_AGAIN_MS: Final = 5_000.0
_FIELD_OVERHEAD: Final = HEADER_SIZE + MAX_RECORD_OVERHEAD + 3 * 5
"""Most bytes of a record's batch besides its key, value and headers."""

_MOST_PARTITIONS: Final = 1 << 31
_RECORD_TOO_LARGE: Final = FaultKind(Reason.RECORD_TOO_LARGE, TOO_LARGE)
_INVALID_PARTITION: Final = FaultKind(Reason.INVALID_PARTITION, UNKNOWN)
_UNKNOWN_TOPIC: Final = FaultKind(Reason.UNKNOWN_TOPIC, UNKNOWN)


class RowValidator:
    """Rejects the rows of one task that its producer could not send. Waits for metadata, and asks for
    ``max.message.bytes``.
    """

    def __init__(self, reasons: Collection[Reason], end: End, clock: Clock) -> None:
        self._reasons = reasons
        self._end = end
        self._clock = clock
        self._looked_at: dict[str, float] = {}
        self._unknown: set[str] = set()

    def __call__(self, rows: Rows) -> Iterator[Rows]:
        if not rows.are_all_rejected:
            core, topics, columns = self._end.core(), rows.kept_topics, rows.columns
            for found in self._found(core, topics, columns, rows.partitions):
                rows = rows.rejecting(found)
        yield rows

    def _found(
        self, core: ProducerCore, topics: TopicColumn, columns: RecordColumns, partitions: Int32Array | None
    ) -> Iterator[RejectedRows]:
        """May name rows that are rejected already, and a row several times."""
        reasons = self._reasons
        if Reason.RECORD_TOO_LARGE in reasons:
            yield from self._too_large(core, topics, columns)
        if partitions is not None and Reason.INVALID_PARTITION in reasons:
            yield from self._beyond_count(core, topics, partitions)
        if Reason.UNKNOWN_TOPIC in reasons:
            yield from self._of_unknown_topics(core, topics, len(columns))

    def _too_large(self, core: ProducerCore, topics: TopicColumn, columns: RecordColumns) -> Iterator[RejectedRows]:
        config = core.config
        of_topics = known_limits(core, [name for name in topics.names if self._exists(core, name)])
        limits = {
            "the kafka.max.request.size configuration": config.max_request_size,
            "the kafka.buffer.memory configuration": config.buffer_memory,
        }
        smallest = min([*limits.values(), *of_topics.values()])
        fields = (columns.key, columns.value, columns.headers)
        longest = sum(int(slot_lengths(each).max(initial=0)) for each in fields if each is not None)
        if longest + _FIELD_OVERHEAD <= smallest:
            return
        sizes = java_size_estimate(FieldLengths.of(columns))
        rows: list[int] = []
        messages: list[str] = []
        for row in np.flatnonzero(sizes > smallest).tolist():
            name = topics.names[0 if topics.codes is None else int(topics.codes[row])]
            size, limit = int(sizes[row]), of_topics.get(name)
            over = next((option for option, most in limits.items() if size > most), None)
            if over is not None:
                most = limits[over]
            elif limit is not None and size > limit and _exceeds(limit, core, columns, row, size):
                over, most = f"max.message.bytes of topic {name}", limit
            else:
                continue
            rows.append(row)
            messages.append(
                f"The message is {size} bytes when serialized which is larger than {most}, the value of {over}."
            )
        if rows:
            yield RejectedRows(_RECORD_TOO_LARGE, np.array(rows, np.intp), messages)

    def _beyond_count(self, core: ProducerCore, topics: TopicColumn, partitions: Int32Array) -> Iterator[RejectedRows]:
        counts = {name: core.partition_count(name) for name in topics.names if self._exists(core, name)}
        if not counts or int(partitions.max(initial=NOT_GIVEN)) < min(counts.values()):
            return
        limits = np.array([counts.get(name, _MOST_PARTITIONS) for name in topics.names])
        beyond = np.flatnonzero(partitions >= (limits[0] if topics.codes is None else limits[topics.codes]))
        for name, rows in topics.groups(beyond):
            count = self._looked_again(core, name)
            bad = rows[partitions[rows] >= count]
            if len(bad):
                after = f" of topic {name} with partition count {count} is not present in metadata."
                messages = [f"Partition {each}{after}" for each in partitions[bad].tolist()]
                yield RejectedRows(_INVALID_PARTITION, bad, messages)

    def _of_unknown_topics(self, core: ProducerCore, topics: TopicColumn, count: int) -> Iterator[RejectedRows]:
        if all(self._exists(core, name) for name in topics.names):
            return
        for name, rows in topics.groups(np.arange(count)):
            if name in self._unknown:
                yield RejectedRows(_UNKNOWN_TOPIC, rows, [f"Topic {name} does not exist."] * len(rows))

    def _exists(self, core: ProducerCore, topic: str) -> bool:
        """Waits for the topic up to max.block.ms, unless unknown-topic is asked for."""
        if core.has_metadata(topic):
            self._unknown.discard(topic)
        elif Reason.UNKNOWN_TOPIC not in self._reasons:
            core.partition_count(topic)
        else:
            self._looked_again(core, topic)
        return topic not in self._unknown

    def _looked_again(self, core: ProducerCore, topic: str) -> int:
        """The partition count after a metadata refresh, at most one in five seconds. 0 for an unknown topic, which is
        looked for twice: brokers may be creating it.
        """
        now = self._clock.now()
        if now < self._looked_at.get(topic, now) + _LOOK_AGAIN_MS and topic in self._looked_at:
            return 0 if topic in self._unknown else core.partition_count(topic)
        count = core.refreshed_partition_count(topic) or core.refreshed_partition_count(topic) or 0
        self._looked_at[topic] = self._clock.now()
        if count:
            self._unknown.discard(topic)
        else:
            self._unknown.add(topic)
        return count


def _exceeds(limit: int, core: ProducerCore, columns: RecordColumns, row: int, size: int) -> bool:
    """Whether a batch with this row alone, compressed as the producer does it, is larger. ``size``: Java's estimate."""
    config = core.config
    if config.compression_type == "none" and size - MAX_RECORD_OVERHEAD > limit:
        return True
    one, time = columns.slice(row, 1), np.zeros(1, np.int64)
    of = TopicPartition("", 0)
    batch = ProducerBatch.of_columns(of, one, time, config.compression_type, config.compression_level)
    return batch.size > limit
