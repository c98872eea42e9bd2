"""``ProduceResponseHandler``: completes, retries, splits or fails the batches of a request (Java:
``Sender.handleProduceResponse``, ``completeBatch``, ``failBatch``, ``reenqueueBatch``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from random import Random
from typing import Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.cause import Cause, timed_out
from spark_kafka_sink.common.clock import ExponentialBackoff
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import NO_LEADER, NO_TIMESTAMP, UNKNOWN_OFFSET, TopicPartition
from spark_kafka_sink.errors import BrokerError, KafkaError, KafkaTimeoutError, NetworkError, unexpected_error
from spark_kafka_sink.network.calls import SOON_MS
from spark_kafka_sink.network.error_table import NOT_RETRIED, TRANSACTIONAL_PRODUCE, Action, action, broker_error
from spark_kafka_sink.network.messages import Response, throttle_time_ms
from spark_kafka_sink.network.metadata import Metadata
from spark_kafka_sink.producer.accumulator import DrainMode, RecordAccumulator
from spark_kafka_sink.producer.produce_api import (
    NO_ERROR,
    NO_LIMIT,
    PartitionResponse,
    ProduceResponse,
)
from spark_kafka_sink.producer.producer_batch import ProducerBatch
from spark_kafka_sink.producer.sequences import PartitionSequence, Sequences
from spark_kafka_sink.producer.transaction_manager import TransactionManager
from spark_kafka_sink.producer.trouble_log import TroubleLog

_log = logging.getLogger("spark_kafka_sink.sender")


_NO_SUCH_TOPIC: Final = (
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.unknown_topic_id,
    ErrorCode.inconsistent_topic_id,
)


@dataclass(eq=False)
class ProduceResponseHandler:
    """Owned by the sender thread. A batch completes once; later responses for it are dropped.

    ``completed``: number of completed batches, delivered or failed.
    """

    config: ProducerConfig
    random: Random
    accumulator: RecordAccumulator
    sequences: Sequences
    metadata: Metadata
    transactions: TransactionManager | None
    trouble: TroubleLog
    completed: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        config = self.config
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, self.random)
        # While the coordinator completes the previous transaction.
        self._soon = ExponentialBackoff(SOON_MS, config.retry_backoff_max_ms, self.random)
        self._metrics = self.accumulator.metrics
        self._finished: list[ProducerBatch] = []
        self._moved: set[TopicPartition] = set()

    def handle(self, batches: Sequence[ProducerBatch], response: Response) -> None:
        """Handles a response. Without a body, the request failed as a whole, or acks is 0. After an unexpected
        exception only the request's batches fail.
        """
        states: list[PartitionSequence] = []
        try:
            states.extend(map(self.sequences.remove_in_flight, batches))
            self._metrics.request_ended(response.node_id)
            self._handle_response(batches, response)
            self._resolve_all(batches, states, response.completed_at)
        except Exception as error:
            _log.exception("A Produce response could not be handled, so its records fail")
            for batch in batches:
                if not batch.parts:
                    self.fail(batch, unexpected_error(error))
            states.extend(map(self.sequences.remove_in_flight, batches[len(states) :]))
            self._resolve_all(batches, states, response.completed_at)
        finally:
            self.release_finished()

    def fail(self, batch: ProducerBatch, error: Exception) -> None:
        """Fail a batch that will not be sent (again), unless it is done. ``release_finished`` must follow."""
        if batch.done:
            return
        if batch.header is not None:
            self.sequences.fail(batch)
        if self.transactions is not None:
            self.transactions.batch_failed(error)
        self._complete_with_error(batch, error)

    def abort(self, batches: Iterable[ProducerBatch], error: Exception) -> None:
        """Fail batches in any state: the producer ends."""
        for batch in batches:
            if not batch.has_result:
                self._complete_with_error(batch, error)
            else:  # an interrupt struck between two listeners, so the rest of them get the error
                batch.error = batch.error or error
                batch.notify_listeners()
                self._finished.append(batch)
        self.release_finished()

    def release_finished(self) -> None:
        """Release the memory of all completed batches and remove them from the accumulator, together."""
        if self._finished:
            self.accumulator.pool.release(self._finished)
            self.accumulator.finish(self._finished)
            self.completed += len(self._finished)
            self._finished = []

    def resolve_sequences(self, partition: TopicPartition, now: float) -> None:
        """Puts retries back into the queue or bumps the epoch, once the partition has no batch in flight (Java:
        ``maybeResolveSequences``).
        """
        self._resolve(partition, self.sequences.partition(partition), now)

    def _resolve_all(self, batches: Sequence[ProducerBatch], states: Sequence[PartitionSequence], now: float) -> None:
        for batch, state in zip(batches, states, strict=True):
            self._resolve(batch.partition, state, now)

    def _resolve(self, partition: TopicPartition, state: PartitionSequence, now: float) -> None:
        if state.resolved and not self.sequences.one_in_flight:
            return
        if state.in_flight:
            self.accumulator.set_drain_mode(partition, DrainMode.MUTED)
            return
        retries = self.sequences.resolve(partition)
        moved = partition in self._moved
        self._moved.discard(partition)
        if retries:
            delay = 0.0 if moved else self._retry_delay(retries)
            self.accumulator.reenqueue(retries, now + delay)
        mode = DrainMode.MUTED if state.bump_epoch else DrainMode.OPEN if state.takes_new else DrainMode.RETRIES_ONLY
        self.accumulator.set_drain_mode(partition, mode)

    def _retry_delay(self, retries: Sequence[ProducerBatch]) -> float:
        if not retries[0].attempts:
            return 0.0  # a part of a split batch, not sent yet
        completing = any(_is_completing(batch.last_error) for batch in retries)
        backoff = self._soon if completing else self._backoff
        return backoff.delay(max(0, *(batch.attempts - 1 for batch in retries)))

    def _handle_response(self, batches: Sequence[ProducerBatch], response: Response) -> None:
        if response.error is not None:
            self._handle_failed_request(batches, response.error, response.completed_at)
        elif isinstance(response.body, ProduceResponse):
            self._metrics.response_received(response.node_id, response.latency_ms, throttle_time_ms(response.body))
            self._handle_partitions(batches, response.body, response)
        else:
            for batch in batches:
                self._complete(batch, UNKNOWN_OFFSET, NO_TIMESTAMP, response.completed_at)

    def _handle_partitions(self, batches: Sequence[ProducerBatch], body: ProduceResponse, response: Response) -> None:
        partitions = [body.partitions.get(batch.partition) for batch in batches]
        if len(body.partitions) != len(batches) or None in partitions:
            requested = ", ".join(str(batch.partition) for batch in batches)
            node = self.metadata.snapshot.nodes.get(response.node_id, f"Broker {response.node_id}")
            error = NetworkError(f"{node} responded for other partitions than the requested ones, {requested}")
            self._handle_failed_request(batches, error, response.completed_at)
            return
        for batch, partition in zip(batches, partitions, strict=True):
            assert partition is not None
            if partition.error_code is NO_ERROR:
                self._complete(batch, partition.base_offset, partition.log_append_time, response.completed_at)
            else:
                self._handle_error(batch, partition, response)

    def _handle_failed_request(self, batches: Sequence[ProducerBatch], error: Exception, now: float) -> None:
        self.metadata.request_update()
        for batch in batches:
            if isinstance(error, NOT_RETRIED):
                self.fail(batch, error)
            else:
                self._retry(batch, error, False, now)

    def _handle_error(self, batch: ProducerBatch, partition: PartitionResponse, response: Response) -> None:
        code = partition.error_code
        if partition.leader is not None:
            self.metadata.update_leader(batch.partition, partition.leader, partition.leader_epoch)
            # The retry goes to the new leader without backoff (KIP-951). An outdated hint changes no leader.
            if self.metadata.snapshot.leader(batch.partition) not in (response.node_id, NO_LEADER):
                self._moved.add(batch.partition)
        transactional = self.sequences.transactional
        what = action(TRANSACTIONAL_PRODUCE if transactional else "produce", code)
        if what is Action.REFRESH_RETRY:
            self.metadata.mark_stale((batch.partition,))
        if what is Action.SUCCEED:
            self._complete(batch, partition.base_offset, NO_TIMESTAMP, response.completed_at)
            return
        error = broker_error(code, str(batch.partition), partition.error_message)
        if code in _NO_SUCH_TOPIC:
            self.sequences.forget_producer(batch)
        if (
            code is ErrorCode.unknown_producer_id
            and transactional
            and self._starts_again(batch, partition.log_start_offset)
        ):
            what = Action.RETRY
        if what is Action.BUMP_EPOCH and not self._can_retry_sequence(batch):
            what = Action.FAIL
        if what < Action.SPLIT or what is Action.BUMP_EPOCH:
            self._retry(batch, error, what is Action.BUMP_EPOCH, response.completed_at)
        elif what is Action.SPLIT and batch.count > 1:
            self._split(batch, response.completed_at)
        else:
            self._fail_records(batch, partition, error)

    def _fail_records(self, batch: ProducerBatch, partition: PartitionResponse, error: BrokerError) -> None:
        """Fails a batch (Java: ``Sender.failBatch``). If the broker names records, each of these fails with its own
        error. The other records fail because they were in the same batch, or are sent again if the receipts keep
        refused records.
        """
        refused = partition.refused(batch.count)
        if batch.done or not refused:
            self.fail(batch, error)
            return
        (code, _) = next(iter(refused.values()))
        is_kept = self._can_retry_sequence(batch) and all(rows.listener.keeps(code) for rows in batch.record_ranges)
        parts: Sequence[ProducerBatch] = (batch,)
        if batch.count > 1:
            parts = self.accumulator.split(batch, NO_LIMIT, refused)
            self.sequences.replace(batch, parts)
        numbered = list(zip(accumulate((part.count for part in parts), initial=0), parts, strict=False))
        errors = {index: _record_error(part, index, *refused[index]) for index, part in numbered if index in refused}
        first = next(iter(errors.values()))
        of_others = KafkaError(f"Not written, because the broker refused another record of the same batch. {first}")
        of_others.row = first.row
        for index, part in numbered:
            if index in errors or not is_kept:
                self.fail(part, errors.get(index, of_others))
        if left := [part for part in parts if not part.done]:
            self.sequences.retry(left[0], True)

    def _starts_again(self, batch: ProducerBatch, log_start_offset: int) -> bool:
        """Lets the sequences start again if a broker before Kafka 2.5 forgot this producer because retention deleted
        all of its records (Java: ``TransactionManager.canRetry``). Returns whether the batch is sent again, which is
        also the case if the broker does not know its log's start.
        """
        if log_start_offset == UNKNOWN_OFFSET:
            return True
        deleted = self.sequences.partition(batch.partition).acked_offset < log_start_offset
        if deleted:
            self.sequences.start_again(batch)
        return deleted

    def _can_retry_sequence(self, batch: ProducerBatch) -> bool:
        """Whether the batch may be sent again with its sequence. False if this would need a new epoch in a transaction,
        or would put the batch behind later ones."""
        if self.sequences.transactional:
            return not self.sequences.is_first(batch)
        return not self.sequences.is_overtaken(batch)

    def _retry(self, batch: ProducerBatch, error: Exception, bump_epoch: bool, now: float) -> None:
        if batch.done:
            return
        batch.last_error = error
        if now >= batch.created + self.config.delivery_timeout_ms:
            self.fail(batch, expiry_error(batch, now))
        elif batch.attempts > self.config.retries:
            self.fail(batch, error)
        else:
            _log.debug("Retrying %s after attempt %d: %s", batch.partition, batch.attempts, error)
            if not _is_completing(error):
                self.trouble.retried(batch, error, now)
            self._metrics.topic(batch.partition.topic).retries += batch.count
            self.sequences.retry(batch, bump_epoch)

    def split_unsent(self, batch: ProducerBatch, now: float) -> None:
        """Split a drained, sealed batch that its topic does not accept. Its parts become the head of its queue."""
        parts = self._split_into(batch, now)
        if batch.header is not None:
            self.sequences.replace(batch, parts)
        self.accumulator.undrain_parts(parts)

    def _split(self, batch: ProducerBatch, now: float) -> None:
        if not batch.done:
            self.sequences.replace(batch, self._split_into(batch, now))
            self.sequences.retry(batch, False)

    def _split_into(self, batch: ProducerBatch, now: float) -> Sequence[ProducerBatch]:
        topic = batch.partition.topic
        parts = self.accumulator.split(batch, self.accumulator.topic_limits.refused(topic, batch.size, now))
        self._metrics.topic(topic).splits += 1
        _log.debug("%s: split a batch of %d bytes, which is more than its topic takes", batch.partition, batch.size)
        return parts

    def _complete(self, batch: ProducerBatch, base_offset: int, log_append_time: int, now: float) -> None:
        self.trouble.acknowledged_at = now
        if not batch.done:
            self.sequences.complete(batch, base_offset)
            batch.complete(base_offset, log_append_time, None)
            self._finished.append(batch)

    def _complete_with_error(self, batch: ProducerBatch, error: Exception) -> None:
        self._metrics.topic(batch.partition.topic).errors += batch.count
        batch.complete(UNKNOWN_OFFSET, NO_TIMESTAMP, error)
        self._finished.append(batch)


def _is_completing(error: Exception | None) -> bool:
    """Whether the coordinator is still completing the previous transaction, which is frequent."""
    return isinstance(error, BrokerError) and error.code == ErrorCode.concurrent_transactions


def _record_error(part: ProducerBatch, index: int, code: ErrorCode, text: str | None) -> BrokerError:
    """The error of a record, which is the only one of ``part``."""
    (rows,) = part.record_ranges
    row = rows.listener.row_of(rows.start)
    numbers = f"record {index} of its batch" + ("" if row is None else f", row {row}")
    error = broker_error(code, f"{part.partition}, {numbers}", text)
    error.row = row
    return error


def expiry_error(batch: ProducerBatch, now: float, why: Cause | None = None) -> KafkaTimeoutError:
    """Kafka's text, the batch's last error, and the reason why it is not acknowledged now."""
    waited = f"{now - batch.created:.0f} ms has passed since batch creation"
    text = f"Expiring {batch.count} record(s) for {batch.partition}: {waited}"
    if batch.last_error is not None:
        text += f" (attempt {batch.attempts}: {batch.last_error})"
    return timed_out(text, why)
