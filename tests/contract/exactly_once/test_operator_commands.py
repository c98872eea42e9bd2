"""What the operator's command says and does."""

import io
import json
import re
import socket
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.exactly_once import ledger_format
from spark_kafka_sink.exactly_once.decisions import done
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError, FencedRunError, LostRowsError
from spark_kafka_sink.exactly_once.ledger_format import LedgerRecord, LedgerWrite
from spark_kafka_sink.exactly_once.operator_commands import forget_done
from spark_kafka_sink.exactly_once.session import Session
from spark_kafka_sink.exactly_once.values import (
    Entry,
    EntryState,
    RowChecksum,
    TaskOutcome,
    WriteKind,
    WritePlan,
    WriteRun,
)
from spark_kafka_sink.tools.cli.main import main
from tests.contract import scenario
from tests.contract.brokers import broker_with
from tests.contract.exactly_once.runs import LEDGER, TOPIC, Query, committed
from tests.contract.exactly_once.test_protocol import EACH_ONCE, MORE, ROWS
from tests.faults.exactly_once.reader import is_open, read_committed
from tests.support.kafka_versions import TEST_BROKER, on_kafka
from tests.support.waiting import DEADLINE_S

# max.block.ms is the only option that can end a command within the time that a test has.
BRIEF = [
    f"--command-property={option}"
    for option in ("max.block.ms=1000", "request.timeout.ms=3600000", "delivery.timeout.ms=7200000")
]
ANSWERS = {"list": [], "commit": ["--yes"], "abort": ["--yes"]}
broker = broker_with(TOPIC, partitions=2, like=["4.1", "3.5"])
"""Each transaction protocol."""


def run(broker, capsys, action, *more):
    """Runs ``transactions``; its exit code and what it printed."""
    code = main(
        ["transactions", action, "--bootstrap-server", broker.bootstrap_servers, "--ledger-topic", LEDGER, *more]
    )
    said = capsys.readouterr()
    return code, said.out + said.err


@pytest.fixture
def transactions(broker, capsys):
    return lambda action, *more: run(broker, capsys, action, *more)


@pytest.fixture
def command(transactions):
    """``transactions`` for the prefix app, with every question answered by yes."""
    return lambda action, *more: transactions(action, "--prefix", "app", *ANSWERS[action], *more)


@contextmanager
def foreign_transaction(broker, transactional_id, topic=TOPIC):
    """Another application's, which is open."""
    config = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": transactional_id}
    with KafkaProducer(config) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(ProducerRecord(topic, b"foreign"))
        producer.flush()
        yield


@pytest.fixture
def decided(broker, query):
    """A query whose driver died with its intent recorded."""
    reports = query.tasks(query.plan(), 0, ROWS)
    query.commit_killed_at(reports)
    assert committed(broker) == {}
    return query


def test_incident_list_said_1_tasks_and_not_which_topics(transactions, query):
    query.run(0, [[b"one"]])
    assert "  q1: batch 0, done, 1 task, 1 row to out, decided" in transactions("list")[1]


HOSTILE = [
    ('["evil","q"]', {"time": (1 << 63) - 1}),
    ('["evil","q"]', {"time": 253_402_300_800_000}),
    ('["evil","q"]', {"target": "\x1b[2J"}),
    ('["evil","q"]', {"stage": "intent", "markers": [11, 0], "tasks": [[1, "0" * 16, "evil-\ud800-0", 7, 2, 5, 0]]}),
    ('["evil\\ud800","q"]', {}),
    ('["evil","\\ud800"]', {}),
    ('["evil\\u001b[2J","q"]', {}),
    ('["evil","\\u001b[2J"]', {}),
]


@pytest.mark.parametrize(("key", "change"), HOSTILE)
def test_one_hostile_record_takes_the_commands_down_for_no_other(broker, command, transactions, query, key, change):
    query.run(0, ROWS)
    query.task(query.plan(), 1, 5, [b"left"])
    value = {"version": 2, "kind": "query", "stage": "done", "batch": 1, "time": 1, "tasks": [], **change}
    evil = Query(broker.bootstrap_servers, "evil")
    with closing(Session(evil.settings, SystemClock())) as session:
        deadline = session.deadline(1_000 * DEADLINE_S)
        write = LedgerWrite((LedgerRecord(key.encode(), json.dumps(value).encode()),))
        session.record_write(session.init_driver(deadline), write, deadline)
    code, said = transactions("list")
    assert (code, "q1: batch 0, done" in said) == (0, True)
    assert said.replace("\n", "").isprintable()
    assert command("commit") == (0, "nothing to commit\n")
    assert command("abort")[0] == 0
    assert broker.transaction_state("app-5") != "Ongoing"


def test_a_transactional_id_that_a_terminal_would_obey_is_nobodys(broker, transactions, query):
    query.run(0, ROWS)
    for each in ("a\x1b[2J-driver", "a\x1b[2J-0"):
        with foreign_transaction(broker, each):
            code, said = transactions("list")
            assert (code, said.replace("\n", "").isprintable(), said[-21:]) == (0, True, "\n0 transactions open\n")


def test_a_stream_that_has_a_name_is_shown_with_it(broker, transactions):
    query = Query(broker.bootstrap_servers, query_name="orders")
    query.run(0, ROWS)
    assert "  q1 (orders): batch 0, done, 3 tasks, 3 rows to out, decided" in transactions("list")[1]
    reports = query.tasks(query.plan(), 1, ROWS)
    query.commit_killed_at(reports)
    shown = transactions("list")[1]
    assert "  q1 (orders): batch 1, intent" in shown
    assert "decided with batch 1 of q1 (orders): commit" in shown
    assert transactions("commit", "--prefix", "app", "--yes")[1].endswith("committed batch 1 of q1 (orders)\n")
    assert "  q1 (orders): batch 1, done" in transactions("list")[1]


@pytest.mark.parametrize("action", ["list", "commit", "abort", "forget"])
@pytest.mark.parametrize("given", ["q1", "ap", "apps"], ids=["query id", "shorter", "longer"])
def test_a_mistaken_name_is_not_told_that_there_is_nothing(transactions, decided, action, given):
    """Somebody typed the txnAppId of a job that had open transactions, and read "nothing to abort"."""
    code, said = transactions(action, "--prefix", given)
    assert code == 1
    assert said.endswith(
        f"--prefix {given}: no entry of the ledger and no open transaction has this name; did you mean app?\n"
    )


def test_a_name_that_nothing_is_like_has_nothing(transactions, decided):
    """As of a batch job whose entry was removed at its end."""
    assert transactions("commit", "--prefix", "somebody-elses") == (0, "nothing to commit\n")


@on_kafka("4.4.0", "3.9.1", TEST_BROKER)
def test_what_is_decided_is_committed_and_what_is_open_is_aborted_after_it(cluster, capsys):
    """A third transaction is that of somebody whose prefix only begins like it. What an operator types at night."""
    servers, prefix = cluster.bootstrap_servers, scenario.name("night")
    topics = decided, opened, foreign = [f"{prefix}-{each}" for each in ("decided", "open", "foreign")]
    for topic in topics:
        cluster.create_topic(topic)
    query = Query(servers, prefix, topic=decided, options={"request.timeout.ms": 10_000})
    plan = query.plan()
    reports = query.tasks(plan, 0, [[b"a"], [b"b"]])
    replace(query, topic=opened).task(plan, 0, 5, [b"open"])
    query.commit_killed_at(reports)

    def command(action):
        return run(cluster, capsys, action, "--prefix", prefix, *ANSWERS[action])

    with foreign_transaction(cluster, f"{prefix}-more-0", foreign):
        for _ in range(2):
            code, said = command("list")
            lines = {line.split()[0]: line for line in said.splitlines()}
            assert (code, said.splitlines()[-1]) == (0, "3 transactions open")
            assert "q1: batch 0, intent, 2 tasks, 2 rows" in said
            assert all(lines[f"{prefix}-{task}"].endswith("decided with batch 0 of q1: commit") for task in (0, 1))
            assert "not decided: its run is still writing, or is dead; abort would" in lines[f"{prefix}-5"]
            assert "more" not in said
        code, said = command("abort")
        refusal = f"Under the name {prefix} batch 0 of q1 is decided and not committed yet: commit it"
        assert (code, refusal in said) == (1, True)
        assert all(is_open(servers, topic) for topic in topics)
        assert command("commit") == (0, f"commit batch 0 of q1: {prefix}-0, {prefix}-1\ncommitted batch 0 of q1\n")
        assert is_open(servers, opened)
        assert command("commit") == (0, "nothing to commit\n")
        assert command("abort") == (0, f"abort {prefix}-5\naborted 1 transaction\n")
        assert [read_committed(servers, topic)[0] for topic in (decided, opened)] == [[b"a", b"b"], []]
        assert is_open(servers, foreign)


def test_commit_finishes_what_it_can_before_it_tells_what_is_gone(broker, command, decided):
    """Of two batches that are decided one is torn: the other one's rows need not wait for its replay."""
    other = Query(broker.bootstrap_servers, query="q2")
    with closing(Session(other.settings, SystemClock())) as session:
        deadline = session.deadline(1_000 * DEADLINE_S)
        driver = session.init_driver(deadline)
        share = other.task(
            WritePlan(WriteRun("app", session.ledger.partitions, driver, True)), 0, 3, [b"other"]
        ).outcome
        place = session.ledger.partitions.marker_partition
        entry = Entry("q2", 0, EntryState.INTENT, (*[TaskOutcome(RowChecksum())] * 3, share), marker_partition=place)
        session.record(driver, entry, deadline)
        broker.expire_transaction("app-1")
        code, said = command("commit")
        assert code == 1
        assert "batch 0 of q1: tasks 1" in said
        assert "Committed: batch 0 of q2." in said
        assert session.ledger.read(deadline).entries["q2"] == done(entry)
    assert committed(broker) == {b"a": 1, b"b": 1, b"other": 1}


def test_abort_by_force_commits_what_is_decided(broker, command, decided):
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


@pytest.fixture
def busy(broker):
    """Three writes whose drivers are dead, nothing of them decided, and another application's transaction."""
    servers = broker.bootstrap_servers
    stream = Query(servers, "app")
    stream.run(0, ROWS)
    stream.task(stream.plan(), 1, 5, [b"stream"])
    version = Query(servers, "mine-nightly", "mine-nightly", WriteKind.VERSION)
    version.task(version.plan(3), 3, 0, [b"version"])
    weekly = Query(servers, "mine-weekly", "mine-weekly", WriteKind.VERSION)
    weekly.task(weekly.plan(), 0, 0, [b"weekly"])
    with foreign_transaction(broker, "app-more-0"):
        yield broker


def test_list_finds_every_write_without_being_told_a_name(busy, transactions):
    code, said = transactions("list")
    assert code == 0
    lines = said.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == [
        "app (query)",
        "mine-nightly (no entry)",
        "mine-weekly (no entry)",
        "3 transactions open",
    ]
    lines_of = {line.split()[0]: line for line in lines if line.startswith(" ")}
    assert "batch 0, done, 3 tasks, 3 rows to out, decided 20" in lines_of["q1:"]
    opened = [each for each in lines_of if each.startswith(("app", "mine"))]
    assert opened == ["app-5", "mine-nightly-0", "mine-weekly-0"]
    for each in opened:
        assert re.search(
            r"open since 20\d\d-\S+ \S+ UTC \(\d+ s ago\): not decided: its run is still writing, or", lines_of[each]
        )


def test_incident_abort_ended_what_was_decided_in_another_ledger(broker, transactions, query):
    """The command was given the default one. Now it names the write's."""
    query.run(0, ROWS)
    other = replace(query, ledger="__other")
    reports = other.tasks(other.plan(), 0, ROWS)
    other.commit_killed_at(reports)
    doubt = f"not in {LEDGER}: another ledger, perhaps __other, may have decided it; give that as --ledger-topic"
    assert f"app-0 (producer id {reports[0].outcome.prepared.producer_id}, " in transactions("list")[1]
    assert transactions("list")[1].count(doubt) == 2
    for how in ("--dry-run", "--yes"):
        code, said = transactions("abort", "--prefix", "app", how)
        assert (code, f"app-0 is {doubt}" in said) == (1, True)
    assert {broker.transaction_state(f"app-{task}") for task in (0, 1)} == {"Ongoing"}
    assert transactions("commit", "--prefix", "app", "--yes", "--ledger-topic", "__other")[0] == 0
    assert committed(broker) == dict.fromkeys(EACH_ONCE, 2)


def test_what_another_ledger_may_have_decided_is_aborted_by_force(broker, transactions, query):
    query.run(0, ROWS)
    replace(query, ledger="__other").task(replace(query, ledger="__other").plan(), 0, 5, [b"x"])
    assert transactions("abort", "--prefix", "app", "--yes", "--force")[1].endswith("aborted 1 transaction\n")
    assert broker.transaction_state("app-5") != "Ongoing"


def test_a_name_is_that_write_and_no_other(busy, transactions):
    assert transactions("abort", "--prefix", "mine", "--yes") == (0, "nothing to abort\n")
    assert transactions("abort", "--prefix", "mine-nightly", "--yes")[1].endswith("aborted 1 transaction\n")
    assert busy.transaction_state("mine-nightly-0") != "Ongoing"
    assert {busy.transaction_state(each) for each in ("app-5", "app-more-0", "mine-weekly-0")} == {"Ongoing"}


def test_a_dry_run_shows_what_abort_would_do_and_does_nothing(busy, transactions):
    assert transactions("abort", "--prefix", "app", "--dry-run") == (0, "would abort app-5\n")
    assert busy.transaction_state("app-5") == "Ongoing"


def test_a_dry_run_shows_what_commit_would_do_and_fences_nobody(broker, transactions, decided):
    steps = "would commit batch 0 of q1: app-0, app-1\n"
    assert transactions("commit", "--prefix", "app", "--dry-run") == (0, steps)
    assert transactions("abort", "--prefix", "app", "--force", "--dry-run") == (0, steps)
    code, said = transactions("abort", "--prefix", "app", "--dry-run")
    assert (code, "commit it" in said) == (1, True)
    assert committed(broker) == {}


def test_without_a_terminal_nobody_is_fenced_unless_told(broker, transactions, query, monkeypatch, decided):
    monkeypatch.setattr("sys.stdin", io.StringIO("yes\n"))
    code, said = transactions("commit", "--prefix", "app")
    assert code == 1
    assert "This fences app-driver: a running query or job with this transactional id fails" in said
    assert "confirm with --yes" in said
    assert committed(broker) == {}


CTRL_D = None


@pytest.mark.parametrize(("answer", "rows"), [("y", EACH_ONCE), ("n", {}), ("", {}), (CTRL_D, {})])
def test_at_a_terminal_it_asks_before_it_fences(broker, transactions, monkeypatch, decided, answer, rows):
    asked = []

    def asks(question):
        asked.append(question)
        if answer is CTRL_D:
            raise EOFError
        return answer

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", asks)
    code, said = transactions("commit", "--prefix", "app")
    assert (code, committed(broker)) == (0 if rows else 1, rows)
    assert "fences app-driver" in asked[0]
    assert said.startswith("commit batch 0 of q1: app-0, app-1\n")


def test_incident_abort_did_not_say_that_the_job_still_runs(broker, transactions, query, monkeypatch):
    """Its later tasks went on, and what they had open stayed so."""
    query.run(0, ROWS)
    plan = query.plan()
    query.task(plan, 1, 0, MORE[0])

    def answer(question):
        query.task(plan, 1, 1, MORE[1])
        return "y"

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", answer)
    code, said = transactions("abort", "--prefix", "app")
    assert (code, "app is still running" in said, "aborted 2 transactions" in said) == (0, True, True)
    with pytest.raises(FencedRunError, match="Another driver has fenced app-driver"):
        query.task(plan, 1, 2, [b"late"])
    assert committed(broker) == EACH_ONCE


def test_what_has_nothing_to_do_fences_nobody(broker, command, query):
    reports = query.tasks(query.plan(), 0, ROWS)
    assert command("commit") == (0, "nothing to commit\n")
    query.commit(reports)
    assert committed(broker) == EACH_ONCE


@pytest.mark.parametrize("action", ["list", "commit", "abort"])
def test_a_dead_broker_does_not_keep_it_past_its_deadline(capsys, action):
    with socket.create_server(("127.0.0.1", 0)) as dead:  # connections are accepted, and nothing is ever answered
        server = f"127.0.0.1:{dead.getsockname()[1]}"
        arguments = ["--bootstrap-server", server, "--prefix", "app"]
        assert main(["transactions", action, *arguments, *BRIEF]) == 1
    assert "No broker has responded (bootstrap.servers=" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["commit", "abort"])
def test_what_a_later_release_decided_is_left_alone_and_the_rest_is_listed(broker, transactions, query, action):
    query.run(0, ROWS)
    later = Query(broker.bootstrap_servers, "later", "q9")
    later.run(0, ROWS)
    later.task(later.plan(), 1, 0, [b"later"])
    with closing(Session(later.settings, SystemClock())) as session:
        deadline = session.deadline(1_000 * DEADLINE_S)
        entry = session.ledger.read(deadline).entries["q9"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ledger_format, "VERSION", 99)
            session.record(session.init_driver(deadline), entry, deadline)
    code, said = transactions("list")
    assert code == 0
    assert "cannot be read: " in said
    assert "q1: batch 0, done" in said
    code, said = transactions(action, "--prefix", "later", "--yes")
    assert (code, "is of version 99" in said) == (1, True)
    assert broker.transaction_state("later-0") == "Ongoing"


@pytest.mark.parametrize("foreign", ["x-None-0", "flink-nightly-0"])
def test_no_command_ends_what_only_looks_like_a_writes(busy, transactions, foreign):
    with foreign_transaction(busy, foreign):
        for prefix in ("app", "flink", "mine-nightly"):
            assert transactions("abort", "--prefix", prefix, "--yes")[0] == 0
        assert busy.transaction_state(foreign) == "Ongoing"
        assert busy.transaction_state("mine-nightly-0") != "Ongoing"
        assert "x-None" not in transactions("list")[1]


# -- forget -----------------------------------------------------------------------------------------------------------


def version_of(broker, name, number=3, rows=ROWS):
    """A job with txnAppId; its last version is done."""
    job = Query(broker.bootstrap_servers, name, name, WriteKind.VERSION)
    job.run(number, rows)
    return job


def records_of(broker, name):
    """The keys under a name that have a value: entries, and markers of its tasks."""
    values = {}
    for record in broker.topic(LEDGER).records(read_committed=True):
        values[record.key] = record.value
    return sorted(key.decode() for key, value in values.items() if value is not None and f'"{name}"' in key.decode())


def test_forget_removes_the_entry_of_a_version_and_its_markers(broker, transactions):
    job, other = version_of(broker, "run-1"), version_of(broker, "run-2")
    assert len(records_of(broker, "run-1")) == 3
    code, said = transactions("forget", "--prefix", "run-1", "--yes")
    assert (code, said.splitlines()[-1]) == (0, "removed 1 entry")
    assert "forget run-1: run-1: txnVersion 3, done, 3 tasks, 3 rows" in said
    assert records_of(broker, "run-1") == []
    assert len(records_of(broker, "run-2")) == 3
    assert other.run(3, ROWS).entry is None, "the other's version is known"
    job.run(3, ROWS)
    assert committed(broker) == dict.fromkeys(EACH_ONCE, 3), "as the command says: its rows are doubled"


def test_forget_says_what_a_forgotten_version_does_and_a_dry_run_removes_nothing(broker, transactions):
    job = version_of(broker, "run-1")
    code, said = transactions("forget", "--prefix", "run-1", "--dry-run")
    assert (code, said.splitlines()[0][:47]) == (0, "would forget run-1: run-1: txnVersion 3, done, ")
    assert said.splitlines()[1].startswith("A txnVersion that runs again after its entry was removed writes its rows t")
    assert len(records_of(broker, "run-1")) == 3
    reports = job.tasks(job.plan(4), 4, MORE)
    assert transactions("forget", "--prefix", "run*", "--dry-run")[0] == 0
    job.commit(reports)
    assert committed(broker)[b"d"] == 1, "a dry run fences nobody"


def test_forget_takes_every_name_that_begins_so(broker, transactions):
    for name in ("run-1", "run-2", "other"):
        version_of(broker, name, rows=[[]])
    assert transactions("forget", "--prefix", "run-*", "--yes")[1].splitlines()[-1] == "removed 2 entries"
    assert transactions("forget", "--prefix", "run-*", "--yes") == (0, "nothing to forget\n")
    assert records_of(broker, "other") == ['["other","other"]']


def test_forget_takes_only_what_is_older(broker, transactions, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(SystemClock, "epoch_ms", lambda clock, now=SystemClock.epoch_ms: now(clock) - 40 * 86_400_000)
        version_of(broker, "old", rows=[[]])
    version_of(broker, "new", rows=[[]])
    code, said = transactions("forget", "--older-than", "30", "--yes")
    assert (code, said.splitlines()[-1]) == (0, "removed 1 entry")
    assert (records_of(broker, "old"), len(records_of(broker, "new"))) == ([], 1)


def test_forget_keeps_what_is_not_done(broker, transactions, decided):
    code, said = transactions("forget", "--prefix", "app", "--yes")
    assert code == 1
    kept = "app is kept: batch 0 of q1 is decided and not committed yet: `commit` commits it, "
    assert said == f"{kept}`abort --force` gives up lost rows\nnothing to forget\n"
    assert [transactions(action, "--prefix", "app", "--yes")[0] for action in ("commit", "forget")] == [0, 0]
    assert committed(broker) == EACH_ONCE


def test_forget_keeps_what_a_driver_decides_meanwhile(broker, query):
    """It has read the entry as done before; its own transaction is of the same driver id."""
    query.run(0, ROWS)
    reports = query.tasks(query.plan(), 1, MORE)
    with closing(Session(query.settings, SystemClock())) as session:
        query.commit_killed_at(reports)
        assert forget_done(session, 1 << 62, session.deadline(5_000)) == []
    query.run(1, MORE)
    assert committed(broker) == {**EACH_ONCE, b"d": 1, b"e": 1}


def test_a_driver_that_decides_after_forget_is_fenced(broker, query):
    query.run(0, ROWS)
    reports = query.tasks(query.plan(), 1, MORE)
    with closing(Session(query.settings, SystemClock())) as session:
        assert [entry.number for entry in forget_done(session, 1 << 62, session.deadline(5_000))] == [0]
    with pytest.raises(ExactlyOnceError, match="fenced"):
        query.commit(reports)
    with pytest.raises(ExactlyOnceError, match="trust-checkpoint:1"):
        query.run(1, MORE)
    assert committed(broker) == EACH_ONCE


def test_forget_keeps_a_write_with_open_transactions(broker, transactions, query):
    query.run(0, ROWS)
    reports = query.tasks(query.plan(), 1, MORE)
    said = transactions("forget", "--prefix", "app", "--yes")[1]
    assert said.startswith("app is kept: 2 transactions are open, so it may be running")
    query.commit(reports)
    assert committed(broker) == {**EACH_ONCE, b"d": 1, b"e": 1}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (["commit", "--yes"], "commit needs --prefix; the action list shows them"),
        (["abort", "--yes"], "abort needs --prefix; the action list shows them"),
        (["forget"], "forget needs --prefix, --older-than or both"),
        (["abort", "--prefix", "app", "--older-than", "3"], "--older-than is for forget only"),
    ],
)
def test_a_command_needs_to_be_told_what(transactions, line, says):
    code, said = transactions(*line)
    assert (code, says in said) == (1, True)
