"""One partition: leader, replicas, high watermark, and the rules of an append (Kafka: ``Partition``).

Emulated: leadership and its epoch; the ISR against ``min.insync.replicas``; followers that have each record at once
unless the script holds them; the high watermark, which follows the replicas in the ISR and, from Kafka 3.7 on, stays
where it is while too few replicas are in the ISR (KAFKA-15583); the checks of ``validation``, sequences and epochs;
``compression.type``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.model import NO_IDENTITY, NO_LEADER, TopicPartition
from spark_kafka_sink.exactly_once.decode import BatchView, batch_headers
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.config import Settings
from spark_kafka_sink.testing.broker.state.log import EndTransactionMarker, UnifiedLog
from spark_kafka_sink.testing.broker.state.producers import ProducerStates, SequenceRange, last_sequence
from spark_kafka_sink.testing.broker.state.recompression import recompressed
from spark_kafka_sink.testing.broker.state.validation import RecordRules, check_batch

ALL_REPLICAS = -1


@dataclass(frozen=True, slots=True)
class LogAppendInfo:
    """The place of an appended batch. ``end_offset``: the offset that the high watermark must reach before the response
    with acks=all.

    ``log_append_time``: epoch ms; None if records keep the time that the producer gave them.
    """

    base_offset: int
    end_offset: int
    log_append_time: int | None = None


class Partition:
    """A partition as all its replicas see it: they share one log, of which a held follower has only the beginning.

    ``leader``: ``NO_LEADER`` while there is none. ``needs_min_isr``: the high watermark advances only while the ISR has
    ``min.insync.replicas``.
    """

    def __init__(
        self, name: TopicPartition, replicas: Sequence[int], settings: Settings, *, needs_min_isr: bool = True
    ) -> None:
        self.name = name
        self.replicas = list(replicas)
        self.isr = list(replicas)
        self.leader = replicas[0]
        self.leader_epoch = 0
        self.log = UnifiedLog()
        self.producers = ProducerStates()
        self.high_watermark = 0
        self._held_ends: dict[int, int] = {}
        """Node → the offset up to which it has the log, for replicas that fetch nothing while they follow."""
        self._needs_min_isr = needs_min_isr
        self.storage_failed = False
        self.halts_node = False
        self._settings = settings

    def elect(self, leader: int) -> None:
        """Elects a leader, or none (``NO_LEADER``), with the next epoch. The leader has every record."""
        for node in {self.leader, leader} & self._held_ends.keys():
            self._held_ends[node] = self.log.end_offset
        self.leader = leader
        self.leader_epoch += 1
        self.advance_high_watermark()

    def lose(self, node: int) -> None:
        """Takes a replica whose node died out of the ISR, and elects the next leader in it. The last replica stays in
        the ISR."""
        others = [each for each in self.isr if each != node]
        if others:
            self.set_isr(others)
        if self.leader == node:
            self.elect(others[0] if others else NO_LEADER)

    def regain(self, node: int) -> None:
        """Takes a replica whose node came back into the ISR; it has every record."""
        if node in self.replicas and node not in self.isr:
            self.set_isr([*self.isr, node])
        if self.leader == NO_LEADER and node in self.isr:
            self.elect(node)

    def set_isr(self, isr: Sequence[int]) -> None:
        self.isr = list(isr)
        self.advance_high_watermark()

    def fail_storage(self, failed: bool, *, halt: bool = False) -> None:
        """Lets appends fail. ``halt``: instead, the next append stops the node."""
        self.storage_failed = failed and not halt
        self.halts_node = failed and halt

    def hold_followers(self, nodes: Collection[int]) -> None:
        """Stops replication to these nodes while they follow. Raises ``ValueError`` if none of them is a follower."""
        held = set(self.replicas).intersection(nodes)
        if not held - {self.leader}:
            raise ValueError(f"{self.name} has no such follower: its leader is {self.leader}, replicas {self.replicas}")
        for node in held:
            self._held_ends.setdefault(node, self.log.end_offset)

    def release_followers(self) -> None:
        """Ends ``hold_followers``: all followers have everything again."""
        self._held_ends.clear()
        self.advance_high_watermark()

    def has_enough_replicas(self) -> bool:
        """Whether the ISR has ``min.insync.replicas``."""
        return len(self.isr) >= min(self._settings.number("min.insync.replicas"), len(self.replicas))

    def leadership_error(self, node: int) -> ErrorCode:
        if self.leader != node:
            return ErrorCode.not_leader_or_follower
        return ErrorCode.kafka_storage_error if self.storage_failed else ErrorCode.none

    def append(self, data: bytes, header: BatchView, acks: int, now_ms: int) -> LogAppendInfo:
        """Check one Produce partition's records and append them.

        A remembered duplicate gets its first offset again. Raises ``ApiError``.
        """
        self._check_isr(acks)
        append_time = now_ms if self._settings["message.timestamp.type"] == "LogAppendTime" else None
        max_bytes = self._settings.number("max.message.bytes")
        times = None if append_time is not None else self._settings.times(now_ms)
        rules = RecordRules(self.name, "compact" in str(self._settings["cleanup.policy"]), times)
        check_batch(data, header, max_bytes, rules)
        if append_time is not None and header.is_log_append_time:
            raise ApiError(ErrorCode.invalid_timestamp, "Invalid timestamp type: only the broker sets LogAppendTime")
        if self.log.has_ongoing(header.producer_id) and not header.is_transactional:
            raise ApiError(ErrorCode.invalid_txn_state, f"Expected transactional write from {header.producer_id}")
        if header.producer_id != NO_IDENTITY.producer_id:
            last = last_sequence(header.base_sequence, header.record_count)
            known = self.producers.duplicate(header.producer_id, header.producer_epoch, header.base_sequence, last)
            if known is not None:
                return LogAppendInfo(
                    known.base_offset, known.base_offset + header.last_offset_delta + 1, known.timestamp
                )
            error = self.producers.check(header.producer_id, header.producer_epoch, header.base_sequence)
            if error:
                raise ApiError(error)
        data, header = recompressed(data, header, str(self._settings["compression.type"]), max_bytes)
        base = self.log.append(data, header, self.leader_epoch, append_time)
        if header.producer_id != NO_IDENTITY.producer_id:
            timestamp = header.max_timestamp if append_time is None else append_time
            sequences = SequenceRange(header.base_sequence, last, base, timestamp)
            self.producers.appended(header.producer_id, header.producer_epoch, sequences)
        self.advance_high_watermark()
        return LogAppendInfo(base, self.log.end_offset, append_time)

    def append_internal(self, data: bytes, acks: int) -> LogAppendInfo:
        """Append a coordinator's batch. Raises ``ApiError`` for the state of the partition; the batch is not
        checked."""
        if self.storage_failed:
            raise ApiError(ErrorCode.kafka_storage_error)
        self._check_isr(acks)
        (header,) = batch_headers(data)
        max_bytes = self._settings.number("max.message.bytes")
        data, header = recompressed(data, header, str(self._settings["compression.type"]), max_bytes)
        base = self.log.append(data, header, self.leader_epoch)
        self.advance_high_watermark()
        return LogAppendInfo(base, self.log.end_offset)

    def append_marker(self, marker: EndTransactionMarker, now_ms: int) -> None:
        self.producers.marked(marker.producer_id, marker.epoch)
        self.log.append_marker(marker, self.leader_epoch, now_ms)
        self.advance_high_watermark()

    def _check_isr(self, acks: int) -> None:
        if acks == ALL_REPLICAS and not self.has_enough_replicas():
            raise ApiError(
                ErrorCode.not_enough_replicas,
                f"The size of the current ISR {sorted(self.isr)} is insufficient to satisfy the min.isr requirement of "
                f"{self._settings.number('min.insync.replicas')} for partition {self.name}",
            )

    def is_writing(self, identity: tuple[int, int]) -> bool:
        """Whether this producer id and epoch have a transaction open here."""
        producer_id, epoch = identity
        return self.log.has_ongoing(producer_id) and self.producers.epoch(producer_id) == epoch

    def last_stable_offset(self) -> int:
        return self.log.last_stable_offset(self.high_watermark)

    def advance_high_watermark(self) -> None:
        """Moves the high watermark to the end of what every in-sync replica has, never back (Kafka:
        ``maybeIncrementLeaderHW``)."""
        if self._needs_min_isr and not self.has_enough_replicas():
            return
        held = (end for node, end in self._held_ends.items() if node != self.leader and node in self.isr)
        self.high_watermark = max(self.high_watermark, min(held, default=self.log.end_offset))
