"""Each error of a commit says what this kind of write must do."""

from __future__ import annotations

import shlex

import pytest

from spark_kafka_sink.common.clock import NEVER, SystemClock
from spark_kafka_sink.errors import KafkaTimeoutError
from spark_kafka_sink.exactly_once import failpoints
from spark_kafka_sink.exactly_once.committer import Committer, EndTxnOutcome, EndVerdict, end_transactions
from spark_kafka_sink.exactly_once.errors import ADVICE, ExactlyOnceError, Progress
from spark_kafka_sink.exactly_once.values import WriteKind
from tests.contract.brokers import broker_with
from tests.contract.exactly_once.runs import TOPIC, Query, committed

ROWS = [[b"a"], [b"b"], [b"c"], [b"d"]]
VISIBLE = {
    Progress.NOT_DECIDED: {},
    Progress.UNKNOWN: {},
    Progress.DECIDED: {b"a": 1, b"b": 1},
    Progress.LOST: {b"a": 1, b"b": 1, b"d": 1},
    Progress.ALL_LOST: {},
}
broker = broker_with(TOPIC, partitions=2)


class Trouble:
    """Lets a commit fail when it has come this far."""

    def __init__(self, monkeypatch, query, reports):
        self._patch, self._query, self._reports = monkeypatch, query, reports
        self._end = Committer.end

    def at(self, progress):
        match progress:
            case Progress.NOT_DECIDED:
                self._when("intent in the log", self._let_an_hour_pass)
            case Progress.UNKNOWN:
                self._ends(self._nobody_answers)
            case Progress.DECIDED:
                self._when("intent committed", lambda: self._ends(self._half_are_ended))
            case Progress.LOST:
                self._when("intent committed", lambda: self._abort(2))
            case Progress.ALL_LOST:
                self._when("intent committed", lambda: self._abort(0, 1, 2, 3))

    def _ends(self, outcomes):
        def end(committer, endings, timeout_ms, latest_ms=NEVER):
            return outcomes(committer, endings, timeout_ms)

        self._patch.setattr(Committer, "end", end)

    def _when(self, step, action):
        self._patch.setattr(failpoints, "hit", lambda reached, task=None: action() if reached == step else None)

    def _let_an_hour_pass(self):
        now = SystemClock.now
        self._patch.setattr(SystemClock, "now", lambda clock: now(clock) + 3_600_000)

    def _nobody_answers(self, committer, endings, timeout_ms):
        silence = KafkaTimeoutError("EndTxn has no response")
        return [EndTxnOutcome(each, EndVerdict.UNDECIDED, error=silence, unanswered=True) for each, _ in endings]

    def _half_are_ended(self, committer, endings, timeout_ms):
        silence = KafkaTimeoutError("EndTxn has no response")
        unknown, still_open = (
            EndTxnOutcome(endings[task][0], EndVerdict.UNDECIDED, error=silence, unanswered=task == 2)
            for task in (2, 3)
        )
        return [*self._end(committer, endings[:2], timeout_ms), unknown, still_open]

    def _abort(self, *tasks):
        endings = [(self._reports[task].share.prepared, False) for task in tasks]
        end_transactions(self._query.settings.producer, endings, 10_000)


@pytest.mark.parametrize("progress", Progress)
@pytest.mark.parametrize("kind", WriteKind)
def test_an_error_of_commit_ends_with_what_to_do(broker, monkeypatch, kind, progress):
    query = Query(broker.bootstrap_servers, "job", "job", kind)
    reports = query.tasks(query.plan(), 0, ROWS)
    Trouble(monkeypatch, query, reports).at(progress)
    with pytest.raises(ExactlyOnceError) as failed:
        query.commit(reports)
    assert str(failed.value).endswith(query.settings.advice(kind, progress))
    monkeypatch.undo()
    assert committed(broker) == VISIBLE[progress]


def test_an_error_after_the_decision_says_which_transactions_are_committed(broker, monkeypatch):
    query = Query(broker.bootstrap_servers, "job", "job", WriteKind.VERSION)
    reports = query.tasks(query.plan(), 0, ROWS)
    Trouble(monkeypatch, query, reports).at(Progress.DECIDED)
    with pytest.raises(ExactlyOnceError) as failed:
        query.commit(reports)
    assert (
        "Transactions by task: 0, 1: committed; 2: open or committed, as a request had no response; 3: open. "
        in str(failed.value)
    )


def test_every_kind_of_write_is_to_be_run_again_however_far_it_came():
    assert ADVICE.keys() == {(kind, progress) for kind in WriteKind for progress in Progress}
    assert all(text.startswith(("Start the query again", "Run the job again")) for text in ADVICE.values())


@pytest.mark.parametrize("name", ["spark-daily orders", "txn-a;b", "it's", "plain-1"])
def test_incident_a_command_of_an_error_had_names_that_a_shell_takes_apart(name):
    settings = Query("one:1,two:2", name).settings
    command = shlex.split(settings.command("commit"))
    assert command[command.index("--prefix") + 1] == name
    assert command[command.index("--bootstrap-server") + 1] == "one:1,two:2"
