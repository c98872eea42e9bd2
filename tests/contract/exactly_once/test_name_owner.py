"""A name belongs to one query, until that hands it over: to the one whose entry is the last in the ledger."""

import re
from contextlib import nullcontext
from dataclasses import replace

import pytest

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.exactly_once import session
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.exactly_once.values import LedgerStart
from tests.contract.exactly_once import runs
from tests.contract.exactly_once.runs import Query, committed
from tests.contract.exactly_once.test_ways_out import commit_torn, refused

pytestmark = pytest.mark.parametrize("broker", ["4.1", "3.5"], indirect=True)

BELONGS = r"Query {} is refused, because the name app belongs to query {}, whose last batch, {}, was decided at 20\d\d-"


@pytest.fixture(params=[True, False], ids=["local checkpoint", "only tasks know the query"])
def blue(request, broker):
    return Query(broker.bootstrap_servers, query="blue", query_name="orders", told_id=request.param)


@pytest.fixture
def green(blue):
    return replace(blue, query="green", query_name="")


def with_way_out(query, text):
    """The query with what the error says."""
    return replace(query, ledger_start=LedgerStart.parse(re.search(r"ledgerStart=(replaces:\S+),", text)[1]))


def test_incident_two_queries_wrote_in_turn_under_one_name(broker, blue, green):
    """Their batches were short, so that they seldom fenced each other. Restarted after each failure, the intruder
    fences the owner only where no one but its tasks knows which query it is."""
    blue.run(0, [[b"0"]])
    for number in (1, 2):
        reports = blue.tasks(blue.plan(number), number, [[b"%d" % number]])
        assert re.match(f".*{BELONGS.format('green', r'blue .orders.', number - 1)}", refused(green, 0, [[b"x"]]))
        with nullcontext() if blue.told_id else pytest.raises(ExactlyOnceError, match="has fenced app-driver"):
            blue.commit(reports)
        blue.run(number, [[b"%d" % number]])
    assert committed(broker) == {b"0": 1, b"1": 1, b"2": 1}


def test_incident_all_was_written_again_after_the_checkpoint_was_deleted(broker, blue, green):
    """The prefix stayed as it was."""
    blue.run(0, [[b"0"]])
    refused(green, 0, [[b"0"]])
    assert committed(broker) == {b"0": 1}
    replace(green, name="another").run(0, [[b"x"]])


def test_a_name_is_handed_over_and_back_and_an_option_that_stays_set_takes_it_once(broker, blue, green, monkeypatch):
    """Blue/green. The clock of the later ones is behind: the ledger's order counts."""
    blue.run(0, [[b"0"]])
    monkeypatch.setattr(SystemClock, "epoch_ms", lambda self, real=SystemClock.epoch_ms: real(self) - 3_600_000)
    owner, other = with_way_out(green, refused(green, 0, [[b"1"]])), blue
    assert owner.ledger_start.replaced == "blue"
    next_batch = {"blue": 1, "green": 0}
    for row in range(1, 7, 2):
        for value in (row, row + 1):
            owner.run(next_batch[owner.query], [[b"%d" % value]])
            next_batch[owner.query] += 1
        text = refused(other, next_batch[other.query], [[b"x"]])
        assert re.search(BELONGS.format(rf"{other.query}.*", rf"{owner.query}.*", next_batch[owner.query] - 1), text)
        owner, other = with_way_out(other, text), owner
    assert other.ledger_start.replaced == "blue:2", "it names the second turn"
    assert committed(broker) == {b"%d" % row: 1 for row in range(7)}


def test_a_query_that_was_handed_on_while_it_waited_for_rows_is_refused(broker, blue, green):
    """Its process was kept, with what it had read of the ledger."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "new_process", lambda: None)
        blue.run(0, [[b"0"]])
        of_blue = session._sessions
        patch.setattr(session, "_sessions", {})
        heir = with_way_out(green, refused(green, 0, [[b"x"]]))
        heir.run(0, [[b"1"]])
        reports = heir.tasks(heir.plan(1), 1, [[b"2"]])
        patch.setattr(session, "_sessions", of_blue)
        refused(blue, 1, [[b"x"]])
    with nullcontext() if blue.told_id else pytest.raises(ExactlyOnceError, match="has fenced"):
        heir.commit(reports)
    heir.run(1, [[b"2"]])
    assert committed(broker) == {b"0": 1, b"1": 1, b"2": 1}


def test_the_name_of_a_query_whose_rows_are_lost_is_handed_over_when_the_loss_is_accepted(broker, blue, green):
    commit_torn(broker, blue)
    heir = with_way_out(green, refused(green, 5, [[b"x"]]))
    accepting = re.search(r"ledgerStart=(trust-ledger:0)", refused(heir, 5, [[b"x"]]))[1]
    text = refused(replace(green, ledger_start=LedgerStart.parse(accepting)), 5, [[b"x"]])
    heir = with_way_out(green, text)
    heir.run(5, [[b"x"]])
    assert committed(broker) == {b"a": 1, b"b": 1, b"x": 1}, "its checkpoint is at batch 5"


def test_a_restored_checkpoint_has_the_same_query(broker, blue):
    blue.run(0, [[b"0"]])
    blue.run(0, [[b"0"]])
    blue.run(1, [[b"1"]])
    assert committed(broker) == {b"0": 1, b"1": 1}


def test_incident_a_query_went_on_with_another_topic_without_a_word(broker, blue, caplog):
    blue.run(0, [[b"0"]])
    replace(blue, topic="other").run(1, [[]])
    replace(blue, topic="other").run(2, [[]])
    (line,) = [each.getMessage() for each in caplog.records if "was written to" in each.getMessage()]
    told = "The last batch under the name app, batch 0 of blue, was written to topic out, and the next one goes to "
    assert line == f"{told}topic other."
