"""``ReceiptReader``: the receipts of a receiptsTopic or receiptsPath, and those that come later."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.exactly_once.cluster import Cluster
from spark_kafka_sink.exactly_once.partition_log import PartitionLog
from spark_kafka_sink.exactly_once.receipts import WriteReceipt, file_system

_PARTITIONS_EVERY_MS: Final = 60_000.0
_REMEMBERED_FILES: Final = 1_000
_SMALL_FOLDER: Final = 1_000
"""Folders of at most this many files are listed at each read."""
_LIST_MS_PER_FILE: Final = 1.0
_LIST_AT_LEAST_EVERY_MS: Final = 60_000.0


@dataclass(slots=True)
class Foreign:
    """How many records or lines are not receipts, and what is wrong with the first."""

    count: int = 0
    first: str = ""

    def add(self, where: str, error: ValueError) -> None:
        self.count += 1
        self.first = self.first or f"{where}: {error}"


class ReceiptReader(Protocol):
    """Reads receipts, on one thread. What ``WriteReceipt.parse`` rejects is counted in ``foreign`` and left out."""

    @property
    def foreign(self) -> Foreign: ...
    def read(self) -> Iterator[WriteReceipt]:
        """The receipts since the last call, up to the end. Raises ``KafkaError``; the next call continues there."""

    def close(self) -> None: ...


class TopicReceipts:
    """Reads all partitions of a receiptsTopic, read_committed, from the first record on or from ``since`` (epoch ms).

    ``hidden`` are the partitions whose records are hidden by an open transaction, with the first hidden offset. Each
    request may take max.block.ms.
    """

    def __init__(self, config: ProducerConfig, topic: str, clock: Clock, since: int | None = None) -> None:
        self.foreign = Foreign()
        self.hidden: dict[TopicPartition, int] = {}
        self._topic = topic
        self._since = since
        self._wait_ms = config.max_block_ms
        self._cluster = Cluster(config, clock)
        self._logs: dict[int, PartitionLog] = {}
        self._offsets: dict[int, int] = {}
        self._look_up_at = -math.inf

    def read(self) -> Iterator[WriteReceipt]:
        self._look_up_partitions()
        for number, log in self._logs.items():
            if number not in self._offsets:
                self._offsets[number] = self._first_offset(log)
            yield from self._read(number, log)

    def close(self) -> None:
        self._cluster.close()

    def _read(self, number: int, log: PartitionLog) -> Iterator[WriteReceipt]:
        while True:
            offset = self._offsets[number]
            fetched = log.fetch(offset, self._deadline(), read_committed=True)
            if fetched is None:  # retention has removed the records, or the topic was made again
                self._offsets[number] = log.earliest(self._deadline())
                continue
            receipts = [
                receipt
                for batch in fetched.batches
                for record in batch.records()
                if record.offset >= offset
                for receipt in parsed(record.value or b"", f"{log.partition} offset {record.offset}", self.foreign)
            ]
            self._offsets[number] = fetched.next_offset
            yield from receipts
            if fetched.next_offset >= fetched.end:
                break
        self.hidden.pop(log.partition, None)
        if fetched.end < fetched.high_watermark:
            self.hidden[log.partition] = fetched.end

    def _look_up_partitions(self) -> None:
        now = self._cluster.now()
        if now < self._look_up_at:
            return
        info = self._cluster.topic(self._topic, self._deadline())
        if info is None:
            raise KafkaError(f"receiptsTopic {self._topic}: there is no such topic")
        for number in range(info.partition_count):
            if number not in self._logs:
                self._logs[number] = PartitionLog(self._cluster, TopicPartition(self._topic, number))
        self._look_up_at = now + _PARTITIONS_EVERY_MS

    def _first_offset(self, log: PartitionLog) -> int:
        if self._since is None:
            return log.earliest(self._deadline())
        return log.offset_at(self._since, self._deadline())

    def _deadline(self) -> float:
        return self._cluster.now() + self._wait_ms


class FolderReceipts:
    """Reads the files of a receiptsPath, a path or a URI that Arrow knows: those written since ``since`` (epoch ms), or
    all.

    A file that is written again, because its batch was replayed, adds only the receipts that it did not have. A folder
    of more than 1,000 files is not listed at each read. The pause is a second for each 1,000 files, at most a minute.
    """

    def __init__(self, folder: str, clock: Clock, since: int | None = None) -> None:
        self.foreign = Foreign()
        self._folder = folder
        self._clock = clock
        self._since = since
        self._list_at = -math.inf
        self._read: dict[str, tuple[Any, int]] = {}
        self._lines: OrderedDict[str, set[str]] = OrderedDict()

    def read(self) -> Iterator[WriteReceipt]:
        from pyarrow import fs

        if self._clock.now() < self._list_at:
            return
        try:
            system, path = file_system(self._folder)
            files = system.get_file_info(fs.FileSelector(path))
        except (OSError, ValueError) as error:
            raise KafkaError(f"receiptsPath {self._folder} cannot be read: {error}") from error
        for info in sorted(files, key=lambda each: (each.mtime_ns or 0, each.path)):
            version = (info.mtime_ns, info.size)
            old = self._since is not None and info.mtime_ns is not None and info.mtime_ns < self._since * 1_000_000
            if not info.path.endswith(".jsonl") or old or self._read.get(info.path) == version:
                continue
            try:
                with system.open_input_stream(info.path) as file:
                    text = file.read().decode(errors="replace")
            except FileNotFoundError:
                continue
            except OSError as error:
                raise KafkaError(f"{info.path} cannot be read: {error}") from error
            yield from self._receipts(info.path, text)
            if text.endswith("\n") or not text:  # else it is being written
                self._read[info.path] = version
        if len(files) > _SMALL_FOLDER:
            self._list_at = self._clock.now() + min(len(files) * _LIST_MS_PER_FILE, _LIST_AT_LEAST_EVERY_MS)

    def close(self) -> None: ...

    def _receipts(self, path: str, text: str) -> Iterator[WriteReceipt]:
        before = self._lines.pop(path, set())
        lines = [line for line in text.splitlines(keepends=True) if line.endswith("\n")]
        self._lines[path] = before.union(lines)
        if len(self._lines) > _REMEMBERED_FILES:
            self._lines.popitem(last=False)
        for number, line in enumerate(lines, 1):
            if line not in before:
                yield from parsed(line.encode(), f"{path} line {number}", self.foreign)


def parsed(value: bytes, where: str, foreign: Foreign) -> Iterable[WriteReceipt]:
    """The receipt in a record or line; none if it is foreign, which is counted."""
    try:
        return (WriteReceipt.parse(value.decode(errors="replace").rstrip("\n")),)
    except ValueError as error:
        foreign.add(where, error)
        return ()
