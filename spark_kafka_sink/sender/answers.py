"""What comes back for a Produce request: verdicts on its batches, and what each of them sets in motion.

Owned by the sender thread.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kio.schema.errors import ErrorCode

from spark_kafka_sink.accumulator.accumulator import RecordAccumulator
from spark_kafka_sink.accumulator.batch import (
    NO_TIMESTAMP,
    UNKNOWN_OFFSET,
    BatchCompletion,
    OpenBatch,
    StampedBatch,
)
from spark_kafka_sink.accumulator.partition_queue import Admission
from spark_kafka_sink.accumulator.seal import Sealer
from spark_kafka_sink.errors import BrokerError, KafkaTimeoutError, NetworkError, UnsupportedVersionError
from spark_kafka_sink.model import Node, TopicPartition
from spark_kafka_sink.network.backoff import ExponentialBackoff
from spark_kafka_sink.network.metadata import Metadata
from spark_kafka_sink.network.requests import Response, throttle_time_ms
from spark_kafka_sink.sender.sequences import Sequences
from spark_kafka_sink.sender.transactions.calls import SOON_MS
from spark_kafka_sink.sender.transactions.manager import TransactionManager
from spark_kafka_sink.sender.verdicts import Action, broker_error, verdict

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
class AnswerParts:
    """What an answer may set in motion; ``transactions`` None: the producer is not transactional."""

    accumulator: RecordAccumulator
    sealer: Sealer
    sequences: Sequences
    metadata: Metadata
    backoff: ExponentialBackoff
    transactions: TransactionManager | None


class Answers:
    """Completes, reenqueues or fails batches. A batch completes once, whatever comes back for it later."""

    def __init__(self, policy: DeliveryPolicy, parts: AnswerParts) -> None:
        self._policy = policy
        self._accumulator = parts.accumulator
        self._sealer = parts.sealer
        self._sequences = parts.sequences
        self._metadata = parts.metadata
        self._backoff = parts.backoff
        self._transactions = parts.transactions
        self._metrics = parts.accumulator.metrics
        self._finished: list[BatchCompletion] = []
        self._moved: set[TopicPartition] = set()

    def answered(self, batches: Sequence[StampedBatch], response: Response) -> None:
        """All that one request brought back. Without a body it failed as a whole, or was sent with acks=0."""
        self._metrics.request_ended(response.node_id)
        if response.body is not None:
            throttle_ms = throttle_time_ms(response.body)
            self._metrics.answered(response.node_id, response.latency_ms, throttle_ms)
        for batch in batches:
            self._sequences.answered(batch)
        if response.error is not None:
            for batch in batches:
                self._failed_request(batch, response.error, response.completed_at)
        elif response.body is None:
            for batch in batches:
                self._succeed(batch, UNKNOWN_OFFSET, NO_TIMESTAMP)
        else:
            self._judge(batches, response)
        for batch in batches:
            self.settle(batch.partition, response.completed_at)
        self.flush_finished()

    def give_up(self, batch: OpenBatch | StampedBatch, error: Exception) -> None:
        """Fail a batch that will not be sent (again). ``flush_finished`` must follow."""
        if isinstance(batch, StampedBatch):
            self._sequences.gave_up(batch)
        if self._transactions is not None:
            self._transactions.batch_failed(error)
        self._complete(batch.completion, UNKNOWN_OFFSET, NO_TIMESTAMP, error)

    def abandon(self, completions: Iterable[BatchCompletion], error: Exception) -> None:
        """Fail batches of a producer that is at its end, whatever stage they are in."""
        for completion in completions:
            if not completion.done:
                self._complete(completion, UNKNOWN_OFFSET, NO_TIMESTAMP, error)
        self.flush_finished()

    def settle(self, partition: TopicPartition, now: float) -> None:
        """Bring a partition that is out of step back, once nothing of it is in flight."""
        state = self._sequences.partition(partition)
        if state.in_step and not self._policy.one_at_a_time:
            return
        if state.in_flight:
            self._accumulator.admit(partition, Admission.NOTHING)
            return
        again = self._sequences.settle(partition)
        if again:
            delay = 0.0 if partition in self._moved else self._retry_delay(again)
            self._moved.discard(partition)
            self._accumulator.reenqueue(again, now + delay)
        admission = Admission.NOTHING if state.resequence else Admission.RETRIES if state.gap else Admission.ALL
        self._accumulator.admit(partition, admission)

    def _retry_delay(self, again: Sequence[StampedBatch]) -> float:
        if any(_waits_for_an_end(batch.last_error) for batch in again):
            return SOON_MS
        return self._backoff.delay(max(0, *(batch.attempts - 1 for batch in again)))

    def flush_finished(self) -> None:
        """Free the memory of all completed batches and tell the accumulator of them, at once."""
        if self._finished:
            self._accumulator.pool.release(*[completion.memory for completion in self._finished])
            self._accumulator.finish(self._finished)
            self._finished = []

    def _judge(self, batches: Sequence[StampedBatch], response: Response) -> None:
        body: Any = response.body
        answers = {(topic.name, each.index): each for topic in body.responses for each in topic.partition_responses}
        pairs: list[tuple[StampedBatch, Any]] = [(batch, answers.get(batch.completion.partition)) for batch in batches]
        if len(answers) != len(batches) or any(answer is None for _, answer in pairs):
            asked = ", ".join(str(batch.partition) for batch in batches)
            error = NetworkError(
                f"node {response.node_id} answered for other partitions than it was asked for: {asked}"
            )
            for batch in batches:
                self._failed_request(batch, error, response.completed_at)
            return
        for batch, answer in pairs:
            if answer.error_code is ErrorCode.none:
                appended = answer.log_append_time
                time = NO_TIMESTAMP if appended is None else int(appended.timestamp() * 1000)
                self._succeed(batch, answer.base_offset, time)
            else:
                self._note_leader(batch.partition, answer, body)
                self._failed(batch, answer, response.completed_at)

    def _note_leader(self, partition: TopicPartition, answer: Any, body: Any) -> None:
        """A broker that leads no more may say who does (KIP-951, Produce v10): the retry need not wait for metadata."""
        leader = getattr(answer, "current_leader", None)
        if leader is None or leader.leader_id < 0:
            return
        for endpoint in body.node_endpoints:
            if endpoint.node_id == leader.leader_id:
                node = Node(endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack)
                self._metadata.update_leader(partition, node, leader.leader_epoch)
                self._moved.add(partition)

    def _failed_request(self, batch: StampedBatch, error: Exception, now: float) -> None:
        self._metadata.request_update()
        if isinstance(error, UnsupportedVersionError):
            self._fail(batch, error)
        else:
            self._retry(batch, error, False, now)

    def _failed(self, batch: StampedBatch, answer: Any, now: float) -> None:
        code: ErrorCode = answer.error_code
        action, refresh_metadata = verdict(code, self._sequences.transactional)
        if refresh_metadata:
            self._metadata.request_update()
        if action is Action.SUCCEED:
            self._succeed(batch, answer.base_offset, NO_TIMESTAMP)
            return
        error = broker_error(code, str(batch.partition), answer.error_message)
        if code is ErrorCode.unknown_topic_or_partition:
            self._sequences.forgotten(batch)
        if action is Action.RESEQUENCE and self._cannot_resequence(batch):
            action = Action.FAIL
        if action in (Action.RETRY, Action.RESEQUENCE):
            self._retry(batch, error, action is Action.RESEQUENCE, now)
        elif action is Action.SPLIT and batch.count > 1:
            self._split(batch)
        else:
            self._fail(batch, error)

    def _cannot_resequence(self, batch: StampedBatch) -> bool:
        """A transaction has but one epoch; and under a new one the batch would end up behind later ones."""
        if self._sequences.transactional:
            return self._sequences.is_first(batch)
        return self._sequences.is_overtaken(batch)

    def _retry(self, batch: StampedBatch, error: Exception, misses_earlier: bool, now: float) -> None:
        if batch.completion.done:
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

    def _split(self, batch: StampedBatch) -> None:
        if not batch.completion.done:
            _log.info("%s found a batch of %d records too large: it is split", batch.partition, batch.count)
            self._metrics.topic(batch.partition.topic).splits += 1
            self._sequences.split(batch, self._sealer.split(batch))

    def _fail(self, batch: StampedBatch, error: Exception) -> None:
        if not batch.completion.done:
            self.give_up(batch, error)

    def _succeed(self, batch: StampedBatch, base_offset: int, log_append_time: int) -> None:
        if not batch.completion.done:
            self._sequences.succeeded(batch)
            self._complete(batch.completion, base_offset, log_append_time, None)

    def _complete(
        self, completion: BatchCompletion, offset: int, log_append_time: int, error: Exception | None
    ) -> None:
        if error is not None:
            self._metrics.topic(completion.partition.topic).errors += sum(share.rows for share in completion.shares)
        completion.complete(offset, log_append_time, error)
        self._finished.append(completion)


def _waits_for_an_end(error: Exception | None) -> bool:
    """The transaction before is just being ended: a matter of milliseconds."""
    return isinstance(error, BrokerError) and error.code == ErrorCode.concurrent_transactions


def expiry_error(batch: OpenBatch | StampedBatch, now: float) -> KafkaTimeoutError:
    """Kafka's text, and what kept the records from being delivered, where that is known."""
    waited = f"{now - batch.created:.0f} ms has passed since batch creation"
    text = f"Expiring {batch.count} record(s) for {batch.partition}: {waited}"
    if isinstance(batch, StampedBatch) and batch.last_error is not None:
        text += f" (attempt {batch.attempts}: {batch.last_error})"
    return KafkaTimeoutError(text)
