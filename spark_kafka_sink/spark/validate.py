"""The stage ``validate``: finds rows that are valid records and yet cannot be written, by looking at columns. Tasks
with dead letters ask brokers for ``max.message.bytes`` of the topics before they send a row.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.errors import BrokerError, KafkaError, listed, sanitize
from spark_kafka_sink.network.topics import MAX_MESSAGE_BYTES, TOPIC, describe_configs
from spark_kafka_sink.producer.core import ProducerCore
from spark_kafka_sink.producer.partitioner import NO_PARTITION
from spark_kafka_sink.producer.producer_batch import ProducerBatch
from spark_kafka_sink.producer.task_output import TaskOutput
from spark_kafka_sink.records.arrays import Int32Array, slot_lengths
from spark_kafka_sink.records.batch import HEADER_SIZE
from spark_kafka_sink.records.columns import RecordColumns, TopicColumn
from spark_kafka_sink.records.sizes import MAX_RECORD_OVERHEAD, FieldLengths, java_size_estimate
from spark_kafka_sink.spark.options import Reason
from spark_kafka_sink.spark.rows import TOO_LARGE, UNKNOWN, FaultKind, RejectedRows, TaskRows

_REFRESH_MS: Final = 5_000.0
_FIELD_OVERHEAD: Final = HEADER_SIZE + MAX_RECORD_OVERHEAD + 3 * 5
"""The most bytes of a record's batch besides its key, value and headers."""

_MAX_PARTITIONS: Final = 1 << 31
_RECORD_TOO_LARGE: Final = FaultKind(Reason.RECORD_TOO_LARGE, TOO_LARGE)
_INVALID_PARTITION: Final = FaultKind(Reason.INVALID_PARTITION, UNKNOWN)
_UNKNOWN_TOPIC: Final = FaultKind(Reason.UNKNOWN_TOPIC, UNKNOWN)


_REFUSED: Final = Reason.REFUSED_BY_BROKER
REFUSALS: Final = {
    ErrorCode.message_too_large: _RECORD_TOO_LARGE,
    ErrorCode.invalid_timestamp: FaultKind(_REFUSED, "org.apache.kafka.common.errors.InvalidTimestampException"),
    ErrorCode.invalid_record: FaultKind(_REFUSED, "org.apache.kafka.common.InvalidRecordException"),
}
"""The errors of a broker that concern one record, which may become a dead letter."""


def kept_codes(reasons: Collection[Reason]) -> frozenset[int]:
    return frozenset(code for code, kind in REFUSALS.items() if kind.reason in reasons)


class RowValidator:
    """Rejects the rows of one task that its producer could not send. Waits for metadata, and asks for
    ``max.message.bytes``.
    """

    def __init__(self, reasons: Collection[Reason], output: TaskOutput, clock: Clock) -> None:
        self._reasons = reasons
        self._output = output
        self._clock = clock
        self._refreshed_at: dict[str, float] = {}
        self._unknown: set[str] = set()

    def __call__(self, rows: TaskRows) -> Iterator[TaskRows]:
        if not rows.are_all_rejected:
            core, topics, columns = self._output.core(), rows.kept_topics, rows.columns
            for found in self._find_faults(core, topics, columns, rows.partitions):
                rows = rows.rejecting(found)
        yield rows

    def _find_faults(
        self, core: ProducerCore, topics: TopicColumn, columns: RecordColumns, partitions: Int32Array | None
    ) -> Iterator[RejectedRows]:
        """The faults of the rows, which may include rows that are already rejected, and a row several times."""
        reasons = self._reasons
        if Reason.RECORD_TOO_LARGE in reasons:
            yield from self._find_large(core, topics, columns)
        if partitions is not None and Reason.INVALID_PARTITION in reasons:
            yield from self._find_beyond(core, topics, partitions)
        if Reason.UNKNOWN_TOPIC in reasons:
            yield from self._find_unknown_topics(core, topics, len(columns))

    def _find_large(self, core: ProducerCore, topics: TopicColumn, columns: RecordColumns) -> Iterator[RejectedRows]:
        config = core.config
        topic_limits = look_up_limits(self._output, [name for name in topics.names if self._find_topic(core, name)])
        limits = {
            "the kafka.max.request.size configuration": config.max_request_size,
            "the kafka.buffer.memory configuration": config.buffer_memory,
        }
        smallest = min([*limits.values(), *topic_limits.values()])
        fields = (columns.key, columns.value, columns.headers)
        longest = sum(int(slot_lengths(field).max(initial=0)) for field in fields if field is not None)
        if longest + _FIELD_OVERHEAD <= smallest:
            return
        sizes = java_size_estimate(FieldLengths.of(columns))
        rows: list[int] = []
        messages: list[str] = []
        for row in np.flatnonzero(sizes > smallest).tolist():
            name = topics.names[0 if topics.codes is None else int(topics.codes[row])]
            size, limit = int(sizes[row]), topic_limits.get(name)
            over = next((option for option, most in limits.items() if size > most), None)
            if over is not None:
                most = limits[over]
            elif limit is not None and size > limit and exceeds(limit, core, columns, row, size):
                over, most = f"max.message.bytes of topic {name}", limit
            else:
                continue
            rows.append(row)
            messages.append(
                f"The message is {size} bytes when serialized which is larger than {most}, the value of {over}."
            )
        if rows:
            yield RejectedRows(_RECORD_TOO_LARGE, np.array(rows, np.intp), messages)

    def _find_beyond(self, core: ProducerCore, topics: TopicColumn, partitions: Int32Array) -> Iterator[RejectedRows]:
        counts = {name: core.partition_count(name) for name in topics.names if self._find_topic(core, name)}
        if not counts or int(partitions.max(initial=NO_PARTITION)) < min(counts.values()):
            return
        limits = np.array([counts.get(name, _MAX_PARTITIONS) for name in topics.names])
        beyond = np.flatnonzero(partitions >= (limits[0] if topics.codes is None else limits[topics.codes]))
        for name, rows in topics.groups(beyond):
            count = self._refresh_count(core, name)
            bad = rows[partitions[rows] >= count]
            if len(bad):
                after = f" of topic {name} with partition count {count} is not present in metadata."
                messages = [f"Partition {partition}{after}" for partition in partitions[bad].tolist()]
                yield RejectedRows(_INVALID_PARTITION, bad, messages)

    def _find_unknown_topics(self, core: ProducerCore, topics: TopicColumn, count: int) -> Iterator[RejectedRows]:
        if all(self._find_topic(core, name) for name in topics.names):
            return
        for name, rows in topics.groups(np.arange(count)):
            if name in self._unknown:
                yield RejectedRows(_UNKNOWN_TOPIC, rows, [f"Topic {name} does not exist."] * len(rows))

    def _find_topic(self, core: ProducerCore, topic: str) -> bool:
        """Whether the topic exists. Waits for it up to max.block.ms, unless rows are rejected as unknown-topic."""
        if core.has_metadata(topic):
            self._unknown.discard(topic)
        elif Reason.UNKNOWN_TOPIC not in self._reasons:
            core.partition_count(topic)
        else:
            self._refresh_count(core, topic)
        return topic not in self._unknown

    def _refresh_count(self, core: ProducerCore, topic: str) -> int:
        """The partition count after a metadata refresh, at most one in five seconds. 0 for an unknown topic, which is
        looked for twice: brokers may be creating it.
        """
        now = self._clock.now()
        if now < self._refreshed_at.get(topic, -math.inf) + _REFRESH_MS:
            return 0 if topic in self._unknown else core.partition_count(topic)
        count = core.refreshed_partition_count(topic) or core.refreshed_partition_count(topic) or 0
        self._refreshed_at[topic] = self._clock.now()
        if count:
            self._unknown.discard(topic)
        else:
            self._unknown.add(topic)
        return count


def exceeds(limit: int, core: ProducerCore, columns: RecordColumns, row: int, size: int) -> bool:
    """Whether a batch with this row alone, compressed as the producer does it, is larger than ``limit``. ``size``:
    Java's estimate."""
    config = core.config
    if config.compression_type == "none" and size - MAX_RECORD_OVERHEAD > limit:
        return True
    one, time = columns.slice(row, 1), np.zeros(1, np.int64)
    of = TopicPartition("", 0)
    batch = ProducerBatch.of_columns(of, one, time, config.compression_type, config.compression_level)
    return batch.size > limit


_log = logging.getLogger("spark_kafka_sink.spark")

_POSITIVE: Final = re.compile(r"[1-9][0-9]{0,9}")  # Kafka: an int of Java

_of_task: WeakKeyDictionary[TaskOutput, dict[str, int | KafkaError]] = WeakKeyDictionary()
"""Each task's topics, with their limit or why it is unknown. A task asks once for each topic; the next attempt asks
again."""


def look_up_limits(output: TaskOutput, topics: Sequence[str]) -> Mapping[str, int]:
    """The ``max.message.bytes`` of the topics, without topics whose limit is not known. Waits for at most
    request.timeout.ms.

    One request asks for all topics. It needs the right DESCRIBE_CONFIGS on each of them. Topics whose limit stays
    unknown are a warning, once per process.
    """
    answers, core = _of_task.setdefault(output, {}), output.core()
    if new := [topic for topic in topics if topic not in answers]:
        try:
            deadline = core.calls.now() + core.config.request_timeout_ms
            found = describe_configs(core.calls, TOPIC, new, (MAX_MESSAGE_BYTES,), deadline)
            answers.update((topic, limit_of(configs)) for topic, configs in found.items())
        except KafkaError as error:
            answers.update(dict.fromkeys(new, error))
        if unknown := {topic: fault for topic in new if isinstance(fault := answers[topic], KafkaError)}:
            _warn_once(core.config, listed([*unknown]), str(next(iter(unknown.values()))))
    return {topic: limit for topic in topics if isinstance(limit := answers[topic], int)}


@lru_cache(256)
def _warn_once(_config: ProducerConfig, names: str, cause: str) -> None:
    _log.warning(
        "%s of topic %s is unknown (%s), so a row above that limit is found only when a broker refuses it, and in a "
        "transaction such a row fails its task.", MAX_MESSAGE_BYTES, names, cause,
    )  # fmt: skip


def limit_of(configs: Mapping[str, str] | BrokerError) -> int | KafkaError:
    """The topic's ``max.message.bytes``, or why it is not known."""
    if isinstance(configs, BrokerError):
        return configs
    value = configs.get(MAX_MESSAGE_BYTES, "")
    if not _POSITIVE.fullmatch(value):
        return KafkaError(f"the response has {sanitize(value) or 'no value'}, which is not a positive number")
    return int(value)
