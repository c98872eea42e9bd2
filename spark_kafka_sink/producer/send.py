"""``RecordSend``: puts one record of ``send`` on its caller's thread, after its checks and the waits for its topic and
memory. ``KafkaProducer.send`` puts a plain record of a known topic itself; this class has all other cases.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.waiting import SendingThread
from spark_kafka_sink.errors import own_copy
from spark_kafka_sink.network.metadata import Metadata
from spark_kafka_sink.producer.buffer_pool import BufferPool
from spark_kafka_sink.producer.callbacks import Callbacks
from spark_kafka_sink.producer.future_record_metadata import FutureRecordMetadata
from spark_kafka_sink.producer.inbox import NO_OTHERS, RECORD_OVERHEAD, Inbox, KnownTopic, OtherFields, TopicRecords
from spark_kafka_sink.producer.partitioner import CustomPartitioner, RecordFields
from spark_kafka_sink.producer.record import ProducerRecord, as_bytes, check_partition_and_timestamp, encode_headers
from spark_kafka_sink.producer.rows import check_sizes
from spark_kafka_sink.records.batch import NO_HEADERS
from spark_kafka_sink.records.sizes import one_java_size_estimate


@dataclass(eq=False)
class RecordSend:
    """The slow path of ``send``, which any thread may call. ``size_limits``: option → bytes."""

    config: ProducerConfig
    pool: BufferPool
    metadata: Metadata
    inbox: Inbox
    sender_thread: SendingThread
    callbacks: Callbacks
    clock: Clock
    size_limits: dict[str, int]
    partitioner: CustomPartitioner | None
    """The user's ``RecordPartitioner``, which is asked for each record."""

    def __post_init__(self) -> None:
        self._most = min(self.size_limits.values())

    def known_topic(self, name: str, partition: int | None, max_wait_ms: float, transaction: int) -> KnownTopic:
        """The topic with this partition; waits for metadata. Raises as ``Metadata.wait_for_topics``."""
        topic = self.inbox.names.get(name)
        if topic is None or topic.transaction != transaction or (partition or 0) >= topic.partitions:
            snapshot = self.metadata.wait_for_topics({name: partition}, max_wait_ms)
            topic = KnownTopic(name, self.callbacks, snapshot, self.clock, transaction)
            if self.inbox.ended_by is None:
                self.inbox.names[name] = topic
        return topic

    def put(
        self,
        record: ProducerRecord,
        key: bytes | None,
        value: bytes | None,
        transaction: int = 0,
        left_ms: float | None = None,
    ) -> FutureRecordMetadata:
        """Put one record; waits for metadata and memory, together up to ``left_ms`` (None: max.block.ms).

        Raises ``InvalidRecordError`` for a key or value that is not bytes, ``RecordTooLargeError`` and
        ``KafkaTimeoutError``.
        """
        value, key = as_bytes("value", value), as_bytes("key", key)
        check_partition_and_timestamp(record)
        headers = None if record.headers is None else encode_headers(record.headers)
        section = headers or NO_HEADERS
        estimate = one_java_size_estimate(len(section), (key, value))
        if estimate > self._most:
            check_sizes(np.array([estimate]), self.size_limits)
        remaining = self.config.max_block_ms if left_ms is None else left_ms
        deadline = self.clock.now() + remaining
        topic = self.known_topic(record.topic, record.partition, remaining, transaction)
        partition, asks_later = record.partition, False
        if partition is None and self.partitioner is not None:
            asks_later = self.partitioner.asks_again
            if not asks_later:
                fields = RecordFields(record.topic, record.key, key, record.value, value)
                partition = self.partitioner.place(fields, 0, topic.within(self.metadata.snapshot), None)
        others = OtherFields(partition, record.timestamp, headers, (record.key, record.value) if asks_later else None)
        size = RECORD_OVERHEAD + len(value or b"") + len(key or b"") + len(section)
        remaining = max(0.0, deadline - self.clock.now())
        is_full = self.inbox.take_room(self.pool, size, self.config.batch_size, remaining)
        records, future = topic.open, FutureRecordMetadata()
        future._records = records
        future._number = number = records.next_number()
        if topic.epoch_s() >= self.inbox.next_ms_at:
            self.inbox.mark_time(self.clock.epoch_ms())
        if others == NO_OTHERS:
            self.inbox.entries.extend((records, number, key, value))
        else:
            self.inbox.entries.extend((records.full, number, key, (value, others)))
        if is_full or self.inbox.alert:
            self.after_put(records, number)
        return future

    def after_put(self, records: TopicRecords, number: int) -> None:
        """Wakes the sender thread, which sleeps. Raises the reason if the thread has ended without the record."""
        error = self.inbox.ended_by
        if error is None:
            self.inbox.alert = False  # the callers after this one need not wake it again
            self.inbox.alert = self.inbox.ended_by is not None  # if it has ended in between, `alert` stays set
            self.sender_thread.wakeup()
            return
        self.inbox.close_rooms()
        if records.find(number) is None:
            raise own_copy(error)
