"""What a run is told of its own batch when its commit, or its abort, comes too late or is not answered."""

from dataclasses import replace

import pytest

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.errors import KafkaTimeoutError
from spark_kafka_sink.exactly_once import commit
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.exactly_once.plan import plan_write
from spark_kafka_sink.exactly_once.session import session_for
from spark_kafka_sink.exactly_once.values import LedgerStart, RecoveryMode, WriteKind
from spark_kafka_sink.producer.core import ProducerCore
from spark_kafka_sink.spark.write import ProducerCache
from tests.contract.exactly_once.runs import LEDGER, Query, committed
from tests.contract.exactly_once.test_protocol import EACH_ONCE, ROWS


@pytest.mark.parametrize("kind", [WriteKind.MICRO_BATCH, WriteKind.VERSION])
def test_an_abort_after_its_own_runs_commit_says_that_the_batch_is_committed(broker, kind):
    """The process of the commit died when all was done, before it told Spark. v2: its fence has moved on."""
    query = Query(broker.bootstrap_servers, "job", "job", kind)
    plan = query.plan(0)
    reports = query.tasks(plan, 0, ROWS)
    query.commit(reports)
    outcome = query.abort(reports, None if kind is WriteKind.MICRO_BATCH else plan)
    assert outcome.skipped == ""
    assert "was committed before" in outcome.decided[0]
    assert committed(broker) == EACH_ONCE


def test_an_abort_after_a_successors_commit_keeps_no_receipts_of_its_own(broker, query):
    ours = query.tasks(query.plan(), 0, ROWS)
    query.run(0, ROWS)
    outcome = query.abort(ours)
    assert outcome.decided == ("batch 0 of q1 was committed by another run",)


@pytest.mark.parametrize("process", ["planning that goes on", "abort"])
def test_incident_a_deleted_ledger_was_told_as_a_partition_without_leader(broker, query, process):
    """After the whole of max.block.ms, which is two minutes here."""
    reports = query.tasks(query.plan(), 0, ROWS)
    broker.delete_topic(LEDGER)
    with pytest.raises(ExactlyOnceError, match=f"ledgerTopic {LEDGER} does not exist any more. Start the write aga"):
        plan_write(query.settings) if process != "abort" else query.abort(reports)
    with pytest.raises(ExactlyOnceError, match="ledgerStart=trust-checkpoint:1"):
        query.run(1, ROWS)
    replace(query, ledger_start=LedgerStart(RecoveryMode.CHECKPOINT, 1)).run(1, ROWS)
    assert committed(broker) == EACH_ONCE


def test_incident_a_ledger_that_a_late_task_let_the_brokers_create_was_told_as_one_without_leader(broker, query):
    """They gave it one partition. After the whole of max.block.ms, which is two minutes here."""
    reports = query.tasks(query.plan(), 0, ROWS)
    broker.delete_topic(LEDGER)
    broker.create_topic(LEDGER, partitions=1)
    with pytest.raises(ExactlyOnceError, match=f"ledgerTopic {LEDGER} has 1 partition, the ledger needs 10: add some"):
        query.abort(reports)


@pytest.mark.parametrize("kept", [False, True])
def test_incident_a_task_let_the_brokers_create_a_deleted_ledger_with_one_partition(broker, query, kept, monkeypatch):
    """And waited for its partition for the whole of max.block.ms, which is two minutes here. A kept producer has the
    ledger in its metadata, and updates them."""
    monkeypatch.setattr("spark_kafka_sink.producer.core._RECENT_MS", 0)
    cache = ProducerCache(ProducerCore.open)
    query = replace(query, lease=cache.leased) if kept else query
    query.run(0, ROWS)
    plan = query.plan(1)
    broker.delete_topic(LEDGER)
    with pytest.raises(ExactlyOnceError, match=f"ledgerTopic {LEDGER} does not exist any more. Start the write aga"):
        query.task(plan, 1, 0, [b"x"])
    cache.close()
    assert LEDGER not in broker.topics


def test_rows_that_name_the_ledger_fail_their_task(broker, query):
    with pytest.raises(ExactlyOnceError, match=f"Rows name the topic {LEDGER}, which is the ledgerTopic"):
        replace(query, topic=LEDGER).run(0, ROWS)
    query.run(0, ROWS)
    assert committed(broker) == EACH_ONCE


def test_a_commit_that_cannot_ask_for_its_ledger_says_that_nothing_is_committed(broker, query, monkeypatch):
    def silent(session, written, deadline):
        raise KafkaTimeoutError("Metadata has no answer")

    reports = query.tasks(query.plan(), 0, ROWS)
    monkeypatch.setattr(commit, "topic_changes", silent)
    with pytest.raises(ExactlyOnceError, match=r"micro-batch 0 of query q1 .* is not committed: .*no answer"):
        query.commit(reports)
    assert committed(broker) == {}


class Suspended(SystemClock):
    """The machine was suspended for ``slept_ms``: the wall clock has gone on, the monotonic one has not."""

    slept_ms = 0

    def epoch_ms(self):
        return super().epoch_ms() + self.slept_ms


@pytest.fixture
def suspended(monkeypatch):
    monkeypatch.setattr(Suspended, "slept_ms", 0)
    monkeypatch.setattr("spark_kafka_sink.exactly_once.session.SystemClock", Suspended)
    return Suspended


def sleep(suspended, hours=1):
    suspended.slept_ms = hours * 3_600_000


def test_incident_a_machine_that_was_suspended_in_its_commit_decided_when_its_transactions_had_timed_out(
    broker, query, suspended
):
    reports = query.tasks(query.plan(), 0, ROWS)
    with pytest.raises(ExactlyOnceError, match=r"is not committed: the time was up .*Start the query again"):
        query.commit(reports, lambda: sleep(suspended), at="intent in the log")
    assert query.abort(reports).aborted == 2
    assert committed(broker) == {}


def test_after_a_suspension_no_end_of_the_intent_is_sent_again(broker, query, suspended):
    reports = query.tasks(query.plan(), 0, ROWS)
    asked = []

    def refused(request):
        asked.append(request)
        sleep(suspended)
        return True

    broker.faults.answer("EndTxn", "COORDINATOR_LOAD_IN_PROGRESS", only=refused, times=1)
    with pytest.raises(ExactlyOnceError, match="may or may not be decided"):
        query.commit(reports)
    assert len(asked) == 1
    assert query.abort(reports).aborted == 2


def test_a_wall_clock_that_is_set_back_gives_a_decision_no_more_time(broker, query, monkeypatch, suspended):
    late = []
    monkeypatch.setattr(suspended, "now", lambda clock: SystemClock.now(clock) + sum(late))

    def set_back():
        late.append(3_600_000)
        sleep(suspended, hours=-24)

    reports = query.tasks(query.plan(), 0, ROWS)
    with pytest.raises(ExactlyOnceError, match="is not committed: the time was up"):
        query.commit(reports, set_back, at="intent in the log")
    assert committed(broker) == {}


def test_a_kept_view_of_the_ledger_is_read_anew_after_a_suspension(broker, query, suspended):
    query.run(0, ROWS)
    with session_for(query.settings) as session:
        ledger = session.ledger
        ledger.read(session.deadline(10_000))
        view = ledger.view
        assert ledger.read(session.deadline(10_000)) is view
        sleep(suspended)
        assert ledger.read(session.deadline(10_000)) is not view
