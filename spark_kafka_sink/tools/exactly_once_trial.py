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
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError, PlanningError
from spark_kafka_sink.exactly_once.ledger import PartitionLog
from spark_kafka_sink.exactly_once.ledger_topic import describe_ledger, ledger_partitions, wanted_ledger
from spark_kafka_sink.exactly_once.operator_commands import abort_undecided
from spark_kafka_sink.exactly_once.plan import plan_write
from spark_kafka_sink.exactly_once.session import CommitSettings, close_sessions, session_for
from spark_kafka_sink.exactly_once.task import TaskTransaction
from spark_kafka_sink.exactly_once.values import TaskAttempt, TaskReport, WriteId, WriteKind, WritePlan, driver_id
from spark_kafka_sink.network.error_table import FORBIDDEN
from spark_kafka_sink.producer.transaction_requests import END_TXN_V2, PreparedTransaction
from spark_kafka_sink.tools.connection_check import CheckRequest
from spark_kafka_sink.tools.findings import Finding, Outcome
from spark_kafka_sink.tools.trial_topics import TrialTopics, throw_away_name

_log = logging.getLogger("spark_kafka_sink.check")

DEFAULT_PREFIX: Final = "spark-kafka-sink"
_SUBJECT: Final = "exactly-once"
_ID_RIGHTS: Final = "WRITE on the transactional id"


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
        _, report = yield from self._write(0)
        yield from self._commit(report)
        plan, report = yield from self._write(1)
        yield from self._abort(plan, report)

    def _plan(self, write_id: WriteId) -> WritePlan:
        """Plans a batch. The first planning creates the ledger."""
        self._topics.also_delete(self._topic)
        try:
            return plan_write(self._commit_settings, write_id)
        except PlanningError as error:
            refusal = error.__cause__ and error.__cause__.__cause__
            if not (isinstance(refusal, BrokerError) and refusal.code in FORBIDDEN):
                raise  # the topic may have been created in spite of the error
            self._topics.forget(self._topic)
            raise ExactlyOnceError(
                f"{str(error.__cause__).replace(self._topic, self._ledger)} Then check it with `spark-kafka-sink check "
                "--transactional-id-prefix`, without --exactly-once."
            ) from refusal

    def _weaknesses(self) -> str:
        wanted = wanted_ledger(self._cluster, self._deadline())
        return wanted.weaknesses(describe_ledger(self._cluster, self._topic, wanted, self._deadline()))

    # Batches

    def _write(self, number: int) -> Generator[Finding, None, tuple[WritePlan, TaskReport]]:
        """Plans a batch and prepares its one task, which writes no row but its marker."""
        self._begin("plan")
        self._may_be_open = True
        write_id = WriteId(self._name, number, WriteKind.VERSION)
        plan = self._plan(write_id)
        text = f"InitProducerId of {driver_id(self._name)} ({_ID_RIGHTS}); "
        if number == 0:
            text += f"CreateTopics of {self._topic} (CREATE on the topic or the cluster), DescribeConfigs "
            text += f"(DESCRIBE_CONFIGS on the topic). {self._weaknesses() or 'It is as strong as wanted.'} "
        yield self._finding(Outcome.OK, f"{text}Produce, ListOffsets, Fetch (WRITE and READ on the topic)")
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
