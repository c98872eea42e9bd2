"""The trial of exactly-once on the brokers, with a throw-away ledger: one batch is planned, written and committed, and
another one aborted, by the code that a write uses.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Final
from uuid import uuid4

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.errors import BrokerError, KafkaError
from spark_kafka_sink.exactly_once.abort import abort_batch
from spark_kafka_sink.exactly_once.commit import commit_batch
from spark_kafka_sink.exactly_once.committer import Cluster
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.exactly_once.ledger import PartitionLog
from spark_kafka_sink.exactly_once.ledger_topic import (
    PARTITIONS,
    LedgerTopic,
    create_ledger,
    describe_ledger,
    ledger_partitions,
    wanted_ledger,
)
from spark_kafka_sink.exactly_once.operator_commands import abort_undecided
from spark_kafka_sink.exactly_once.plan import TRANSACTION_APIS, plan_write
from spark_kafka_sink.exactly_once.session import CommitSettings, close_sessions, session_for
from spark_kafka_sink.exactly_once.sweep import CannotListError, list_matching
from spark_kafka_sink.exactly_once.task import TaskTransaction
from spark_kafka_sink.exactly_once.values import TaskAttempt, TaskReport, WriteId, WriteKind, WritePlan, driver_id
from spark_kafka_sink.network.api_versions import camel_case
from spark_kafka_sink.network.diagnosis import missing_apis
from spark_kafka_sink.network.error_table import FORBIDDEN
from spark_kafka_sink.network.messages import API_KEYS
from spark_kafka_sink.network.topics import why_not_created
from spark_kafka_sink.producer.transaction_requests import END_TXN_V2, PreparedTransaction
from spark_kafka_sink.tools.connection_check import CheckRequest
from spark_kafka_sink.tools.findings import Finding, Outcome
from spark_kafka_sink.tools.trial_topics import TrialTopics, throw_away_name

_log = logging.getLogger("spark_kafka_sink.check")

DEFAULT_PREFIX: Final = "spark-kafka-sink"
_SUBJECT: Final = "exactly-once"
_ID_RIGHTS: Final = "WRITE on the transactional id"
_SWEEP: Final = "sweep"


def try_exactly_once(request: CheckRequest, clock: Clock) -> Generator[Finding, None, None]:
    """The findings, as they come; the first failure ends them. Each step takes at most max.block.ms.

    The names are those of ``request`` with a random suffix, so prefixed ACLs for the real names also cover them.
    Everything created is removed, even after an error, or when the iterator is closed.
    """
    trial = _Trial(request, clock, f"check-{uuid4().hex[:8]}")
    try:
        yield from trial.findings()
    finally:
        trial.close()


class _Trial:
    def __init__(self, request: CheckRequest, clock: Clock, suffix: str) -> None:
        self._ledger = request.ledger_topic
        self._topic = throw_away_name(self._ledger, suffix)
        self._name = f"{request.transactional_id_prefix or DEFAULT_PREFIX}-{suffix}"
        self._timeout_ms = request.config.max_block_ms
        producer = replace(request.config, acks=-1, enable_idempotence=True, delivery_timeout_ms=self._timeout_ms)
        self._commit_settings = CommitSettings(producer, self._name, self._topic)
        self._clock = clock
        self._cluster = Cluster(request.config, clock)
        self._topics = TrialTopics(self._cluster, request.config)
        self._step = ""
        self._began = clock.now()
        self._may_be_open = False

    def findings(self) -> Iterator[Finding]:
        try:
            yield from self._steps()
        except KafkaError as error:
            yield self._finding(Outcome.FAILED, str(error))
        self._abort_open()
        self._begin("delete")
        for ended in self._topics.delete():
            yield self._finding(*ended)

    def close(self) -> None:
        """Removes the rest, and closes the connections. Only warns if something cannot be removed."""
        try:
            self._abort_open()
            for outcome, text in self._topics.delete():
                if outcome is not Outcome.OK:
                    _log.warning("%s", text)
        finally:
            close_sessions()
            self._cluster.close()

    def _steps(self) -> Iterator[Finding]:
        yield from self._versions()
        wanted = yield from self._create()
        yield self._settings(wanted)
        _, report = yield from self._write(0)
        yield from self._commit(report)
        plan, report = yield from self._write(1)
        yield from self._abort(plan, report)

    def _versions(self) -> Iterator[Finding]:
        self._begin("versions")
        self._cluster.await_brokers(self._deadline())
        versions = self._cluster.any_api_versions()
        if versions is None:
            raise KafkaError("the connection to the broker was lost")
        if missing := list(map(str, missing_apis(versions, TRANSACTION_APIS))):
            raise KafkaError(
                f"APIs of transactions are missing: {'; '.join(missing)}. Exactly-once is not possible here"
            )
        texts = [f"{camel_case(api)} v{versions.pick(API_KEYS[api], *ours)}" for api, ours in TRANSACTION_APIS]
        yield self._finding(Outcome.OK, ", ".join(texts))

    # The ledger

    def _create(self) -> Generator[Finding, None, LedgerTopic]:
        self._begin("create")
        wanted = wanted_ledger(self._cluster, self._deadline())
        self._topics.also_delete(self._topic)
        try:
            refused = create_ledger(self._cluster, self._topic, wanted, self._deadline())
        except ExactlyOnceError as error:
            if not isinstance(refusal := error.__cause__, BrokerError) or refusal.code not in FORBIDDEN:
                raise  # the topic may have been created in spite of the error
            self._topics.forget(self._topic)
            raise ExactlyOnceError(
                f"{self._topic}, which this check would throw away, cannot be created: {why_not_created(refusal)}. "
                f"Without that right, have {self._ledger} created: "
                f"`{wanted.create_command(self._cluster, self._ledger)}`, and check it with "
                "`spark-kafka-sink check --transactional-id-prefix`, without --exactly-once."
            ) from refusal
        text = f"CreateTopics of {self._topic} (CREATE on the topic or the cluster), {2 * PARTITIONS} partitions, "
        text += (
            f"without some settings, because the brokers refuse more ({refused})" if refused else "with all settings"
        )
        yield self._finding(Outcome.OK, text)
        return wanted

    def _settings(self, wanted: LedgerTopic) -> Finding:
        self._begin("settings")
        found = describe_ledger(self._cluster, self._topic, wanted, self._deadline())
        told = ", ".join(f"{name}={found.settings[name]}" for name in wanted.settings if name in found.settings)
        weaknesses = wanted.weaknesses(found) or "As strong as wanted."
        return self._finding(Outcome.OK, f"DescribeConfigs (DESCRIBE_CONFIGS on the topic): {told}. {weaknesses}")

    # Batches

    def _write(self, number: int) -> Generator[Finding, None, tuple[WritePlan, TaskReport]]:
        """Plans a batch and prepares its one task, which writes no row but its marker."""
        self._begin("plan")
        self._may_be_open = True
        write_id = WriteId(self._name, number, WriteKind.VERSION)
        plan = plan_write(self._commit_settings, write_id)
        text = f"InitProducerId of {driver_id(self._name)} ({_ID_RIGHTS})"
        yield self._finding(Outcome.OK, f"{text}; Produce, ListOffsets, Fetch (WRITE and READ on the topic)")
        self._begin("write")
        with TaskTransaction(self._commit_settings.producer, plan, TaskAttempt(write_id, 0), self._clock) as write:
            write.core()  # a task that has a producer writes a marker
            report = write.prepare()
        version = 2 if _prepared(report).end_txn_version >= END_TXN_V2 else 1
        produce = "Produce" if version > 1 else "AddPartitionsToTxn, Produce"
        text = f"InitProducerId of {_prepared(report).transactional_id}, {produce} in a transaction"
        yield self._finding(Outcome.OK, f"{text} ({_ID_RIGHTS}, WRITE on the topic), transactions version {version}")
        return plan, report

    def _commit(self, report: TaskReport) -> Iterator[Finding]:
        self._begin("commit")
        if failure := commit_batch(self._commit_settings, [report]).cleanup_failure:
            raise KafkaError(failure)
        self._check_visible(report, "committed")
        yield self._finding(Outcome.OK, f"EndTxn ({_ID_RIGHTS}); read_committed readers see the record")

    def _abort(self, plan: WritePlan, report: TaskReport) -> Iterator[Finding]:
        self._begin(_SWEEP)
        yield self._finding(Outcome.OK, self._sweep_text(_prepared(report)))
        self._begin("abort")
        if (outcome := abort_batch(self._commit_settings, [report], plan)).aborted != 1:
            raise KafkaError(f"EndTxn did not abort the transaction: {outcome}")
        self._check_visible(report, "aborted")
        self._may_be_open = False
        yield self._finding(Outcome.OK, f"EndTxn ({_ID_RIGHTS}); read_committed readers do not see the record")

    def _check_visible(self, report: TaskReport, ended: str) -> None:
        """Raises ``KafkaError`` unless a read_committed reader sees the first batch's marker and no other one."""
        partition = ledger_partitions(self._name, self._topic).marker_partition
        log = PartitionLog(self._cluster, TopicPartition(self._topic, partition))
        batches = log.batches_before((report.outcome.marker or 0) + 1, self._deadline())
        if (count := sum(1 for _ in batches)) != 1:
            raise KafkaError(f"after EndTxn has {ended}, a read_committed reader sees {count} batches instead of 1")

    def _sweep_text(self, prepared: PreparedTransaction) -> str:
        """The text on how transactions of dead runs would be found, made while a transaction is open."""
        name = prepared.transactional_id
        try:
            found = list_matching(self._cluster, name.__eq__, self._deadline())
            if any(transaction.key == prepared.key for transaction in found):
                return "ListTransactions and DescribeTransactions find the open transaction (DESCRIBE on its id)"
            reason = "ListTransactions does not show the open transaction"
        except CannotListError as error:
            reason = str(error)
        return (
            f"{reason}: transactions of dead runs are ended by the brokers after kafka.transaction.timeout.ms. "
            "Until then read_committed readers wait; no row is lost or written twice"
        )

    # Removal

    def _abort_open(self) -> None:
        """Ends transactions that are still open, before the brokers would."""
        if not self._may_be_open:
            return
        self._may_be_open = False
        with suppress(KafkaError), session_for(self._commit_settings) as session:
            abort_undecided(session, True, self._deadline())

    def _begin(self, step: str) -> None:
        self._step, self._began = step, self._clock.now()

    def _deadline(self) -> float:
        return self._clock.now() + self._timeout_ms

    def _finding(self, outcome: Outcome, text: str) -> Finding:
        return Finding(_SUBJECT, self._step, outcome, text, self._clock.now() - self._began)


def _prepared(report: TaskReport) -> PreparedTransaction:
    assert report.outcome.prepared is not None
    return report.outcome.prepared
