"""How a process that has read the ledger before goes on reading it."""

from contextlib import closing

import pytest

from spark_kafka_sink.clock import SystemClock
from spark_kafka_sink.commit.session import Session
from tests.unit.commit.runs import LEDGER, Query

DEADLINE_MS = 5_000


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
    assert read(session).committed("q1", 1, 0)
    broker.delete_topic(LEDGER)
    other = Query(broker.bootstrap_servers, query="q2")
    for number in range(batches):
        other.run(number, [[b"b"]])
    view = read(session)
    assert {query: entry.number for query, entry in view.entries.items()} == {"q2": batches - 1}
    assert not view.committed("q1", 1, 0)
