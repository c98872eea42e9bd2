"""What a run is told of its own batch when its commit, or its abort, fails, comes too late or is not answered."""

import shlex
from dataclasses import replace

import pytest

from spark_kafka_sink.common.clock import NEVER, SystemClock
from spark_kafka_sink.errors import KafkaTimeoutError
from spark_kafka_sink.exactly_once import commit
from spark_kafka_sink.exactly_once.committer import Committer, EndTxnOutcome, EndVerdict
from spark_kafka_sink.exactly_once.errors import ADVICE, ExactlyOnceError, Progress
from spark_kafka_sink.exactly_once.plan import plan_write
from spark_kafka_sink.exactly_once.session import session_for
from spark_kafka_sink.exactly_once.values import LedgerStart, RecoveryMode, WriteKind
from spark_kafka_sink.producer.core import ProducerCore
from spark_kafka_sink.spark.write import ProducerCache
from tests.contract.exactly_once.runs import LEDGER, Query, committed, end_transactions
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


FOUR = [[b"a"], [b"b"], [b"c"], [b"d"]]
VISIBLE = {
    Progress.NOT_DECIDED: {},
    Progress.UNKNOWN: {},
    Progress.DECIDED: {b"a": 1, b"b": 1},
    Progress.LOST: {b"a": 1, b"b": 1, b"d": 1},
    Progress.ALL_LOST: {},
}


def commit_in_trouble(monkeypatch, query, reports, progress):
    """A commit that fails when it has come this far."""
    end, now = Committer.end, SystemClock.now

    def undecided(transaction, unanswered=True):
        silence = KafkaTimeoutError("EndTxn has no response")
        return EndTxnOutcome(transaction, EndVerdict.UNDECIDED, error=silence, unanswered=unanswered)

    def nobody_answers(committer, endings, timeout_ms, latest_ms=NEVER):
        return [undecided(each) for each, _ in endings]

    def half_are_ended(committer, endings, timeout_ms, latest_ms=NEVER):
        (third, _), (last, _) = endings[2:]
        return [*end(committer, endings[:2], timeout_ms), undecided(third), undecided(last, unanswered=False)]

    def abort(*tasks):
        endings = [(reports[task].outcome.prepared, False) for task in tasks]
        end_transactions(query.settings.producer, endings, 10_000)

    step, trouble = {
        Progress.NOT_DECIDED: (
            "intent in the log",
            lambda: monkeypatch.setattr(SystemClock, "now", lambda clock: now(clock) + 3_600_000),
        ),
        Progress.UNKNOWN: ("intent in the log", lambda: monkeypatch.setattr(Committer, "end", nobody_answers)),
        Progress.DECIDED: ("intent committed", lambda: monkeypatch.setattr(Committer, "end", half_are_ended)),
        Progress.LOST: ("intent committed", lambda: abort(2)),
        Progress.ALL_LOST: ("intent committed", lambda: abort(0, 1, 2, 3)),
    }[progress]
    with pytest.raises(ExactlyOnceError) as failed:
        query.commit(reports, trouble, step)
    return str(failed.value)


on_one_release = pytest.mark.parametrize("broker", ["4.1"], indirect=True)


@on_one_release
@pytest.mark.parametrize("progress", Progress)
@pytest.mark.parametrize("kind", WriteKind)
def test_an_error_of_commit_ends_with_what_to_do(broker, monkeypatch, kind, progress):
    query = Query(broker.bootstrap_servers, "job", "job", kind)
    reports = query.tasks(query.plan(), 0, FOUR)
    told = commit_in_trouble(monkeypatch, query, reports, progress)
    assert told.endswith(query.settings.advice(kind, progress))
    monkeypatch.undo()
    assert committed(broker) == VISIBLE[progress]


@on_one_release
def test_an_error_after_the_decision_says_which_transactions_are_committed(broker, monkeypatch):
    query = Query(broker.bootstrap_servers, "job", "job", WriteKind.VERSION)
    reports = query.tasks(query.plan(), 0, FOUR)
    told = commit_in_trouble(monkeypatch, query, reports, Progress.DECIDED)
    by_task = "Transactions by task: 0, 1: committed; 2: open or committed, as a request had no response; 3: open. "
    assert by_task in told


def test_every_kind_of_write_is_to_be_run_again_however_far_it_came():
    assert ADVICE.keys() == {(kind, progress) for kind in WriteKind for progress in Progress}
    assert all(text.startswith(("Start the query again", "Run the job again")) for text in ADVICE.values())


@pytest.mark.parametrize("name", ["spark-daily orders", "txn-a;b", "it's", "plain-1"])
def test_incident_a_command_of_an_error_had_names_that_a_shell_takes_apart(name):
    settings = Query("one:1,two:2", name).settings
    command = shlex.split(settings.command("commit"))
    assert command[command.index("--prefix") + 1] == name
    assert command[command.index("--bootstrap-server") + 1] == "one:1,two:2"
