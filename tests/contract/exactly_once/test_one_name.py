"""What a run does that finds a write of the other kind under its name."""

from dataclasses import replace

import pytest

from spark_kafka_sink.exactly_once import session
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError, PlanningError
from spark_kafka_sink.exactly_once.session import close_sessions
from spark_kafka_sink.exactly_once.values import WriteKind
from tests.contract.exactly_once import runs
from tests.contract.exactly_once.runs import Query, committed
from tests.contract.exactly_once.test_protocol import EACH_ONCE, MORE, ROWS


@pytest.fixture
def job(query):
    """A batch write with the name of the query."""
    return replace(query, query=query.name, kind=WriteKind.VERSION)


def test_incident_a_kept_session_fenced_a_run_of_the_other_kind_before_it_was_refused(broker, query, job):
    """The first attempt of the job failed before there was an entry, and its process was kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "new_process", lambda: None)
        job.plan(1)
        of_job = session._sessions
        patch.setattr(session, "_sessions", {})
        query.run(0, ROWS)
        reports = query.tasks(query.plan(), 1, MORE)
        close_sessions()
        patch.setattr(session, "_sessions", of_job)
        text = r"app is that of a query in the ledger \(batch 0 of q1\), .*a batch write"
        with pytest.raises(PlanningError, match=text):
            job.plan(1)
    query.commit(reports)
    assert committed(broker) == {**EACH_ONCE, b"d": 1, b"e": 1}


def test_a_query_under_a_batch_writes_name_is_refused(broker, query, job):
    job.run(5, ROWS)
    with pytest.raises(PlanningError, match=r"app is that of a batch write .*\(txnVersion 5 of app\), and this is"):
        query.plan()
    job.run(6, MORE)
    assert committed(broker) == {**EACH_ONCE, b"d": 1, b"e": 1}


def test_before_there_is_an_entry_a_query_and_a_batch_write_fence_each_other(broker, query, job):
    reports = query.tasks(query.plan(), 0, ROWS)
    later = job.tasks(job.plan(1), 1, MORE)
    with pytest.raises(ExactlyOnceError, match=r"Another driver has fenced app-driver: .*another one of the same name"):
        query.commit(reports)
    job.commit(later)
    assert committed(broker) == {b"d": 1, b"e": 1}


def test_names_that_end_in_a_number_or_driver_have_nothing_to_do_with_each_other(broker):
    queries = [Query(broker.bootstrap_servers, name) for name in ("x", "x-3", "x-driver", "x-3-7")]
    for query in queries:
        query.run(0, [[b"0"], [b"0"]])
    reports = [query.tasks(query.plan(), 1, [[b"1"]] * 4) for query in queries]
    for query in queries[::2]:
        query.run(1, [[b"2"]] * 8)  # fences its own first run, and sweeps what that has open
    for query, each in list(zip(queries, reports, strict=True))[1::2]:
        query.commit(each)
    assert committed(broker) == {b"0": 8, b"1": 8, b"2": 16}
