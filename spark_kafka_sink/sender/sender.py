"""One turn of the sender: a function of the time and of what the network brought (Kafka: ``Sender.runOnce``).

No thread, clock or socket here: ``thread.py`` turns it, tests turn it by hand.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from spark_kafka_sink.accumulator.accumulator import DrainMode, RecordAccumulator
from spark_kafka_sink.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.clock import NEVER
from spark_kafka_sink.errors import KafkaError, unexpected
from spark_kafka_sink.model import ClusterSnapshot
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.codec import Response
from spark_kafka_sink.network.metadata import Metadata, MetadataUpdater
from spark_kafka_sink.network.transport import Event
from spark_kafka_sink.sender.produce_request import ProduceSettings, produce_request
from spark_kafka_sink.sender.produce_response_handler import DeliveryPolicy, ProduceResponseHandler, expiry_error
from spark_kafka_sink.transactions.manager import TransactionManager
from spark_kafka_sink.transactions.producer_id import Phase, ProducerIdRequester
from spark_kafka_sink.transactions.sequences import Sequences
from spark_kafka_sink.transactions.states import State

_log = logging.getLogger("spark_kafka_sink.sender")


class StagedRecords(Protocol):
    """Records that wait above the accumulator until they are due (``producer.staging``)."""

    def publish_due(self, now: float) -> float:
        """Put into the accumulator what has waited long enough; says when the next come due (monotonic ms)."""

    def abort(self, error: KafkaError) -> None:
        """Fail them all."""


@dataclass(frozen=True, slots=True)
class SenderParts:
    """What one producer's sender works with; ``producer.assembly`` puts it together."""

    policy: DeliveryPolicy
    produce: ProduceSettings
    accumulator: RecordAccumulator
    client: NetworkClient
    metadata: Metadata
    metadata_updater: MetadataUpdater
    sequences: Sequences
    producer_id: ProducerIdRequester
    answers: ProduceResponseHandler
    staged: StagedRecords
    transactions: TransactionManager | None = None


class Sender:
    """Takes what is ready to the leaders. Owned by the sender thread."""

    def __init__(self, parts: SenderParts) -> None:
        self._parts = parts
        self._in_flight: dict[ProducerBatch, None] = {}
        self._aborted = False

    @property
    def has_work(self) -> bool:
        transactions = self._parts.transactions
        return self._parts.accumulator.has_incomplete or (transactions is not None and transactions.is_ending)

    @property
    def completed(self) -> int:
        """Batches that were completed so far, well or not."""
        return self._parts.answers.completed

    def begin_close(self, now: float) -> float:
        """The producer closes as soon as there is no work, and a transaction left open is aborted.

        Says when to stop waiting for that (monotonic ms): batches expire by themselves, the end of a transaction not.
        """
        if self._parts.transactions is None:
            return NEVER
        self._parts.transactions.close()
        return now + self._parts.policy.delivery_timeout_ms

    def run_once(self, now: float, events: Sequence[Event]) -> float:
        """Take in ``events``, send what is ready, and say when to come back at the latest (monotonic ms)."""
        parts = self._parts
        parts.client.handle(events, now)
        parts.client.expire(now)
        self._expire(now)
        wake_at = parts.staged.publish_due(now)
        if parts.transactions is not None:
            wake_at = min(wake_at, self._transact(parts.transactions, now))
        snapshot = parts.metadata.snapshot
        readiness = parts.accumulator.ready(snapshot, now)
        if readiness.unknown_leaders:
            parts.metadata.request_update()
        # Before Produce requests fill the connections, or a due update would find no room for as long as there is load.
        wake_at = min(wake_at, readiness.next_check, parts.metadata_updater.maybe_update(parts.client, now))
        if parts.transactions is None:
            wake_at = min(wake_at, self._identify(snapshot, readiness.nodes, now))
        if not parts.sequences.needs_identity and (parts.transactions is None or parts.transactions.may_send):
            wake_at = min(wake_at, self._send(snapshot, readiness.nodes, now))
        wake_at = min(wake_at, parts.client.next_deadline(now))
        return min(wake_at, parts.accumulator.next_expiry)

    def abort(self, error: KafkaError) -> None:
        """Fail every batch that is queued or in flight, and refuse new ones."""
        self._parts.answers.abandon(self._parts.accumulator.abort(error), error)
        self._parts.staged.abort(error)
        self._in_flight.clear()
        self._parts.metadata.fail_waiters(error)
        if self._parts.transactions is not None:
            self._parts.transactions.end(error)
        self._aborted = True

    def close(self) -> None:
        """Close every connection."""
        self._parts.client.close()

    def _transact(self, transactions: TransactionManager, now: float) -> float:
        """Take commands and go on with them (Kafka: ``maybeSendAndPollTransactionalRequest``)."""
        self._reject_queued(transactions, now)
        transactions.take_commands()
        self._reject_queued(transactions, now)
        wake_at = transactions.advance(now)
        if transactions.state is State.FATAL_ERROR and transactions.error is not None and not self._aborted:
            self.abort(transactions.error)
        return wake_at

    def _reject_queued(self, transactions: TransactionManager, now: float) -> None:
        """Outside of a transaction, and in one that has failed, nothing is sent."""
        if not transactions.may_send and self._parts.accumulator.has_incomplete:
            queued = self._parts.accumulator.drain_all()
            if queued:
                error = transactions.rejection()
                self._give_up([(batch, error) for batch in queued], now)

    def _identify(self, snapshot: ClusterSnapshot, nodes: Sequence[int], now: float) -> float:
        """Get a producer id as soon as there is something to send that needs one; says when to try again."""
        sequences, requester = self._parts.sequences, self._parts.producer_id
        if not sequences.needs_identity or not (nodes or sequences.epochs_ran_out):
            return NEVER
        requester.ask(snapshot.nodes.values(), now)
        if requester.error is not None:
            self.abort(requester.error)
        granted = requester.take()
        if granted is not None:
            sequences.identity = granted
            for partition in sequences.out_of_step():
                self._parts.answers.settle(partition, now)
        if requester.phase is Phase.NEEDED:
            return now + min(self._parts.client.ready_delay(node, now) for node in snapshot.nodes.values())
        return requester.retry_at if requester.phase is Phase.BACKING_OFF else NEVER

    def _send(self, snapshot: ClusterSnapshot, nodes: Sequence[int], now: float) -> float:
        """Produce requests to each node, as many as it may have in flight; says when a full one may take another."""
        parts = self._parts
        wake_at = NEVER
        for node_id in nodes:
            node = snapshot.nodes[node_id]
            parts.accumulator.nodes.update(node_id, parts.client.ready(node, now), now)
            while parts.client.ready(node, now):
                batches = parts.accumulator.drain(node_id, now)
                if not batches:
                    break
                if parts.transactions is not None:
                    drained, batches = batches, parts.transactions.set_drain_mode(batches)
                    if len(batches) < len(drained):
                        wake_at = now  # the next turn asks for the partitions of those that were put back
                    if not batches:
                        continue
                self._request(node_id, batches, now)
            else:
                wake_at = min(wake_at, now + parts.client.ready_delay(node, now))
        return wake_at

    def _request(self, node_id: int, batches: Sequence[ProducerBatch], now: float) -> None:
        """One request. If it cannot be made, its batches fail and nothing else does."""
        sent = False

        def answered(response: Response) -> None:
            if sent:
                for batch in batches:
                    self._in_flight.pop(batch, None)
                self._parts.answers.answered(batches, response)

        try:
            for batch in batches:
                self._stamp(batch)
            self._count(node_id, batches, now)
            transactions = self._parts.transactions
            if transactions is None:
                request = produce_request(batches, self._parts.produce, answered)
            else:
                versions, subject = transactions.produce_versions, transactions.transactional_id
                request = produce_request(batches, self._parts.produce, answered, versions, subject)
            self._parts.client.send(node_id, request, now)
            sent = True
        except Exception as error:
            _log.exception("A Produce request could not be made: its records fail")
            self._fail_unsent(batches, unexpected(error), now)

    def _fail_unsent(self, batches: Sequence[ProducerBatch], error: KafkaError, now: float) -> None:
        for batch in batches:
            if batch in self._in_flight:
                del self._in_flight[batch]
                self._parts.sequences.answered(batch)
        self._give_up([(batch, error) for batch in batches], now)

    def _stamp(self, batch: ProducerBatch) -> None:
        parts = self._parts
        if batch.payload is None:
            parts.accumulator.seal(batch)
        alone = parts.sequences.send(batch)
        self._in_flight[batch] = None
        if alone or parts.policy.one_at_a_time:
            parts.accumulator.set_drain_mode(batch.partition, DrainMode.MUTED)

    def _count(self, node_id: int, batches: Sequence[ProducerBatch], now: float) -> None:
        metrics = self._parts.accumulator.metrics
        metrics.request_sent(node_id, sum([batch.count for batch in batches]), now)
        for batch in batches:
            metrics.batch_sent(batch.partition.topic, batch.count, batch.size, batch.plain_size, now - batch.created)

    def _expire(self, now: float) -> None:
        """Give up what is older than delivery.timeout.ms: what is in flight first, in its order."""
        overdue = dict.fromkeys(self._parts.accumulator.expire(now))
        if overdue:
            in_flight = [batch for batch in self._in_flight if batch in overdue]
            for batch in in_flight:
                del self._in_flight[batch]
            expired = dict.fromkeys(in_flight) | overdue
            self._give_up([(batch, expiry_error(batch, now)) for batch in expired], now)

    def _give_up(self, batches: Iterable[tuple[ProducerBatch, KafkaError]], now: float) -> None:
        """A batch that cannot be given up keeps no other one from it; delivery.timeout.ms reaches it again."""
        answers, stray = self._parts.answers, None
        for batch, error in batches:
            try:
                answers.give_up(batch, error)
                if batch.header is not None:
                    answers.settle(batch.partition, now)
            except Exception as raised:
                stray = raised
        answers.flush_finished()
        if stray is not None:
            raise stray
