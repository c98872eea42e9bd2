"""Every way out that an error names leads out: it is taken as the text says it, and the write goes on."""

import re
import shlex
from dataclasses import replace

import pytest

from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.exactly_once.values import LedgerStart, WriteKind
from spark_kafka_sink.tools.cli.main import main
from tests.contract.exactly_once.runs import LEDGER, Query, committed, new_process
from tests.contract.exactly_once.test_protocol import EACH_ONCE, MORE, ROWS
from tests.contract.exactly_once.test_topics_created_again import create_again

NEXT = {b"d": 1, b"e": 1}
OTHER_ROWS = [[b"a", b"c"], [b"b"], []]


pytestmark = pytest.mark.parametrize("broker", ["4.1"], indirect=True)


@pytest.fixture(autouse=True)
def brokers_that_know_new_topics_at_once(monkeypatch):
    monkeypatch.setattr("spark_kafka_sink.exactly_once.commit.LAG_MS", 100.0)


def refused(query, number, rows):
    with pytest.raises(ExactlyOnceError) as told:
        query.run(number, rows)
    return str(told.value)


def take(query, text, *ways):
    """``ways``: in this order, the beginning of a ledgerStart, or the action of a command, that the text names."""
    for way in ways:
        if way.startswith("trust"):
            query = replace(query, ledger_start=LedgerStart.parse(re.search(rf"ledgerStart=({way}:\d+)", text)[1]))
        else:
            command = re.search(rf"`spark-kafka-sink (transactions {way} [^`]*)`", text)[1]
            where = ["--bootstrap-server", query.servers, "--ledger-topic", LEDGER]
            assert main([*shlex.split(command), *where, "--yes"]) == 0
            new_process()
    return query


def commit_torn(broker, query, number=0):
    """Task 1 loses its row after the decision."""
    reports = query.tasks(query.plan(number), number, ROWS)
    with pytest.raises(ExactlyOnceError, match="are gone"):
        query.commit(reports, lambda: broker.expire_transaction(f"{query.name}-1"))


# By name: the batches before, the batch that is refused with its rows, the way out, and what is visible then.
KEPT = {b"a": 1, b"b": 1}
CASES = {
    "no entry": ((), (3, ROWS), ["trust-checkpoint"], EACH_ONCE),
    "a gap": (("run",), (2, MORE), ["trust-checkpoint"], {**EACH_ONCE, **NEXT}),
    "other rows": (("run",), (0, OTHER_ROWS[:1]), ["trust-ledger"], EACH_ONCE),
    "torn, other rows": (("torn",), (0, OTHER_ROWS), ["trust-ledger"], KEPT),
    "torn, fewer tasks": (("torn",), (0, ROWS[:2]), ["trust-ledger"], KEPT),
    "torn, the next batch": (("torn",), (1, MORE), ["trust-ledger"], {**KEPT, **NEXT}),
    "topic": (("run", "topic"), (0, ROWS), ["trust-ledger"], {}),
    "topic, written again": (("run", "topic"), (0, ROWS), ["forget", "trust-checkpoint"], EACH_ONCE),
    "topic, torn": (("torn", "topic"), (0, ROWS), ["trust-ledger"], {}),
    "topic, torn, written again": (
        ("torn", "topic"), (0, ROWS), ["abort", "forget", "trust-checkpoint"], EACH_ONCE,
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("case", "kind"),
    [(case, WriteKind.MICRO_BATCH) for case in CASES]
    + [(case, WriteKind.VERSION) for case in CASES if case not in ("no entry", "a gap")],
)
def test_each_way_out_of_a_refused_batch_leads_on(broker, case, kind):
    query = Query(broker.bootstrap_servers, "app", "app", kind)
    before, (number, rows), ways, visible = CASES[case]
    for step in before:
        steps = {"run": lambda: query.run(0, ROWS), "torn": lambda: commit_torn(broker, query)}
        steps.get(step, lambda: create_again(broker))()
    text = refused(query, number, rows)
    query = take(query, text, *ways)
    query.run(number, rows)
    assert committed(broker) == visible
    query.run(number + 1, [[b"next"]])
    assert committed(broker) == {**visible, b"next": 1}


def test_incident_the_version_of_a_day_without_rows_was_never_written(broker):
    """The job ran before its data had arrived."""
    job = Query(broker.bootstrap_servers, "nightly", "nightly", WriteKind.VERSION)
    job.run(20250131, [[], []])
    job.run(20250131, ROWS)
    job.run(20250131, ROWS)
    assert committed(broker) == EACH_ONCE
    accepting = replace(job, ledger_start=LedgerStart.parse("trust-ledger:20250201"))
    accepting.run(20250201, [[]])
    accepting.run(20250201, MORE)
    assert committed(broker) == EACH_ONCE, "accepted as committed, with no rows"


@pytest.mark.parametrize("way", ["larger", "txnAppId", "forget"])
def test_incident_a_mistyped_version_that_was_too_large_had_no_way_out(broker, way):
    job = Query(broker.bootstrap_servers, "nightly", "nightly", WriteKind.VERSION)
    job.run(202501311, ROWS)
    text = refused(job, 20250201, MORE)
    assert "use a larger txnVersion, or for a day that was left out, a txnAppId of its own" in text
    if way == "forget":
        take(job, text, "forget").run(20250201, MORE)
        job.run(20250202, [[b"next"]])
    elif way == "txnAppId":
        replace(job, name="nightly-2", query="nightly-2").run(20250201, MORE)
        job.run(202501312, [[b"next"]])
    else:
        job.run(202502010, MORE)
        job.run(202502020, [[b"next"]])
    assert committed(broker) == {**EACH_ONCE, **NEXT, b"next": 1}


def test_a_version_whose_rows_are_lost_is_run_again_before_the_next_one(broker):
    job = Query(broker.bootstrap_servers, "nightly", "nightly", WriteKind.VERSION)
    commit_torn(broker, job, 7)
    assert "Run it again with txnVersion 7, then this one" in refused(job, 8, MORE)
    job.run(7, ROWS)
    job.run(8, MORE)
    assert committed(broker) == {**EACH_ONCE, **NEXT}
