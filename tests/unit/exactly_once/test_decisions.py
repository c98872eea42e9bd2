"""What each process decides, as tables of cases without a broker."""

from dataclasses import replace

import pytest

from spark_kafka_sink.exactly_once import values as v
from spark_kafka_sink.exactly_once.decisions import (
    Comparison,
    check_ledger_of_foreach_batch,
    commit_order,
    compare,
    done,
    prove,
    replayed_schemas,
    task_action,
)
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError, LostRowsError, ReplayMismatchError
from spark_kafka_sink.producer.transaction_requests import PreparedTransaction, TransactionalIdentity

DRIVER = v.DriverIdentity(TransactionalIdentity("app-driver", 9, 3, 5))
RUN = v.WriteRun("app", v.LedgerPartitions("ledger", 0, 10), DRIVER, has_entry=True)
NOW = 1_000_000_000
ROWS = v.RowChecksum(2, 7)
TIMEOUT, MARGIN = 60_000, 10_000


def write_id(number, kind=v.WriteKind.MICRO_BATCH):
    return v.WriteId("q", number, kind)


def prepared(task, epoch=0):
    return PreparedTransaction(v.task_id("app", task), task, epoch, 5)


def entry(number):
    return v.Entry("q", number, v.EntryState.DONE, (v.TaskOutcome(ROWS), v.TaskOutcome(v.RowChecksum(1, 5))), NOW)


def plan(*entries, lost=(), ledger_start=v.STRICT, query="q"):
    lost_tasks = {query: frozenset(lost)} if lost else {}
    return v.WritePlan(RUN, {each.query: each for each in entries}, lost_tasks, None, ledger_start)


def report(task, action=v.TaskAction.WRITE, rows=ROWS, has_transaction=True, **changes):
    share = v.TaskOutcome(rows, prepared(task) if has_transaction else None)
    return replace(v.TaskReport(RUN, write_id(4), action, share, began_at=NOW), **changes)


def order(*reports, now=NOW):
    return commit_order(reports, TIMEOUT, now)


@pytest.mark.parametrize(
    ("number", "known", "lost", "expected"),
    [
        (0, None, (), Comparison.FIRST),
        (1, None, (), Comparison.UNKNOWN),
        (3, 4, (), Comparison.OLDER),
        (3, 4, (0,), Comparison.OLDER),
        (4, 4, (), Comparison.SAME),
        (4, 4, (0,), Comparison.SAME_PARTLY_LOST),
        (4, 4, (1,), Comparison.SAME_PARTLY_LOST),
        (4, 4, (0, 1), Comparison.SAME_LOST),
        (5, 4, (), Comparison.NEXT),
        (6, 4, (), Comparison.BEYOND),
        (5, 4, (0,), Comparison.AFTER_LOSS),
        (9, 4, (0,), Comparison.AFTER_LOSS),
        (9, 4, (0, 1), Comparison.AFTER_LOSS),
    ],
)
def test_a_batch_stands_to_the_ledger(number, known, lost, expected):
    assert compare(write_id(number), None if known is None else entry(known), frozenset(lost)) is expected


def test_foreach_batch_without_an_entry_is_refused_after_its_first_micro_batch():
    eighth = write_id(8, v.WriteKind.VERSION)
    told = r"txnVersion 8 .* has no entry .*micro-batch 3 .*isEmpty.*trust-checkpoint:8"
    with pytest.raises(ExactlyOnceError, match=told):
        check_ledger_of_foreach_batch(plan(), eighth, 3)
    check_ledger_of_foreach_batch(plan(), eighth, 0)
    check_ledger_of_foreach_batch(plan(entry(7)), eighth, 3)
    check_ledger_of_foreach_batch(plan(ledger_start=v.LedgerStart(v.RecoveryMode.CHECKPOINT, 8)), eighth, 3)
    with pytest.raises(ExactlyOnceError, match="has no entry"):
        check_ledger_of_foreach_batch(plan(ledger_start=v.LedgerStart(v.RecoveryMode.CHECKPOINT, 7)), eighth, 3)


@pytest.mark.parametrize(
    ("number", "kind", "action"),
    [
        (4, v.WriteKind.MICRO_BATCH, v.TaskAction.SKIP),
        (5, v.WriteKind.MICRO_BATCH, v.TaskAction.WRITE),
        (4, v.WriteKind.VERSION, v.TaskAction.SKIP),
        (50, v.WriteKind.VERSION, v.TaskAction.WRITE),
    ],
)
def test_tasks_write_what_is_new_and_skip_what_is_committed(number, kind, action):
    assert task_action(plan(entry(4)), write_id(number, kind), 0) is action


@pytest.mark.parametrize(
    ("ledger", "number", "kind", "text"),
    [
        (
            [entry(4)],
            3,
            v.WriteKind.MICRO_BATCH,
            r"micro-batch 3 of query q \(name app, ledgerTopic ledger\) is older than the last batch .*: batch 4",
        ),
        ([], 3, v.WriteKind.MICRO_BATCH, r"no entry.*ledgerStart=trust-checkpoint:3\."),
        ([entry(4)], 6, v.WriteKind.MICRO_BATCH, r"batch 4 of q was the last.*ledgerStart=trust-checkpoint:6\."),
        ([entry(4)], 3, v.WriteKind.VERSION, "txnVersion 3 of txnAppId q .*smaller"),
    ],
)
def test_tasks_refuse_what_might_be_twice(ledger, number, kind, text):
    with pytest.raises(ExactlyOnceError, match=text):
        task_action(plan(*ledger), write_id(number, kind), 0)


def test_a_trusted_checkpoint_needs_no_entry_but_goes_behind_none():
    ledger_start = v.LedgerStart(v.RecoveryMode.CHECKPOINT, 3)
    assert task_action(plan(ledger_start=ledger_start), write_id(3), 0) is v.TaskAction.WRITE
    assert task_action(plan(entry(1), ledger_start=ledger_start), write_id(3), 0) is v.TaskAction.WRITE
    with pytest.raises(ExactlyOnceError, match="is older than the last batch"):
        task_action(plan(entry(4), ledger_start=ledger_start), write_id(3), 0)


@pytest.mark.parametrize(
    "ledger_start",
    [
        v.LedgerStart(v.RecoveryMode.CHECKPOINT, 2),
        v.LedgerStart(v.RecoveryMode.CHECKPOINT, 4),
        v.LedgerStart(v.RecoveryMode.LEDGER, 3),
    ],
)
def test_a_trust_in_another_batch_does_not_help(ledger_start):
    for entries in ((), (entry(1),)):
        with pytest.raises(ExactlyOnceError, match="trust-checkpoint:3"):
            task_action(plan(*entries, ledger_start=ledger_start), write_id(3), 0)


def test_a_trusted_checkpoint_brings_no_lost_rows_back():
    with pytest.raises(LostRowsError):
        task_action(plan(entry(4), lost={0}, ledger_start=v.LedgerStart(v.RecoveryMode.CHECKPOINT, 6)), write_id(6), 0)


def test_a_torn_batch_is_repaired_by_its_own_replay_alone():
    torn = plan(entry(4), lost={1})
    assert [task_action(torn, write_id(4), task) for task in (0, 1)] == [v.TaskAction.VERIFY, v.TaskAction.REWRITE]
    with pytest.raises(LostRowsError, match=r"rows of batch 4 of q \(tasks 1\) are gone"):
        task_action(torn, write_id(5), 0)
    handed_over = replace(torn, ledger_start=v.LedgerStart(v.RecoveryMode.HAND_OVER, replaced="q"))
    with pytest.raises(LostRowsError, match="batch 4 of q"):
        task_action(handed_over, v.WriteId("other", 0, v.WriteKind.MICRO_BATCH), 0)


def test_incident_a_job_with_lost_rows_was_told_to_restore_a_checkpoint():
    """A job with txnAppId has none: the version runs again. Its stream neighbour does restore one."""
    with pytest.raises(LostRowsError, match=r"gone from Kafka.*Run it again with txnVersion 4, then") as told:
        task_action(plan(entry(4), lost={1}), write_id(5, v.WriteKind.VERSION), 0)
    assert "checkpoint" not in str(told.value)
    with pytest.raises(LostRowsError, match="Restore the checkpoint as it was at that batch"):
        task_action(plan(entry(4), lost={1}), write_id(5), 0)


def test_a_repair_is_proved_task_by_task():
    torn = plan(entry(4), lost={1})
    prove(torn, write_id(4), 0, v.RowChecksum(2, 7))
    with pytest.raises(ReplayMismatchError, match="task 0 had 2 rows"):
        prove(torn, write_id(4), 0, v.RowChecksum(2, 8))
    with pytest.raises(ReplayMismatchError, match="it had 2 tasks, but now there is a task 2"):
        prove(torn, write_id(4), 2, v.RowChecksum())


def test_the_intent_names_every_prepared_transaction():
    reports = [report(0), report(1, rows=v.RowChecksum(), has_transaction=False), report(2)]
    intent = order(*reports).entry
    assert intent == v.Entry("q", 4, v.EntryState.INTENT, tuple(each.outcome for each in reports), NOW)
    assert [share.prepared for share in done(intent).tasks] == [None] * 3
    assert done(intent).total == intent.total == v.RowChecksum(4, 14)


def test_a_batch_without_rows_is_done_at_once():
    assert order(report(0, rows=v.RowChecksum(), has_transaction=False)).entry.state is v.EntryState.DONE


def test_the_oldest_transaction_must_have_time_left():
    old = report(1, began_at=NOW - TIMEOUT + MARGIN)
    assert order(report(0), old).decide_by == NOW
    with pytest.raises(ExactlyOnceError, match=r"oldest transaction is 50 s old.*timeout\.ms=60000"):
        order(report(0), old, now=NOW + 1)


def test_tasks_of_two_plannings_are_not_committed_together():
    other = replace(RUN, driver=replace(DRIVER, identity=replace(DRIVER.identity, epoch=4)))
    with pytest.raises(ExactlyOnceError, match="planned by different drivers"):
        order(report(0), report(1, run=other))


def test_a_repair_needs_as_many_tasks_as_there_were():
    repair = [
        report(0, v.TaskAction.VERIFY, has_transaction=False, tasks_before=2),
        report(1, v.TaskAction.REWRITE, tasks_before=2),
    ]
    assert order(*repair).entry.state is v.EntryState.INTENT
    with pytest.raises(ReplayMismatchError, match="it had 2 tasks, but its replay has 1"):
        order(repair[0])


def skipped(*rows):
    total = v.RowChecksum(3, 12)
    return [report(i, v.TaskAction.SKIP, each, has_transaction=False, decided=total) for i, each in enumerate(rows)]


def test_a_replay_is_one_by_its_rows_however_they_are_cut():
    assert order(*skipped(v.RowChecksum(2, 7), v.RowChecksum(1, 5))).entry is None
    assert order(*skipped(v.RowChecksum(3, 12))).entry is None
    with pytest.raises(ReplayMismatchError, match="committed with 3 rows .* now to be written with 4"):
        order(*skipped(v.RowChecksum(4, 12)))
    with pytest.raises(ReplayMismatchError, match="ledgerStart=trust-ledger:4 accepts"):
        order(*skipped(v.RowChecksum(3, 13)))


def test_incident_two_writes_of_one_version_were_told_to_trust_the_ledger():
    """The first write's rows are committed. Following the text, the second write's rows were dropped in silence."""
    version = write_id(4, v.WriteKind.VERSION)
    other = [replace(each, write_id=version, decided=v.RowChecksum(3, 12)) for each in skipped(v.RowChecksum(1, 1))]
    with pytest.raises(ReplayMismatchError, match="two writes have one txnAppId and txnVersion") as told:
        order(*other)
    assert "checkpoint" not in str(told.value)
    stream = [replace(each, decided=v.RowChecksum(3, 12)) for each in skipped(v.RowChecksum(1, 1))]
    with pytest.raises(ReplayMismatchError, match="the checkpoint is an older copy.*ledgerStart=trust-ledger:4"):
        order(*stream)


OLD, NEW, OTHER = (v.SchemaId("value", "t-value", 7), v.SchemaId("value", "t-value", 8), v.SchemaId("key", "t-key", 7))


def test_the_intent_has_the_schemas_of_all_tasks_and_done_keeps_them():
    intent = order(report(0, schemas=(OLD,)), report(1, schemas=(OTHER, OLD)), report(2)).entry
    assert intent.schemas == (OTHER, OLD)
    assert done(intent).schemas == (OTHER, OLD)


def test_tasks_with_two_schemas_of_a_subject_commit_nothing():
    with pytest.raises(ExactlyOnceError, match="subject t-value before and after it changed, and have schemas 7 and 8"):
        order(report(0, schemas=(OLD,)), report(1, schemas=(NEW,)))


def test_a_replay_has_the_schemas_of_its_batch_and_another_batch_its_own():
    committed = replace(entry(4), schemas=(OLD,))
    assert replayed_schemas(plan(committed), write_id(4)) == (OLD,)
    assert replayed_schemas(plan(committed), write_id(5)) == ()
    assert replayed_schemas(plan(), write_id(0)) == ()
    trusting = v.LedgerStart(v.RecoveryMode.LEDGER, 4)
    assert replayed_schemas(plan(committed, ledger_start=trusting), write_id(4)) == ()
