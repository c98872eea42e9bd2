"""How a process that has read the ledger before goes on reading it."""

from contextlib import closing, contextmanager

import pytest

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.errors import KafkaTimeoutError
from spark_kafka_sink.exactly_once import ledger
from spark_kafka_sink.exactly_once import session as kept
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.exactly_once.ledger_topic import ledger_partitions
from spark_kafka_sink.exactly_once.plan import plan_write
from spark_kafka_sink.exactly_once.session import Session
from spark_kafka_sink.exactly_once.values import TaskAction
from spark_kafka_sink.testing.broker.faults import KEPT
from tests.contract.exactly_once.runs import LEDGER, Query, carried, committed, new_process
from tests.support.waiting import DEADLINE_S

DEADLINE_MS = 1_000 * DEADLINE_S
ROWS = [[b"a"], [b"b"]]


@pytest.fixture
def session(query):
    with closing(Session(query.settings, SystemClock())) as session:
        yield session


def read(session):
    return session.ledger.read(session.deadline(DEADLINE_MS))


def test_it_reads_on_from_where_it_was(query, session):
    query.run(0, [[b"a"]])
    view = read(session)
    assert view.entries["q1"].number == 0
    query.run(1, [[b"b"]])
    assert read(session) is view
    assert view.entries["q1"].number == 1


@pytest.mark.parametrize("batches", [1, 5], ids=["shorter", "longer"])
def test_a_ledger_that_was_made_again_is_read_from_its_start(broker, query, session, batches):
    """One that has grown past what was read looks like the old one, but for its topic id."""
    for number in range(2):
        query.run(number, [[b"a"]])
    assert read(session).entries["q1"].number == 1
    broker.delete_topic(LEDGER)
    other = Query(broker.bootstrap_servers, query="q2")
    for number in range(batches):
        other.run(number, [[b"b"]])
    view = read(session)
    assert {query: entry.number for query, entry in view.entries.items()} == {"q2": batches - 1}


def watermark(broker, offset=None):
    """The high watermark that the ledger's leader tells; with ``offset``, as a new or a deposed leader has it. The next
    append brings it to the end of the log."""

    def change(server):
        partition = server.state.cluster.partition(LEDGER, ledger_partitions("app", LEDGER).partition)
        if offset is not None:
            partition.high_watermark = offset
        return partition.high_watermark

    return broker._call(change)


@pytest.fixture
def decided(broker, query):
    """The reports of a batch whose intent stands and is not shown: the leader's watermark is the one before it."""
    reports = query.tasks(query.plan(), 0, ROWS)
    before = watermark(broker)
    query.commit_killed_at(reports)
    watermark(broker, before)
    return reports


def test_a_watermark_that_lags_hides_no_intent_from_planning(broker, query, decided):
    again = query.tasks(query.plan(), 0, ROWS)
    assert {report.action for report in again} == {TaskAction.SKIP}
    query.commit(again)
    assert committed(broker) == {b"a": 1, b"b": 1}


def test_a_watermark_that_lags_hides_no_intent_from_abort(broker, query, decided):
    assert query.abort(decided).decided == ("batch 0 of q1 had been decided and is committed",)
    assert committed(broker) == {b"a": 1, b"b": 1}


def test_a_watermark_that_lags_hides_no_intent_from_the_operators_abort(broker, query, decided):
    from spark_kafka_sink.exactly_once.operator_commands import abort_undecided

    with closing(Session(query.settings, SystemClock())) as session, pytest.raises(ExactlyOnceError, match="batch 0"):
        abort_undecided(session, False, session.deadline(DEADLINE_MS))


def test_a_run_that_wakes_misses_no_batch_that_its_successor_committed(broker, query):
    """It finds its own last batch done under its new fence, but the fence was another's in between."""
    first = carried(plan_write(query.settings))
    with another_process():
        query.commit(query.tasks(first, 0, ROWS))
        before = watermark(broker)
        query.run(1, [[b"c"]])
    watermark(broker, before)
    again = query.tasks(carried(plan_write(query.settings)), 1, [[b"c"]])
    assert {report.action for report in again} == {TaskAction.SKIP}
    assert committed(broker) == {b"a": 1, b"b": 1, b"c": 1}


@contextmanager
def another_process():
    """Than the kept session's."""
    mine = kept._sessions.copy()
    kept._sessions.clear()
    yield
    kept._sessions.clear()
    kept._sessions.update(mine)


def barriers(broker):
    return [record for record in broker.topic(LEDGER).records() if record.key == b'["app"]']


def test_a_kept_session_that_finds_its_last_batch_done_appends_no_barrier(broker, query):
    for number in range(3):
        plan = carried(plan_write(query.settings))
        with another_process():
            query.commit(query.tasks(plan, number, ROWS))
    assert len(barriers(broker)) == 1, "of the first planning"
    plan_write(query.settings)
    plan_write(query.settings)
    assert len(barriers(broker)) > 1, "nobody committed what was planned"


def test_a_leader_that_lags_for_a_while_is_read_to_the_end(broker, query, session):
    query.run(0, ROWS)
    before = watermark(broker)
    query.run(1, ROWS)
    now = watermark(broker)
    broker.faults.run("Fetch", lambda: watermark(broker, before), times=3)
    broker.faults.run("Fetch", lambda: watermark(broker, now + 1))
    assert session.ledger.read_acknowledged(0, session.deadline(DEADLINE_MS)).entries["q1"].number == 1


def test_a_leader_that_lags_for_ever_ends_the_read_at_the_deadline(broker, query, session):
    query.run(0, ROWS)
    before = watermark(broker)
    broker.faults.run("Fetch", lambda: watermark(broker, before), times=None)
    # At the deadline the last request may have no response yet.
    with pytest.raises(KafkaTimeoutError, match="could not be read up to offset|has no response"):
        session.ledger.read_acknowledged(0, session.deadline(300))


def test_a_ledger_that_may_not_be_read_was_told_as_one_that_may_not_be_written(broker, query):
    query.run(0, ROWS)
    new_process()
    broker.faults.answer("Fetch", "TOPIC_AUTHORIZATION_FAILED", times=KEPT)
    with pytest.raises(
        ExactlyOnceError, match="Fetch of .*AUTHORIZATION_FAILED; .*on ledgerTopic READ and DESCRIBE_CONFIGS too"
    ):
        query.plan()


def test_a_long_ledger_is_read_for_longer_than_max_block_ms_as_long_as_it_goes_on(broker, query, monkeypatch):
    """Each response brings one batch, and takes its time. What is to be finished then has its time too."""
    for number in range(8):
        query.run(number, ROWS)
    reports = query.tasks(query.plan(), 8, ROWS)
    query.commit_killed_at(reports)
    monkeypatch.setattr(ledger, "_FETCH_BYTES", 1)
    broker.faults.delay("Fetch", 100, times=None)
    impatient = Query(broker.bootstrap_servers, options={"max.block.ms": 2_500})
    reports = impatient.tasks(impatient.plan(), 8, ROWS)
    assert {report.action for report in reports} == {TaskAction.SKIP}
