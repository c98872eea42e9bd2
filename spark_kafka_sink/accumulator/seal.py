"""Closing a batch: its segments become a payload that never changes, compressed by whoever closes it."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.accumulator.accumulator import RecordAccumulator
from spark_kafka_sink.accumulator.producer_batch import Buffer, ProducerBatch
from spark_kafka_sink.records.compression import CODEC_IDS, compress


class Sealer:
    """Seals the batches of one producer: ``codec`` is compression.type, ``level`` its level or None for the default.

    Called without a lock by whoever has the batch in hand: a caller that filled it, or the sender for what linger
    closed.
    """

    def __init__(self, codec: str, level: int | None, accumulator: RecordAccumulator) -> None:
        self._codec = codec
        self._level = level
        self._codec_id = CODEC_IDS[codec]
        self._accumulator = accumulator

    def seal(self, batch: ProducerBatch) -> None:
        payload: Sequence[Buffer] = batch.buffers
        plain = sum(map(len, payload))
        if self._codec_id:
            payload = [compress(self._codec, self._level, payload)]
            self._account_for(batch, plain, len(payload[0]))
        batch.seal(self._codec_id, payload, plain)

    def split(self, batch: ProducerBatch) -> tuple[ProducerBatch, ProducerBatch]:
        """Two batches in place of one that a broker found too large."""
        halves = batch.split(self._level)
        for half in halves:
            self._accumulator.pool.charge(half, half.size)
        self._accumulator.pool.release([batch])
        self._accumulator.replace(batch, halves)
        return halves

    def _account_for(self, batch: ProducerBatch, plain: int, compressed: int) -> None:
        """The batch keeps its compressed bytes instead of what it was encoded into."""
        batch.buffers = []
        self._accumulator.observe_ratio(batch.partition.topic, compressed / plain)
        self._accumulator.pool.charge(batch, compressed)
