"""``Sender``: the loop that sends batches. One iteration is a function of the time and of network events (Java:
``Sender.runOnce``).

``SenderThread`` runs it with a clock and real sockets, tests run it by hand.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.cause import Cause
from spark_kafka_sink.common.clock import NEVER, ExponentialBackoff
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import ClusterSnapshot, ProducerIdentity
from spark_kafka_sink.errors import KafkaError, UnsupportedVersionError, unexpected_error
from spark_kafka_sink.network.calls import CallEnd, Calls
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.diagnosis import idempotence_error
from spark_kafka_sink.network.error_table import NOT_RETRIED
from spark_kafka_sink.network.messages import Response
from spark_kafka_sink.network.metadata import Metadata
from spark_kafka_sink.network.selector import Event
from spark_kafka_sink.producer import transaction_requests as requests
from spark_kafka_sink.producer.accumulator import DrainMode, RecordAccumulator
from spark_kafka_sink.producer.callbacks import Callbacks
from spark_kafka_sink.producer.intake import Intake
from spark_kafka_sink.producer.produce_api import produce_request
from spark_kafka_sink.producer.produce_response_handler import ProduceResponseHandler, expiry_error
from spark_kafka_sink.producer.producer_batch import ProducerBatch
from spark_kafka_sink.producer.sequences import Sequences
from spark_kafka_sink.producer.transaction_manager import State, TransactionManager
from spark_kafka_sink.producer.trouble_log import TroubleLog

_log = logging.getLogger("spark_kafka_sink.sender")

_IN_FLIGHT: Final = "max.in.flight.requests.per.connection"


@dataclass(eq=False)
class Sender:
    """Drains batches and sends them to the leaders. Owned by the thread that runs the loop."""

    config: ProducerConfig
    random: Random
    accumulator: RecordAccumulator
    metadata: Metadata
    client: NetworkClient
    calls: Calls
    sequences: Sequences
    intake: Intake
    callbacks: Callbacks
    transactions: TransactionManager | None

    def __post_init__(self) -> None:
        self._backoff = ExponentialBackoff(self.config.retry_backoff_ms, self.config.retry_backoff_max_ms, self.random)
        self._trouble = TroubleLog(self.config, self.accumulator, self.metadata, self.client, self.calls, self)
        self.response_handler = ProduceResponseHandler(
            self.config, self.random, self.accumulator, self.sequences, self.metadata, self.transactions, self._trouble
        )
        self._producer_id_answer: ProducerIdentity | CallEnd | None = None  # of InitProducerId, not handled yet
        self._no_producer_id: KafkaError | None = None  # why InitProducerId is sent again
        self._had_producer_id = False
        self._aborted = False

    @property
    def has_work(self) -> bool:
        transactions = self.transactions
        if self.intake.has_work or self.accumulator.has_incomplete:
            return True
        return transactions is not None and transactions.is_ending

    def begin_close(self, now: float) -> float:
        """Abort an open transaction. Returns a deadline for its end (monotonic ms); batches expire by themselves."""
        self.accumulator.closing = True
        if self.transactions is None:
            return NEVER
        self.transactions.close()
        return now + self.config.delivery_timeout_ms

    def run_once(self, now: float, events: Sequence[Event]) -> float:
        """Handle ``events``, send ready batches, return the time of the next call at the latest (monotonic ms)."""
        transactions = self.transactions
        self.client.handle(events, now)
        self.client.expire(now)
        self._expire(now)
        wake_at = self.intake.take(now)
        if transactions is not None:
            self._run_transactions(transactions, now)
        snapshot = self.metadata.snapshot
        ready = self.accumulator.ready(snapshot, now)
        if ready.unknown_leaders:
            self.metadata.request_update()
        # Metadata requests go before Produce requests, which under load fill every connection, so that an update would
        # never find room.
        update_at = self.metadata.maybe_update(now, self.accumulator.topics_in_use)
        wake_at = min(wake_at, ready.next_check, update_at)
        if transactions is None:
            wake_at = min(wake_at, self._request_producer_id(ready.nodes, now))
        if self.calls.busy:
            wake_at = min(wake_at, self.calls.advance(now))
        if not self.sequences.needs_identity and (transactions is None or transactions.may_send):
            wake_at = min(wake_at, self._send_producer_data(snapshot, ready.nodes, now))
        self._end_flushes()
        self.accumulator.pool.serve()  # memory that became free in this iteration
        trouble = self._trouble
        if now >= trouble.next_at:
            trouble.write(now)
        rows_wait = self.accumulator.has_incomplete or self.metadata.waiting_since is not None
        if rows_wait:
            wake_at = min(wake_at, trouble.next_at)
        return min(wake_at, self.client.next_deadline(now), self.accumulator.next_expiry)

    def abort(self, error: KafkaError) -> None:
        """Fail every batch, queued or in flight, and refuse new rows."""
        self.intake.abort(error)
        self.response_handler.abort(self.accumulator.abort(error), error)
        self.metadata.fail_waiters(error)
        self.calls.fail(error)
        if self.transactions is not None:
            self.transactions.end(error)
        self._end_flushes()
        self._aborted = True

    def _end_flushes(self) -> None:
        for flush in self.accumulator.flushed():
            flush.complete(self.callbacks)

    def _run_transactions(self, transactions: TransactionManager, now: float) -> None:
        """Advances the transaction (Java: ``maybeSendAndPollTransactionalRequest``)."""
        transactions.take_losses()
        self._fail_rejected(transactions, now)
        transactions.advance()
        if transactions.state is State.FATAL_ERROR and transactions.error is not None and not self._aborted:
            self.abort(transactions.error)

    def _fail_rejected(self, transactions: TransactionManager, now: float) -> None:
        """Fails queued batches outside a transaction, and in a failed transaction."""
        if not transactions.may_send and self.accumulator.has_incomplete:
            batches = self.accumulator.drain_all()
            if batches:
                error = transactions.rejection()
                self._fail_all([(batch, error) for batch in batches], now)

    def _request_producer_id(self, nodes: Sequence[int], now: float) -> float:
        """Get a producer id once a batch needs it; returns when to call again at the latest."""
        sequences, calls = self.sequences, self.calls
        answer, self._producer_id_answer = self._producer_id_answer, None
        if answer is not None:
            if isinstance(answer, ProducerIdentity):
                self._take_producer_id(answer, now)
            elif answer.error is not None:
                self._handle_no_producer_id(answer.error, answer.code, now)
            return now
        if not sequences.needs_identity or not (nodes or sequences.epochs_exhausted):
            return NEVER
        if not calls.of(self):
            call = requests.producer_id(self._producer_id_completed)
            call.retry_at = now if self._no_producer_id is None else now + self._backoff.delay(0)
            calls.start(call, self)
        return NEVER

    def _producer_id_completed(self, end: CallEnd) -> None:
        """Notes the result. A response that cannot be read raises here, which costs only its connection."""
        granted = end.error is None
        self._producer_id_answer = (
            ProducerIdentity(int(end.body.producer_id), int(end.body.producer_epoch)) if granted else end
        )

    def _take_producer_id(self, identity: ProducerIdentity, now: float) -> None:
        _log.debug("Producer id %d, epoch %d", *identity)
        self.sequences.identity, self._had_producer_id = identity, True
        self._no_producer_id = None
        for partition in self.sequences.to_resolve():
            self.response_handler.resolve_sequences(partition, now)

    def _handle_no_producer_id(self, error: KafkaError, code: ErrorCode, now: float) -> None:
        """Handles a failed request for a producer id. After an error that is not retried, the waiting batches fail, and
        later batches ask again. If a broker refused, the producer ends. Otherwise the request is repeated."""
        # Only if the option was not given and no row was sent with idempotence.
        may_do_without = not (self.config.asks_for_idempotence or self._had_producer_id)
        if isinstance(error, UnsupportedVersionError) and may_do_without:
            self._do_without_idempotence(error)
        elif isinstance(error, NOT_RETRIED):
            if isinstance(error, UnsupportedVersionError):
                error = UnsupportedVersionError(idempotence_error(error))
            self._fail_all([(batch, error) for batch in self.accumulator.drain_all()], now)
        elif code is not ErrorCode.none:
            self.abort(error)
        else:  # no broker refused
            self._no_producer_id = error

    def _do_without_idempotence(self, error: KafkaError) -> None:
        """Turns idempotence off, because the brokers are older. Without it only one request in flight keeps the
        order."""
        self.sequences.idempotent = False
        order = "and their order may change"
        if self.sequences.one_in_flight:
            order = f"but {_IN_FLIGHT}=1 keeps their order"
        elif _IN_FLIGHT not in self.config.asked:
            self.client.send_one_at_a_time()
            self.sequences.one_in_flight = True
            order = f"but one request at a time to each broker ({_IN_FLIGHT}) keeps their order"
        _log.warning(
            "%s, so rows are sent without idempotence, which is on by default. Retries may write rows twice, %s. Set "
            "enable.idempotence=true to make this an error, or enable.idempotence=false to end this warning.",
            error, order,
        )  # fmt: skip

    def _send_producer_data(self, snapshot: ClusterSnapshot, nodes: Sequence[int], now: float) -> float:
        """Fill each ready node's connection with Produce requests (Java: ``sendProducerData``); returns when a full
        connection may have room.
        """
        wake_at = NEVER
        for node_id in nodes:
            node = snapshot.nodes[node_id]
            if (error := self.client.authentication_error(node, now)) is not None:
                while batches := self.accumulator.drain(node_id, now):
                    self._fail_all([(batch, error) for batch in batches], now)
                continue
            self.accumulator.nodes.update(node_id, self.client.ready(node, now), now)
            while self.client.ready(node, now):
                batches = self.accumulator.drain(node_id, now)
                if not batches:
                    break
                if self.transactions is not None:
                    drained, batches = batches, self.transactions.sendable(batches)
                    if len(batches) < len(drained):
                        wake_at = now  # the next iteration adds the partitions of the other batches
                if batches := self._sealed(batches, now):
                    self._send_produce_request(node_id, batches, now)
            else:
                wake_at = min(wake_at, now + self.client.ready_delay(node, now))
        return wake_at

    def _sealed(self, batches: Iterable[ProducerBatch], now: float) -> list[ProducerBatch]:
        """Seals the batches, and returns those that their topics take. Larger batches that were never sent are split
        and return to their queues. After an unexpected exception only its batch fails."""
        accumulator = self.accumulator
        accumulator.topic_limits.forget_old(now)
        fitting = []
        for batch in batches:
            try:
                if batch.payload is None:
                    accumulator.seal(batch)
                if not batch.attempts and accumulator.exceeds_topic_limit(batch):
                    self.response_handler.split_unsent(batch, now)
                else:
                    fitting.append(batch)
            except Exception as error:
                _log.exception("A batch could not be sealed, so its records fail")
                self._fail_all([(batch, unexpected_error(error))], now)
        return fitting

    def _send_produce_request(self, node_id: int, batches: Sequence[ProducerBatch], now: float) -> None:
        """Sends one request. After an unexpected exception only its batches fail."""
        sent = False
        counted: list[ProducerBatch] = []

        def on_complete(response: Response) -> None:
            if sent:  # otherwise the batches fail below, because `client.send` has raised
                self.response_handler.handle(batches, response)

        try:
            for batch in batches:
                waits = self.sequences.send(batch)
                counted.append(batch)
                if waits:
                    self.accumulator.set_drain_mode(batch.partition, DrainMode.MUTED)
            transactions = self.transactions
            transaction = () if transactions is None else (transactions.transactional_id, transactions.protocol)
            request = produce_request(batches, self.config, self.metadata.snapshot, on_complete, *transaction)
            self.client.send(node_id, request, now)
            sent = True
        except Exception as error:
            _log.exception("A Produce request could not be made, so its records fail")
            for batch in counted:
                self.sequences.remove_in_flight(batch)
            self._fail_all([(batch, unexpected_error(error)) for batch in batches], now)
        else:
            metrics = self.accumulator.metrics
            metrics.request_sent(node_id, sum([batch.count for batch in batches]), now)
            for batch in batches:
                metrics.batch_sent(batch, now - batch.created)

    def _expire(self, now: float) -> None:
        """Fail batches older than delivery.timeout.ms, in their order."""
        if overdue := self.accumulator.expire(now):
            expired = self.sequences.in_order(overdue)
            self._fail_all([(batch, expiry_error(batch, now, self.why_waiting(batch, now))) for batch in expired], now)

    def why_waiting(self, what: ProducerBatch | None, now: float) -> Cause | None:
        """The cause why a batch is not acknowledged yet; None if nothing is known. If ``what`` is None: the cause for
        the transaction's oldest request, else for the oldest batch. Any thread may call it."""
        transactions = self.transactions
        call = self.calls.oldest(transactions or self)
        if what is None:
            if transactions is not None and call is not None:
                return self.calls.why_waiting(call, now)
            if (backlog := self.accumulator.backlog()) is None:
                return None
            what = backlog.oldest
        if self.sequences.needs_identity if transactions is None else transactions.is_adding(what.partition):
            if call is not None:
                return self.calls.why_waiting(call, now)
            if self._no_producer_id is not None:
                return Cause.of(self._no_producer_id)
        last = what.last_error
        known = Cause.of(last) if isinstance(last, KafkaError) else None
        return self.metadata.why_waiting(what.partition, now) or known

    def _fail_all(self, batches: Iterable[tuple[ProducerBatch, KafkaError]], now: float) -> None:
        """Fails the batches, each on its own. A batch that raises stays incomplete until delivery.timeout.ms."""
        handler, unexpected_error = self.response_handler, None
        for batch, error in batches:
            try:
                handler.fail(batch, error)
                if batch.header is not None:
                    handler.resolve_sequences(batch.partition, now)
            except Exception as raised:
                unexpected_error = raised
        handler.release_finished()
        if unexpected_error is not None:
            raise unexpected_error
