"""``RecordPartitioning``: the partition of a record of ``send`` by a ``RecordPartitioner`` (Java: ``doSend``)."""

from __future__ import annotations

from dataclasses import replace

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import ClusterSnapshot
from spark_kafka_sink.producer.accumulator.accumulator import RecordAccumulator
from spark_kafka_sink.producer.append.pending import PendingTopics, not_bytes
from spark_kafka_sink.producer.append.record import ProducerRecord, encode_headers
from spark_kafka_sink.producer.partitioning.custom import CustomPartitioner, RecordFields
from spark_kafka_sink.records.sizes import one_record_size_bound


class RecordPartitioning:
    """Asks on the caller's thread, before the record is pending: an error fails this record only.

    Any thread may call it. With threads that share a topic, a batch may be full before the partitioner learns of it.
    """

    def __init__(
        self,
        partitioner: CustomPartitioner,
        config: ProducerConfig,
        accumulator: RecordAccumulator,
        pending: PendingTopics,
    ) -> None:
        self._partitioner = partitioner
        self._config = config
        self._accumulator = accumulator
        self._pending = pending

    def partition(
        self, record: ProducerRecord, key: bytes | None, value: bytes | None, cluster: ClusterSnapshot
    ) -> ProducerRecord:
        """The record with its partition; as it is if it names one."""
        for name, given in (("key", key), ("value", value)):
            if given is not None and given.__class__ is not bytes:
                raise not_bytes(name, given)
        rooms, size = None, 0
        if self._partitioner.asks_again:
            rooms = self._pending.topic(record.topic).batch_rooms()
            header_bytes = len(encode_headers(record.headers)) if record.headers else 1
            limit = self._accumulator.batch_limit(record.topic)
            size = one_record_size_bound(header_bytes, (key, value), limit, self._config.linger_ms)
        if record.partition is not None:
            if rooms is not None:
                rooms.take(record.partition, size)
            return record
        fields = RecordFields(record.topic, record.key, key, record.value, value)
        partition = self._partitioner.place(fields, size, cluster, rooms)
        return replace(record, partition=partition)

    def appended(self, topic: str) -> None:
        """The record whose partition was chosen last is pending."""
        if self._partitioner.asks_again:
            self._pending.topic(topic).keep_batch_rooms()
