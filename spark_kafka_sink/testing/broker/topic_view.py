"""The contents of a topic, for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from spark_kafka_sink.exactly_once.decode import BatchView, DecodedBatch, decode_batches
from spark_kafka_sink.testing.broker.state.cluster import Topic
from spark_kafka_sink.testing.broker.state.log import AbortedTransaction
from spark_kafka_sink.testing.broker.state.partition import Partition


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record as a consumer gets it. ``timestamp``: epoch ms. ``headers``: in their order, keys as bytes."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class _Contents:
    """The contents of a partition, copied on the broker's thread, so that decoding costs the caller's time."""

    index: int
    start_offset: int
    data: memoryview
    aborted: tuple[AbortedTransaction, ...]

    @classmethod
    def of(cls, partition: Partition, *, read_committed: bool) -> _Contents:
        end = partition.last_stable_offset() if read_committed else partition.high_watermark
        batches = partition.log.batches_from(partition.log.start_offset, end)
        aborted = tuple(partition.log.aborted) if read_committed else ()
        data = memoryview(b"".join(batch.data for batch in batches))
        return cls(partition.name.partition, partition.log.start_offset, data, aborted)

    def records(self) -> Iterator[StoredRecord]:
        for batch in decode_batches(self.data):
            if batch.header.is_control or self._is_aborted(batch.header):
                continue
            for record in batch.records:
                if record.offset >= self.start_offset:
                    yield StoredRecord(
                        self.index, record.offset, record.timestamp, record.key, record.value, record.headers
                    )

    def _is_aborted(self, header: BatchView) -> bool:
        return header.is_transactional and any(
            header.producer_id == each.producer_id and each.first_offset <= header.base_offset <= each.last_offset
            for each in self.aborted
        )


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic of a TestBroker. Every call reads the present log. Raises ``ValueError`` for an unknown topic."""

    name: str
    _read: Callable[[Callable[[Topic | None], list[_Contents]]], list[_Contents]]

    def records(self, partition: int | None = None, *, read_committed: bool = True) -> list[StoredRecord]:
        """The records that a consumer would read, by partition and offset. ``partition``: None for all.

        ``read_committed``: False adds records of open and aborted transactions.
        """
        contents = self._contents(partition, read_committed=read_committed)
        return [record for content in contents for record in content.records()]

    def values(self, partition: int | None = None) -> list[bytes | None]:
        """The values of ``records()``."""
        return [record.value for record in self.records(partition)]

    def batches(self, partition: int) -> list[DecodedBatch]:
        """Every batch below the high watermark as it is stored, including markers and aborted batches."""
        (contents,) = self._contents(partition, read_committed=False)
        return decode_batches(contents.data)

    def _contents(self, partition: int | None, *, read_committed: bool) -> list[_Contents]:
        def read(topic: Topic | None) -> list[_Contents]:
            if topic is None:
                raise ValueError(f"there is no topic {self.name}")
            if partition is not None and not 0 <= partition < len(topic.partitions):
                raise ValueError(f"there is no partition {self.name}-{partition}")
            chosen = topic.partitions if partition is None else [topic.partitions[partition]]
            return [_Contents.of(each, read_committed=read_committed) for each in chosen]

        return self._read(read)
