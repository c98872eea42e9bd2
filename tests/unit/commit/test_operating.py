"""What the operator's command says and does."""

import pytest

from spark_kafka_sink.cli.main import main
from spark_kafka_sink.commit.errors import LostRowsError
from tests.unit.commit.runs import LEDGER, committed
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


def test_abort_refuses_while_an_intent_stands(broker, command, decided):
    code, said = command("abort")
    assert code == 1
    assert "batch 0 of q1 is decided and not carried out: commit it" in said
    assert command("abort", "--force")[0] == 0
    assert committed(broker) == EACH_ONCE


def test_rows_that_are_gone_are_given_up_by_force_only(broker, command, decided):
    broker.expire_transaction("app-1")
    code, said = command("commit")
    assert (code, "tasks 1) are gone" in said) == (1, True)
    with pytest.raises(LostRowsError):
        decided.run(1, MORE)
    command("abort", "--force")
    decided.run(1, MORE)
    assert committed(broker) == {b"a": 1, b"b": 1, b"d": 1, b"e": 1}
