"""The whole protocol on a broker in this process: what each kind of crash, zombie and replay comes to."""

from dataclasses import replace
from itertools import count

import pytest

from spark_kafka_sink.common.model import ProducerIdentity
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.exactly_once import abort, errors, sweep
from spark_kafka_sink.exactly_once.abort import AbortOutcome
from spark_kafka_sink.exactly_once.commit import commit_batch
from spark_kafka_sink.exactly_once.committer import EndVerdict
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError, LostRowsError, PlanningError, ReplayMismatchError
from spark_kafka_sink.exactly_once.plan import plan_write
from spark_kafka_sink.exactly_once.values import LedgerStart, RecoveryMode, TaskAction, WriteKind
from spark_kafka_sink.producer.transaction_requests import END_TXN_V1, END_TXN_V2
from spark_kafka_sink.testing.broker.faults import KEPT
from spark_kafka_sink.testing.broker.state.transactions import LAST_EPOCH
from tests.contract.exactly_once.runs import LEDGER, Query, committed, end_transactions, fence, new_process

ROWS = [[b"a", b"b"], [b"c"], []]
EACH_ONCE = {b"a": 1, b"b": 1, b"c": 1}
MORE = [[b"d"], [b"e"]]
ENDED = {"CompleteAbort", "Empty"}
"""States of an aborted transaction; the second after an InitProducerId."""


def test_what_a_first_batch_left_open_is_aborted_once_the_ledger_has_an_entry(broker, query):
    """Before, this may be the wrong ledger. A process that is kept must not forget it."""
    query.tasks(query.plan(), 0, [[b"x"]] * 3)
    reports = query.tasks(query.plan(), 0, [[b"x"]])
    assert [broker.transaction_state(f"app-{task}") for task in (1, 2)] == ["Ongoing", "Ongoing"]
    commit_batch(query.settings, reports)
    plan_write(query.settings)
    assert {broker.transaction_state(f"app-{task}") for task in (1, 2)} <= ENDED
    assert committed(broker) == {b"x": 1}


def test_incident_a_transaction_whose_coordinator_moved_while_they_were_listed_held_readers_up(
    broker, query, monkeypatch
):
    """The broker that it moved to was asked before, the one that it left afterwards."""
    query.run(0, ROWS)
    query.tasks(query.plan(), 1, MORE)
    new_process()
    with monkeypatch.context() as patch:
        patch.setattr(sweep, "_list_by", lambda *of: [])
        plan = plan_write(query.settings)
    commit_batch(query.settings, query.tasks(plan, 1, [[b"d", b"e"]]))
    assert broker.transaction_state("app-1") == "Ongoing"
    plan_write(query.settings)
    assert broker.transaction_state("app-1") in ENDED


def test_a_transaction_whose_coordinator_moved_since_it_was_listed_is_described_by_the_present_one(broker, query):
    query.run(0, ROWS)
    query.tasks(query.plan(), 1, MORE)
    broker.faults.answer("DescribeTransactions", "NOT_COORDINATOR", times=3)
    query.plan()
    assert {broker.transaction_state(f"app-{task}") for task in (0, 1)} <= ENDED


def test_incident_the_retry_of_a_killed_attempt_had_no_rows_and_left_its_transaction_open(broker, query):
    query.run(0, ROWS)
    plan = query.plan()
    query.append(killed := query.open_task(plan, 1, 0), [b"early"])
    killed.receipts()
    with query.open_task(plan, 1, 0, retried=True) as retry:
        reports = [retry.prepare(), query.task(plan, 1, 1, MORE[1])]
    assert broker.transaction_state("app-0") in ENDED
    query.commit(reports)
    with pytest.raises(TaskFailedError):
        fail(killed)
    assert committed(broker) == {**EACH_ONCE, **dict.fromkeys(MORE[1], 1)}


@pytest.mark.parametrize("who", ["sweep", "abort"])
def test_what_an_aborted_task_sends_later_is_not_committed_with_its_successors_rows(broker, query, who):
    query.run(0, ROWS)
    plan = query.plan()
    zombie = query.open_task(plan, 1, 0)
    query.append(zombie, [b"early"])
    zombie.receipts()  # the row is in the log, its partition in the transaction
    if who == "sweep":
        query.plan()
    else:
        query.abort([None, query.task(plan, 1, 1, MORE[1])])
    with pytest.raises(KafkaError):
        fail(zombie, lambda: query.append(zombie, [b"late"]), zombie.prepare)
    query.run(1, MORE)
    assert committed(broker) == {**EACH_ONCE, b"d": 1, b"e": 1}


def test_planning_with_another_ledger_ends_no_decided_transaction(broker, query):
    query.run(0, ROWS)
    reports = query.tasks(query.plan(), 1, MORE)
    query.commit_killed_at(reports)
    elsewhere = replace(query.settings, topic="__other")
    plan = plan_write(elsewhere)
    with pytest.raises(ExactlyOnceError, match="ledgerTopic changed"):
        query.task(plan, 1, 0, MORE[0])
    query.run(1, MORE)
    assert committed(broker) == {**EACH_ONCE, b"d": 1, b"e": 1}


def test_an_abort_whose_reported_transactions_were_ended_by_others_says_so(broker, query):
    reports = query.tasks(query.plan(), 0, ROWS)
    (ended,) = end_transactions(query.settings.producer, [(reports[1].outcome.prepared, True)], 5_000)
    assert ended.verdict is EndVerdict.COMMITTED
    assert query.abort(reports) == AbortOutcome(aborted=1, gone=1)


@pytest.mark.parametrize("point", ["intent in the log", "intent committed", "between EndTxns", "before done"])
def test_a_commit_that_dies_is_carried_out_by_the_next_run(broker, query, point):
    reports = query.tasks(query.plan(), 0, ROWS)
    query.commit_killed_at(reports, point)
    again = query.tasks(query.plan(), 0, ROWS)
    decided = point != "intent in the log"
    assert {report.action for report in again} == {TaskAction.SKIP if decided else TaskAction.WRITE}
    query.commit(again)
    query.run(1, MORE)
    assert committed(broker) == {**EACH_ONCE, b"d": 1, b"e": 1}


def after_the_first():
    met = count()
    return lambda request: next(met) > 0


def test_what_fails_after_the_last_end_is_told_and_not_raised(broker, query):
    def fails():
        raise OSError("an error that is not Kafka's")

    outcome = query.commit(query.tasks(query.plan(), 0, ROWS), fails, at="before done")
    assert committed(broker) == EACH_ONCE
    assert "micro-batch 0 of query q1 (name app) is committed, and all of it is visible" in outcome.cleanup_failure
    assert (
        f"`spark-kafka-sink transactions commit --bootstrap-server {broker.bootstrap_servers}"
        in outcome.cleanup_failure
    )
    query.run(0, ROWS)
    assert query.run(1, MORE).cleanup_failure == ""
    assert committed(broker) == {**EACH_ONCE, b"d": 1, b"e": 1}


def test_what_fails_before_the_last_end_says_that_the_batch_is_decided(broker, query):
    reports = query.tasks(query.plan(), 0, ROWS)
    broker.faults.answer("EndTxn", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", only=after_the_first(), times=KEPT)
    with pytest.raises(ExactlyOnceError, match="Batch 0 of q1 .* is decided, but 2 of its 2 transactions"):
        query.commit(reports)
    broker.faults.clear()
    assert query.abort(reports).decided == ("batch 0 of q1 had been decided and is committed",)
    assert committed(broker) == EACH_ONCE


def test_an_abort_of_a_torn_batch_says_that_it_is_decided(broker, torn):
    reports = torn.tasks(torn.plan(), 0, ROWS)
    (clause,) = torn.abort(reports).decided
    assert clause.startswith("batch 0 of q1 is decided and the rows of task 1 are gone")
    torn.run(0, ROWS)
    assert committed(broker) == EACH_ONCE


def test_an_abort_spares_what_is_decided_though_transaction_version_has_changed_since(broker, query, monkeypatch):
    """Incident: abort committed a decided batch and then asked for the abort of one of its transactions, because the
    one that it had listed had the driver's protocol, and the one in the intent the task's."""
    reports = query.tasks(query.plan(), 0, ROWS)
    query.commit_killed_at(reports)
    listed, aborted = sweep.left_open, []

    def listed_in_the_other_protocol(listing, driver):
        return [
            replace(each, end_txn_version=END_TXN_V1 + END_TXN_V2 - each.end_txn_version)
            for each in listed(listing, driver)
        ]

    def abort_all(session, prepared, *more, **others):
        aborted.extend(prepared)
        return frozenset()

    monkeypatch.setattr(sweep, "left_open", listed_in_the_other_protocol)
    monkeypatch.setattr(abort, "abort_all", abort_all)
    query.abort(reports)
    assert not aborted
    assert committed(broker) == EACH_ONCE


def test_a_fenced_drivers_abort_fences_no_healthy_driver(broker, query):
    query.run(0, ROWS)
    fenced = query.tasks(query.plan(), 1, MORE)
    healthy = query.tasks(query.plan(), 1, MORE)
    assert "another driver" in query.abort([fenced[0], None]).skipped
    query.commit(healthy)
    assert committed(broker) == {**EACH_ONCE, b"d": 1, b"e": 1}


def test_an_abort_without_a_report_touches_nothing(broker, query):
    reports = query.tasks(query.plan(), 0, ROWS)
    assert "each task failed before it could report" in query.abort([None, None, None]).skipped
    query.commit(reports)
    assert committed(broker) == EACH_ONCE


def test_incident_a_first_version_whose_job_failed_left_its_prepared_transactions_open(broker):
    """write_kafka loses its tasks' messages with the job, and without an entry nothing was ended by its listing."""
    job = Query(broker.bootstrap_servers, query="job", kind=WriteKind.VERSION)
    plan = job.plan(1)
    job.tasks(plan, 1, [[b"x"]] * 3)
    assert job.abort([None], plan) == AbortOutcome(aborted=3)
    assert {broker.transaction_state(f"app-{task}") for task in range(3)} <= ENDED
    job.run(1, [[b"x"]])
    assert committed(broker) == {b"x": 1}


def test_an_abort_of_a_first_batch_leaves_a_task_in_mid_write_to_the_next_run(broker, query):
    """Without an entry, another ledger may have decided what has no marker in this one."""
    plan = query.plan()
    killed = query.open_task(plan, 0, 2)
    query.append(killed, [b"c"])
    killed.receipts()
    query.task(plan, 0, 1, [b"b"])
    assert query.abort([query.task(plan, 0, 0, ROWS[0]), None, None]) == AbortOutcome(aborted=2, left=1)
    assert [broker.transaction_state(f"app-{task}") == "Ongoing" for task in range(3)] == [False, False, True]
    query.run(0, [*ROWS[:2], [b"x"]])
    assert committed(broker) == {**EACH_ONCE, b"x": 1}


@pytest.fixture
def elsewhere(broker):
    """A job whose version 0 is decided in its ledger, and not committed; the same job with another ledgerTopic."""
    job = Query(broker.bootstrap_servers, query="job", kind=WriteKind.VERSION)
    reports = job.tasks(job.plan(0), 0, [[b"a"], [b"b"], [b"c"]])
    job.commit_killed_at(reports)
    return replace(job, ledger="__other")


def test_an_abort_with_another_ledger_spares_what_the_first_one_decided(broker, elsewhere):
    plan = elsewhere.plan(1)
    elsewhere.tasks(plan, 1, [[b"x"]])
    assert elsewhere.abort([None], plan) == AbortOutcome(aborted=1, left=2)
    assert broker.transaction_state("app-0") in ENDED
    assert {broker.transaction_state(f"app-{task}") for task in (1, 2)} == {"Ongoing"}
    first = replace(elsewhere, ledger=LEDGER)
    first.run(0, [[b"a"], [b"b"], [b"c"]])
    assert committed(broker) == {b"a": 1, b"b": 1, b"c": 1}


def test_incident_an_abort_that_found_its_own_intent_ended_what_another_ledger_had_decided(broker, elsewhere):
    """The intent was an entry, and with an entry abort ended everything that was open under the prefix."""
    plan = elsewhere.plan(1)
    reports = elsewhere.tasks(plan, 1, [[b"x"]])
    elsewhere.commit_killed_at(reports)
    assert "is committed" in elsewhere.abort(reports, plan).decided[0]
    assert {broker.transaction_state(f"app-{task}") for task in (1, 2)} == {"Ongoing"}


class TaskFailedError(Exception):
    pass


def fail(write, *before):
    """The task's block ends with an error of its own, after these calls."""
    with write:
        for each in before:
            each()
        raise TaskFailedError


def test_two_live_queries_under_one_prefix_are_refused(broker, query):
    other = Query(broker.bootstrap_servers, query="q2")
    reports = query.tasks(query.plan(), 0, ROWS)
    others = other.tasks(other.plan(), 0, MORE)
    with pytest.raises(ExactlyOnceError, match="give each its own"):
        query.commit(reports)
    other.commit(others)
    assert committed(broker) == {b"d": 1, b"e": 1}


@pytest.mark.parametrize("at", ["before the intent", "intent committed"])
def test_incident_tasks_of_a_fenced_run_took_what_its_successor_had_prepared(broker, query, at):
    """Spark begins the later tasks of a run that was fenced, and retries those that fail."""
    plan = query.plan()
    own = query.task(plan, 0, 2, [b"x"])
    reports = query.tasks(query.plan(), 0, ROWS)

    def begin():
        for task, values, retried in ((1, ROWS[1], False), (0, ROWS[0], True), (0, [], True)):
            with pytest.raises(errors.FencedRunError, match=f"task {task} writes nothing"):
                query.task(plan, 0, task, values, retried)

    query.commit(reports, begin, at)
    assert query.abort([None, None, own]).aborted == 1
    assert committed(broker) == EACH_ONCE  # no reader waits for the task that had reported


def test_incident_a_batch_was_decided_though_a_transaction_of_it_was_gone(broker, query, monkeypatch):
    monkeypatch.setattr("spark_kafka_sink.exactly_once.commit.LAG_MS", 100.0)
    reports = query.tasks(query.plan(), 0, ROWS)
    fence({"bootstrap.servers": query.servers}, "app-1")
    with pytest.raises(ExactlyOnceError, match="not committed: the transactions of task 1 are gone"):
        query.commit(reports)
    assert committed(broker) == {}
    query.run(0, ROWS)
    assert committed(broker) == EACH_ONCE


def test_a_forgotten_trust_in_the_ledger_skips_no_other_replay(broker, query):
    forgetful = replace(query, ledger_start=LedgerStart(RecoveryMode.LEDGER, 0))
    forgetful.run(0, ROWS)
    forgetful.run(0, [[b"X"]])
    forgetful.run(1, MORE)
    with pytest.raises(ReplayMismatchError, match="trust-ledger:1 accepts this batch, and no other"):
        forgetful.run(1, [[b"X"]])
    assert committed(broker) == {**EACH_ONCE, b"d": 1, b"e": 1}


@pytest.fixture
def torn(broker, query):
    """A decided batch of which task 1's transaction has timed out."""
    reports = query.tasks(query.plan(), 0, ROWS)
    with pytest.raises(LostRowsError, match=r"micro-batch 0 .*task 1 are gone"):
        query.commit(reports, lambda: broker.expire_transaction("app-1"))
    assert committed(broker) == {b"a": 1, b"b": 1}
    return query


def test_a_replay_writes_what_is_gone_and_nothing_else(broker, torn):
    reports = torn.tasks(torn.plan(), 0, [[b"b", b"a"], [b"c"], []])
    assert [report.action for report in reports] == [TaskAction.VERIFY, TaskAction.REWRITE, TaskAction.VERIFY]
    torn.commit(reports)
    assert committed(broker) == EACH_ONCE
    torn.run(1, MORE)
    assert committed(broker) == {**EACH_ONCE, b"d": 1, b"e": 1}


def test_a_repair_that_loses_its_transaction_is_repaired_again(broker, torn):
    reports = torn.tasks(torn.plan(), 0, ROWS)
    with pytest.raises(LostRowsError):
        torn.commit(reports, lambda: broker.expire_transaction("app-1"))
    torn.run(0, ROWS)
    assert committed(broker) == EACH_ONCE


def test_a_batch_of_which_nothing_is_left_may_be_cut_otherwise(broker, query):
    """Its intent stands, but no row of it is in Kafka: nothing has to be proved."""
    reports = query.tasks(query.plan(), 0, ROWS)

    def expire():
        for task in (0, 1):
            broker.expire_transaction(f"app-{task}")

    with pytest.raises(LostRowsError, match="task 0, 1 are gone"):
        query.commit(reports, expire)
    again = query.tasks(query.plan(), 0, [[], [b"c", b"b"], [], [b"a"]])
    assert {report.action for report in again} == {TaskAction.WRITE}
    query.commit(again)
    query.run(1, MORE)
    assert committed(broker) == {**EACH_ONCE, b"d": 1, b"e": 1}


@pytest.mark.parametrize("error", ["INVALID_PRODUCER_EPOCH", "INVALID_TXN_STATE"])
def test_a_deposed_coordinator_that_takes_an_open_transaction_for_ended_is_not_believed(broker, query, error):
    """Networks between brokers were parted: EndTxn of a decided transaction was refused, and accepted 30 s later, when
    the job had failed for want of its marker."""
    reports = query.tasks(query.plan(), 0, ROWS)
    broker.faults.answer("EndTxn", error, only=after_the_first(), times=1)
    query.commit(reports)
    assert committed(broker) == EACH_ONCE


def began_ago(reports, ms):
    return [replace(report, began_at=report.began_at - ms) for report in reports]


def test_no_end_of_the_intent_is_sent_after_the_deadline_of_the_oldest_transaction(broker, query):
    """It would be decided when the broker may already be ending the oldest transaction."""
    reports = began_ago(query.tasks(query.plan(), 0, ROWS), 49_000)
    loading = broker.faults.answer("EndTxn", "COORDINATOR_LOAD_IN_PROGRESS", times=KEPT)
    with pytest.raises(ExactlyOnceError, match=r"kafka\.transaction\.timeout\.ms=60000"):
        query.commit(reports)
    loading.remove()
    assert query.abort(reports) == AbortOutcome(aborted=2)
    assert committed(broker) == {}


def test_an_intent_within_the_deadline_of_the_oldest_transaction_is_tried_again(broker, query):
    reports = began_ago(query.tasks(query.plan(), 0, ROWS), 30_000)
    broker.faults.answer("EndTxn", "COORDINATOR_LOAD_IN_PROGRESS", times=3)
    query.commit(reports)
    assert committed(broker) == EACH_ONCE


def test_a_task_that_no_intent_has_room_for_is_refused_before_it_writes(broker, query):
    query.run(0, ROWS)
    broker.set_topic_configs(LEDGER, {"max.message.bytes": 1_000})
    plan = query.plan()
    with pytest.raises(ExactlyOnceError, match=r"has a task 40\. .*max\.message\.bytes=1000 .*names up to 40 tasks"):
        query.open_task(plan, 1, 40)
    assert broker.transaction_state("app-40") is None
    assert query.task(plan, 1, 39, [b"x"]).outcome.prepared is not None


def test_incident_an_intent_that_the_ledger_refused_as_too_large_was_told_as_perhaps_decided(broker, query):
    query.run(0, ROWS)
    reports = query.tasks(query.plan(), 1, MORE)
    broker.set_topic_configs(LEDGER, {"max.message.bytes": 200})
    with pytest.raises(ExactlyOnceError, match=r"is not committed: .*MESSAGE_TOO_LARGE.* it writes the batch again"):
        query.commit(reports)
    assert query.abort(reports) == AbortOutcome(aborted=2)
    assert committed(broker) == EACH_ONCE


@pytest.mark.parametrize(
    ("timeout_ms", "says"),
    [
        (10_000, r"kafka\.transaction\.timeout\.ms is 10000, .*at least 60000"),
        (1_000_000, "set it to 900000 or less"),
    ],
    ids=["no time for a decision", "above the brokers' limit"],
)
def test_a_transaction_timeout_that_cannot_work_is_refused(broker, timeout_ms, says):
    with pytest.raises(PlanningError, match=says):
        Query(broker.bootstrap_servers, options={"transaction.timeout.ms": timeout_ms}).plan()


def test_the_lost_answer_to_the_intents_own_end_changes_nothing(broker, query):
    reports = query.tasks(query.plan(), 0, ROWS)
    broker.faults.drop_after("EndTxn")
    query.commit(reports)
    assert committed(broker) == EACH_ONCE


def told(caplog):
    return [each.getMessage() for each in caplog.records if each.levelname == "WARNING" and "txn" in each.getMessage()]


def test_a_version_whose_ledger_was_lost_is_written_with_a_warning(broker, caplog):
    """Without a checkpoint nothing says that it was written before."""
    job = Query(broker.bootstrap_servers, name="nightly", query="nightly", kind=WriteKind.VERSION)
    job.run(0, [[b"x"]])
    assert told(caplog) == []
    job.run(7, ROWS)
    job.run(7, ROWS)
    assert told(caplog) == [], "its entry is there"
    broker.delete_topic(LEDGER)
    job.run(7, ROWS)
    fine = "No entry for txnAppId {} in ledgerTopic {}. Fine if this is its first run; otherwise the ledger was lost"
    (line,) = told(caplog)
    assert line.startswith(fine.format("nightly", LEDGER))
    assert committed(broker) == {b"x": 1, **dict.fromkeys(EACH_ONCE, 2)}
    caplog.clear()
    replace(job, name="new", query="new").run(7, [[]])
    assert told(caplog)[0].startswith(fine.format("new", LEDGER))
    caplog.clear()
    replace(job, name="newer", query="newer", ledger_start=LedgerStart(RecoveryMode.CHECKPOINT, 7)).run(7, [[]])
    assert told(caplog) == []


def test_incident_a_smaller_version_was_refused_by_each_task_instead_of_planning(broker):
    job = Query(broker.bootstrap_servers, name="nightly", query="nightly", kind=WriteKind.VERSION)
    job.run(5, ROWS)
    with pytest.raises(PlanningError, match="txnVersion 3 .* is smaller than the last one.*, a txnAppId of its own"):
        job.plan(3)


def test_incident_the_loser_of_two_writes_was_told_to_write_again_what_the_other_had_committed(broker):
    job = Query(broker.bootstrap_servers, name="nightly", query="nightly", kind=WriteKind.VERSION)
    plan = job.plan(1)
    reports = job.tasks(plan, 1, ROWS)
    job.run(1, ROWS)
    with pytest.raises(ExactlyOnceError, match=r"by this run: .*Unless a newer run continues: .*not written again\."):
        job.commit(reports)
    assert job.abort(reports, plan).decided == ("txnVersion 1 of nightly was committed by another run",)
    assert committed(broker) == EACH_ONCE


def test_one_txn_app_id_for_two_topics_is_refused(broker):
    broker.create_topic("other")
    job = Query(broker.bootstrap_servers, "nightly", "nightly", WriteKind.VERSION)
    job.run(5, ROWS)
    refusal = (
        r"txnAppId nightly writes to topic out .*to topic other: .*Use one txnAppId for each.*txnAppId=nightly-other"
    )
    for number in (5, 6):
        with pytest.raises(PlanningError, match=refusal):
            replace(job, topic="other").run(number, MORE)
    job.run(6, MORE)
    assert committed(broker) == {**EACH_ONCE, b"d": 1, b"e": 1}


def test_a_ledger_that_may_not_be_created_is_described(broker, query):
    broker.faults.answer("CreateTopics", "TOPIC_AUTHORIZATION_FAILED")
    with pytest.raises(PlanningError, match=r"needs CREATE.*--partitions 20 .*--config cleanup.policy=compact"):
        query.plan()


@pytest.mark.parametrize("left", [0, 1, 2, 3])
@pytest.mark.parametrize("name", ["app-driver", "app-0"])
@pytest.mark.parametrize("killed", [False, True])
def test_a_producer_id_whose_epochs_run_out_is_followed_by_another(broker, query, name, left, killed):
    """Also if the driver dies once it has decided: the run that finishes the batch has another identity."""
    query.run(0, ROWS)
    broker._call(lambda server: age(server.state.transactions.transactions[name], LAST_EPOCH - left))
    if killed:
        query.commit_killed_at(query.tasks(query.plan(), 1, MORE))
    else:
        query.run(1, MORE)
    query.run(2, [[b"g"], [b"h"]])
    assert committed(broker) == {**EACH_ONCE, b"d": 1, b"e": 1, b"g": 1, b"h": 1}


def age(transaction, epoch):
    """As if the id had been used for weeks."""
    transaction.become(ProducerIdentity(transaction.producer_id, epoch))


def client_ids(broker, query):
    """By all requests of a batch that is aborted, the same batch again, and its replay."""
    query.abort(query.tasks(query.plan(), 0, ROWS))
    query.run(0, ROWS)
    query.run(0, ROWS)
    assert committed(broker) == EACH_ONCE
    apis = {seen.api for seen in broker.requests}
    assert {"ApiVersions", "Metadata", "FindCoordinator", "InitProducerId", "EndTxn", "Fetch", "Produce"} <= apis
    return {seen.client_id for seen in broker.requests}


def test_incident_a_broker_that_cannot_read_an_empty_client_id_closed_the_connections_of_the_ledger(broker, query):
    ids = client_ids(broker, query)
    assert all(each.startswith(("producer-", "adminclient-")) for each in ids), ids


def test_the_client_id_of_the_write_is_on_each_connection(broker):
    assert client_ids(broker, Query(broker.bootstrap_servers, options={"client.id": "nightly"})) == {"nightly"}
