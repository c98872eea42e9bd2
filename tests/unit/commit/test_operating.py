"""What the operator's command says and does."""

from contextlib import closing

import pytest

from spark_kafka_sink.cli.main import main
from spark_kafka_sink.clock import SystemClock
from spark_kafka_sink.commit.decisions import done
from spark_kafka_sink.commit.errors import LostRowsError
from spark_kafka_sink.commit.session import Session
from spark_kafka_sink.commit.values import Entry, RowSum, Stage, TaskShare, WritePlan
from tests.unit.commit.runs import LEDGER, Query, committed
from tests.unit.commit.test_protocol import EACH_ONCE, MORE, ROWS, crash


@pytest.fixture
def command(broker, capsys):
    """Runs ``transactions``; its exit code and what it printed."""

    def run(action, *more):
        arguments = ["--bootstrap-server", broker.bootstrap_servers, "--prefix", "app", "--commit-log-topic", LEDGER]
        code = main(["transactions", action, *arguments, *more])
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


@pytest.fixture
def decided(broker, query, monkeypatch):
    """A query whose driver died with its intent recorded."""
    reports = query.tasks(query.plan(), 0, ROWS)
    for killed in crash(monkeypatch, "intent committed"):
        with pytest.raises(killed):
            query.commit(reports)
    assert committed(broker) == {}
    return query


def test_list_tells_what_the_ledger_says(command, decided):
    code, said = command("list")
    assert code == 0
    assert "q1: batch 0, intent, 3 tasks, 3 rows" in said


def test_list_disturbs_nobody(broker, command, query):
    reports = query.tasks(query.plan(), 0, ROWS)
    command("list")
    query.commit(reports)
    assert committed(broker) == EACH_ONCE


def test_commit_carries_out_what_is_decided(broker, command, decided):
    assert command("commit") == (0, "committed batch 0 of q1\n")
    assert committed(broker) == EACH_ONCE
    assert command("commit") == (0, "nothing to commit\n")


def test_commit_finishes_what_it_can_before_it_tells_what_is_gone(broker, command, decided):
    """Of two batches that are decided one is torn: the other one's rows need not wait for its replay."""
    other = Query(broker.bootstrap_servers, query="q2")
    with closing(Session(other.settings, SystemClock())) as session:
        deadline = session.deadline(5_000)
        driver = session.take_fence(deadline)
        share = other.task(WritePlan("app", "app", session.ledger.place, driver), 0, 3, [b"other"]).share
        entry = Entry("q2", 0, Stage.INTENT, (*[TaskShare(RowSum())] * 3, share))
        session.record(driver, entry, deadline)
        broker.expire_transaction("app-1")
        code, said = command("commit")
        assert code == 1
        assert "batch 0 of q1: tasks 1" in said
        assert "Committed: batch 0 of q2." in said
        assert session.ledger.read(deadline).entries["q2"] == done(entry)
    assert committed(broker) == {b"a": 1, b"b": 1, b"other": 1}


def test_abort_refuses_while_an_intent_stands(broker, command, decided):
    code, said = command("abort")
    assert code == 1
    assert "batch 0 of q1 is decided and not carried out: commit it" in said
    assert command("abort", "--force")[0] == 0
    assert committed(broker) == EACH_ONCE


def test_rows_that_are_gone_are_given_up_by_force_only(broker, command, decided):
    broker.expire_transaction("app-1")
    code, said = command("commit")
    assert (code, "Rows are gone from Kafka (name app; batch 0 of q1: tasks 1)" in said) == (1, True)
    with pytest.raises(LostRowsError):
        decided.run(1, MORE)
    command("abort", "--force")
    decided.run(1, MORE)
    assert committed(broker) == {b"a": 1, b"b": 1, b"d": 1, b"e": 1}
