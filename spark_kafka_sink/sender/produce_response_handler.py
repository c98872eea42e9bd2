"""What comes back for a Produce request: verdicts on its batches, and what each of them sets in motion.

Owned by the sender thread.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from spark_kafka_sink.accumulator.accumulator import DrainMode, RecordAccumulator
from spark_kafka_sink.accumulator.producer_batch import NO_TIMESTAMP, UNKNOWN_OFFSET, ProducerBatch
from spark_kafka_sink.errors import BrokerError, KafkaTimeoutError, NetworkError, UnsupportedVersionError, unexpected
from spark_kafka_sink.model import NO_LEADER, TopicPartition
from spark_kafka_sink.network.backoff import ExponentialBackoff
from spark_kafka_sink.network.codec import Response, throttle_time_ms
from spark_kafka_sink.network.error_table import TRANSACTIONAL_PRODUCE, Action, action, broker_error
from spark_kafka_sink.network.metadata import Metadata
from spark_kafka_sink.sender.produce_response import NO_ERROR, PartitionResponse, ProduceResponse
from spark_kafka_sink.transactions.calls import SOON_MS
from spark_kafka_sink.transactions.manager import TransactionManager
from spark_kafka_sink.transactions.sequences import PartitionSequence, Sequences

_log = logging.getLogger("spark_kafka_sink.sender")


@dataclass(frozen=True, slots=True)
class DeliveryPolicy:
    """``delivery_timeout_ms`` and ``retries`` as configured; ``one_at_a_time``: max.in.flight is 1, so a partition is
    muted while it has a batch in flight.
    """

    delivery_timeout_ms: float
    retries: int
    one_at_a_time: bool


@dataclass(frozen=True, slots=True)
class ResponseHandlerParts:
    """What an answer may set in motion; ``transactions`` None: the producer is not transactional."""

    accumulator: RecordAccumulator
    sequences: Sequences
    metadata: Metadata
    backoff: ExponentialBackoff
    transactions: TransactionManager | None


class ProduceResponseHandler:
    """Completes, reenqueues or fails batches. A batch completes once, whatever comes back for it later."""

    def __init__(self, policy: DeliveryPolicy, parts: ResponseHandlerParts) -> None:
        self._policy = policy
        self._accumulator = parts.accumulator
        self._sequences = parts.sequences
        self._metadata = parts.metadata
        self._backoff = parts.backoff
        self._transactions = parts.transactions
        self._metrics = parts.accumulator.metrics
        self.completed = 0
        self._finished: list[ProducerBatch] = []
        self._moved: set[TopicPartition] = set()

    def answered(self, batches: Sequence[ProducerBatch], response: Response) -> None:
        """All that one request brought back. Without a body it failed as a whole, or was sent with acks=0.

        If it cannot be taken in, the request's batches fail and nothing else does.
        """
        states: list[PartitionSequence] = []
        try:
            states.extend(map(self._sequences.answered, batches))
            self._metrics.request_ended(response.node_id)
            self._take_in(batches, response)
            self._settle_all(batches, states, response.completed_at)
        except Exception as error:
            _log.exception("A Produce response could not be taken in: its records fail")
            for batch in batches:
                if not batch.parts:
                    self._fail(batch, unexpected(error))
            states.extend(map(self._sequences.answered, batches[len(states) :]))
            self._settle_all(batches, states, response.completed_at)
        finally:
            self.flush_finished()

    def _settle_all(self, batches: Sequence[ProducerBatch], states: Sequence[PartitionSequence], now: float) -> None:
        for batch, state in zip(batches, states, strict=True):
            self._settle(batch.partition, state, now)

    def _take_in(self, batches: Sequence[ProducerBatch], response: Response) -> None:
        if response.error is not None:
            self._failed_request(batches, response.error, response.completed_at)
        elif isinstance(response.body, ProduceResponse):
            self._metrics.answered(response.node_id, response.latency_ms, throttle_time_ms(response.body))
            self._judge(batches, response.body, response)
        else:
            for batch in batches:
                self._succeed(batch, UNKNOWN_OFFSET, NO_TIMESTAMP)

    def give_up(self, batch: ProducerBatch, error: Exception) -> None:
        """Fail a batch that will not be sent (again). ``flush_finished`` must follow."""
        if batch.header is not None:
            self._sequences.gave_up(batch)
        if self._transactions is not None:
            self._transactions.batch_failed(error)
        self._lose(batch, error)

    def abandon(self, batches: Iterable[ProducerBatch], error: Exception) -> None:
        """Fail batches of a producer that is at its end, whatever stage they are in."""
        for batch in batches:
            if not batch.has_result:
                self._lose(batch, error)
            else:  # an interrupt struck while its listeners were told: who has not heard does not know
                batch.error = batch.error or error
                batch.notify_listeners()
                self._finished.append(batch)
        self.flush_finished()

    def settle(self, partition: TopicPartition, now: float) -> None:
        """Bring a partition that is out of step back, once nothing of it is in flight."""
        self._settle(partition, self._sequences.partition(partition), now)

    def _settle(self, partition: TopicPartition, state: PartitionSequence, now: float) -> None:
        if state.in_step and not self._policy.one_at_a_time:
            return
        if state.in_flight:
            self._accumulator.set_drain_mode(partition, DrainMode.MUTED)
            return
        again = self._sequences.settle(partition)
        moved = partition in self._moved
        self._moved.discard(partition)
        if again:
            delay = 0.0 if moved else self._retry_delay(again)
            self._accumulator.reenqueue(again, now + delay)
        admission = DrainMode.MUTED if state.resequence else DrainMode.RETRIES_ONLY if state.gap else DrainMode.OPEN
        self._accumulator.set_drain_mode(partition, admission)

    def _retry_delay(self, again: Sequence[ProducerBatch]) -> float:
        if any(_waits_for_an_end(batch.last_error) for batch in again):
            return SOON_MS
        return self._backoff.delay(max(0, *(batch.attempts - 1 for batch in again)))

    def flush_finished(self) -> None:
        """Free the memory of all completed batches and tell the accumulator of them, at once."""
        if self._finished:
            self._accumulator.pool.release(self._finished)
            self._accumulator.finish(self._finished)
            self.completed += len(self._finished)
            self._finished = []

    def _judge(self, batches: Sequence[ProducerBatch], answer: ProduceResponse, response: Response) -> None:
        answers = [answer.partitions.get(batch.partition) for batch in batches]
        if len(answer.partitions) != len(batches) or None in answers:
            asked = ", ".join(str(batch.partition) for batch in batches)
            error = NetworkError(
                f"node {response.node_id} answered for other partitions than it was asked for: {asked}"
            )
            self._failed_request(batches, error, response.completed_at)
            return
        for batch, of_batch in zip(batches, answers, strict=True):
            assert of_batch is not None
            if of_batch.error_code is NO_ERROR:
                self._succeed(batch, of_batch.base_offset, of_batch.log_append_time)
            else:
                self._failed(batch, of_batch, response)

    def _failed_request(self, batches: Sequence[ProducerBatch], error: Exception, now: float) -> None:
        self._metadata.request_update()
        for batch in batches:
            if isinstance(error, UnsupportedVersionError):
                self._fail(batch, error)
            else:
                self._retry(batch, error, False, now)

    def _failed(self, batch: ProducerBatch, answer: PartitionResponse, response: Response) -> None:
        code = answer.error_code
        if answer.leader is not None:
            self._metadata.update_leader(batch.partition, answer.leader, answer.leader_epoch)
            # The retry goes to another broker at once (KIP-951). A hint that is out of date changes no leader.
            if self._metadata.snapshot.leader(batch.partition) not in (response.node_id, NO_LEADER):
                self._moved.add(batch.partition)
        what = action(TRANSACTIONAL_PRODUCE if self._sequences.transactional else "produce", code)
        if what is Action.REFRESH_RETRY:
            self._metadata.request_update()
        if what is Action.SUCCEED:
            self._succeed(batch, answer.base_offset, NO_TIMESTAMP)
            return
        error = broker_error(code, str(batch.partition), answer.error_message)
        if code is ErrorCode.unknown_topic_or_partition:
            self._sequences.forgotten(batch)
        if what is Action.BUMP_EPOCH and self._cannot_resequence(batch):
            what = Action.FAIL
        if what < Action.SPLIT or what is Action.BUMP_EPOCH:
            self._retry(batch, error, what is Action.BUMP_EPOCH, response.completed_at)
        elif what is Action.SPLIT and batch.count > 1:
            self._split(batch)
        else:
            self._fail(batch, error)

    def _cannot_resequence(self, batch: ProducerBatch) -> bool:
        """A transaction has but one epoch; and under a new one the batch would end up behind later ones."""
        if self._sequences.transactional:
            return self._sequences.is_first(batch)
        return self._sequences.is_overtaken(batch)

    def _retry(self, batch: ProducerBatch, error: Exception, misses_earlier: bool, now: float) -> None:
        if batch.done:
            return
        batch.last_error = error
        if now >= batch.created + self._policy.delivery_timeout_ms:
            self._fail(batch, expiry_error(batch, now))
        elif batch.attempts > self._policy.retries:
            self._fail(batch, error)
        else:
            _log.debug("Retrying %s after attempt %d: %s", batch.partition, batch.attempts, error)
            self._metrics.topic(batch.partition.topic).retries += batch.count
            self._sequences.returned(batch, misses_earlier)

    def _split(self, batch: ProducerBatch) -> None:
        if not batch.done:
            _log.info("%s found a batch of %d records too large: it is split", batch.partition, batch.count)
            self._metrics.topic(batch.partition.topic).splits += 1
            self._sequences.split(batch, self._accumulator.split(batch))

    def _fail(self, batch: ProducerBatch, error: Exception) -> None:
        if not batch.done:
            self.give_up(batch, error)

    def _succeed(self, batch: ProducerBatch, base_offset: int, log_append_time: int) -> None:
        if not batch.done:
            self._sequences.succeeded(batch)
            batch.complete(base_offset, log_append_time, None)
            self._finished.append(batch)

    def _lose(self, batch: ProducerBatch, error: Exception) -> None:
        self._metrics.topic(batch.partition.topic).errors += batch.count
        batch.complete(UNKNOWN_OFFSET, NO_TIMESTAMP, error)
        self._finished.append(batch)


def _waits_for_an_end(error: Exception | None) -> bool:
    """The transaction before is just being ended: a matter of milliseconds."""
    return isinstance(error, BrokerError) and error.code == ErrorCode.concurrent_transactions


def expiry_error(batch: ProducerBatch, now: float) -> KafkaTimeoutError:
    """Kafka's text, and what kept the records from being delivered, where that is known."""
    waited = f"{now - batch.created:.0f} ms has passed since batch creation"
    text = f"Expiring {batch.count} record(s) for {batch.partition}: {waited}"
    if batch.last_error is not None:
        text += f" (attempt {batch.attempts}: {batch.last_error})"
    return KafkaTimeoutError(text)
