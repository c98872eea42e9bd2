"""What ``write_kafka`` returns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from spark_kafka_sink.spark.commit_message import Committed, KafkaCommitMessage, PartitionWrite


@dataclass(frozen=True)
class WriteResult:
    """A write that has succeeded. Its text is the line that the sink logs.

    - ``rows``, ``bytes``: acknowledged; bytes of records before compression. 0 for a replay.
    - ``seconds``: how long the call took.
    - ``partitions``: for each topic and partition, sorted: count, bytes, first and last offset (-1 with ``acks=0``).
      Records of other writers may lie between them.
    - ``dead_letters``: reason → rows.
    - ``replayed``: txnAppId had written this txnVersion before, so nothing was written.
    """

    rows: int
    bytes: int
    seconds: float
    partitions: tuple[PartitionWrite, ...] = ()
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    replayed: bool = False
    text: str = ""

    def __str__(self) -> str:
        return self.text

    @classmethod
    def of(cls, messages: Sequence[KafkaCommitMessage], committed: Committed, seconds: float) -> WriteResult:
        """The result of a write whose tasks reported ``messages``."""
        if committed.replayed:
            return cls(0, 0, seconds, replayed=True, text=committed.line)
        partitions = _merged(write for message in messages for write in message.writes)
        letters: dict[str, int] = defaultdict(int)
        for reason, rows in (each for message in messages for each in message.figures.dead_letters):
            letters[reason] += rows
        return cls(
            rows=sum(each.count for each in partitions),
            bytes=sum(each.bytes for each in partitions),
            seconds=seconds,
            partitions=partitions,
            dead_letters=dict(letters),
            text=committed.line,
        )


def _merged(writes: Iterable[PartitionWrite]) -> tuple[PartitionWrite, ...]:
    """One for each topic and partition, of what its tasks wrote."""
    merged: dict[tuple[str, int], PartitionWrite] = {}
    for write in writes:
        place = write.topic, write.partition
        before = merged.get(place)
        merged[place] = write if before is None else PartitionWrite(
            *place,
            before.count + write.count,
            before.bytes + write.bytes,
            min(before.first_offset, write.first_offset),
            max(before.last_offset, write.last_offset),
        )  # fmt: skip
    return tuple(merged[place] for place in sorted(merged))
