"""What the ledger's log adds up to, record by record and batch by batch."""

import json
from dataclasses import replace
from uuid import UUID

import pytest

from spark_kafka_sink.errors import CorruptRecordError
from spark_kafka_sink.exactly_once import values as v
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.exactly_once.ledger_format import (
    barrier_record,
    entry_record,
    marker_record,
    raw_batches,
    read_entry,
    read_key,
)
from spark_kafka_sink.exactly_once.ledger_view import LedgerView, MarkerOutcomes
from spark_kafka_sink.producer.transaction_requests import PreparedTransaction, TransactionalIdentity
from spark_kafka_sink.records.batch import TRANSACTIONAL
from tests.unit.exactly_once.raw_log import ABORT, COMMIT, RawLog

PREPARED = PreparedTransaction("app-0", 7, 2, 5)
SHARES = (v.TaskOutcome(v.RowChecksum(2, 2**64 - 1), PREPARED, 77), v.TaskOutcome(v.RowChecksum()))
ENTRY = v.Entry("q", 4, v.EntryState.INTENT, SHARES, 123, marker_partition=13, old_marker_count=40)
MARKER = v.Marker("q", 4, 0, v.RowChecksum(2, 9))
TOMBSTONE = None


def read_record(name, key, value):
    """The entry under a key of this name; None for another's."""
    parsed = read_key(key)
    if parsed is None or parsed.name != name or parsed.query is None:
        return None
    return read_entry(parsed, value)


@pytest.fixture
def view():
    return LedgerView("app")


TOPICS = (v.TopicId("a", UUID(int=0)), v.TopicId("b", UUID("ffffffff-ffff-4fff-bfff-fffffffffff0")))
SCHEMAS = (
    v.SchemaId("key", "t-key", 7),
    v.SchemaId("value", "t-value", 2**31 - 1),
    v.SchemaId("value", "u", UUID(int=7)),
)


def attempts(transactional_id):
    return (v.TaskOutcome(v.RowChecksum(1, 1), PreparedTransaction(transactional_id, 7, 2, 5), 0),)


@pytest.mark.parametrize(
    "change",
    [
        {}, {"tasks": attempts("app-0.17")}, {"tasks": attempts("mine-app-0")}, {"target": v.Target("events")},
        {"target": v.Target(None)}, {"kind": v.WriteKind.VERSION},
        {"schemas": SCHEMAS}, {"topics": TOPICS}, {"query_name": "orders to Kafka"},
    ],
)  # fmt: skip
def test_what_is_written_is_read(change):
    entry = replace(ENTRY, **change)
    record = entry_record("app", entry)
    read = read_record("app", *record)
    assert read == entry
    # Apart from comparisons, as a done entry does not have them.
    assert [share.marker for share in read.tasks] == [share.marker for share in entry.tasks]
    assert (read.marker_partition, read.old_marker_count) == (13, 40)
    assert read_record("ap", *record) is None
    assert {"schemas", "topics", "query_name"} & json.loads(record.value).keys() == {*change} - {
        "tasks",
        "target",
        "kind",
    }


def test_the_ids_of_topics_are_kept_as_kafkas_tools_show_them():
    shown = json.loads(entry_record("app", replace(ENTRY, topics=TOPICS)).value)["topics"]
    assert shown == [["a", "A" * 22], ["b", "________T_-_________8A"]]


def test_an_intent_has_the_id_of_the_ledger_with_its_markers():
    key, value = entry_record("app", replace(ENTRY, ledger_id=UUID(int=0)))
    assert json.loads(value)["ledger"] == "A" * 22
    assert read_record("app", key, value).ledger_id == UUID(int=0)
    assert read_record("app", *entry_record("app", ENTRY)).ledger_id is None
    key, value = entry_record("app", replace(ENTRY, ledger_id=UUID(int=0)).done())
    assert "ledger" not in json.loads(value), "no marker is looked up any more"


def test_fields_of_later_releases_that_need_no_new_version_are_ignored():
    key, value = entry_record("app", ENTRY)
    assert read_record("app", key, json.dumps({**json.loads(value), "weather": "fine"}).encode()) == ENTRY


@pytest.mark.parametrize("version", [1, 3])
def test_another_releases_record_is_refused_not_misread(version):
    key, value = entry_record("app", ENTRY)
    later = json.dumps({**json.loads(value), "version": version}).encode()
    with pytest.raises(ExactlyOnceError, match=rf"is of version {version}, this release reads 2: .*the name 'app'"):
        read_record("app", key, later)


def apply(view, *steps):
    """Each step: a function that appends to the log."""
    log = RawLog()
    for step in steps:
        step(log)
    view.apply(log.take())


def written(producer, *records, **of_batch):
    return lambda log: log.records(producer, *records, **of_batch)


def ended(producer, how):
    return lambda log: log.end(producer, how)


def test_records_count_when_their_transaction_is_committed(view):
    apply(view, written(7, entry_record("app", ENTRY)))
    assert view.entries == {}
    apply(view, ended(7, COMMIT))
    assert view.entries == {"q": ENTRY}


def test_aborted_records_never_count(view):
    apply(view, written(7, entry_record("app", ENTRY)), ended(7, ABORT), ended(7, COMMIT))
    assert view.entries == {}


def test_one_open_transaction_hides_no_other(view):
    apply(view, written(8, marker_record("app", MARKER)), written(7, entry_record("app", ENTRY)), ended(7, COMMIT))
    assert view.entries == {"q": ENTRY}


def test_a_record_outside_of_any_transaction_decides_nothing(view):
    apply(view, written(-1, entry_record("app", ENTRY), attributes=0))
    assert view.entries == {}
    assert view.foreign == 1


def test_a_barrier_is_not_foreign(view):
    apply(view, written(-1, barrier_record("app"), barrier_record("other"), attributes=0))
    assert view.foreign == 0


def test_a_removed_entry_leaves_nothing_to_finish(view):
    key, value = entry_record("app", ENTRY)
    apply(view, written(7, (key, value)), ended(7, COMMIT), written(7, (key, TOMBSTONE), epoch=3), ended(7, ABORT))
    assert view.entries == {"q": ENTRY}, "aborted tombstones remove nothing"
    apply(view, written(7, (key, TOMBSTONE), epoch=4), ended(7, COMMIT))
    assert view.entries == {}
    assert view.removed == {"q"}
    apply(view, written(7, (key, value), epoch=5), ended(7, COMMIT))
    assert (view.entries, view.removed) == ({"q": ENTRY}, set())


def test_a_transaction_whose_end_compaction_removed_is_not_ended_by_the_next_one(view):
    """Its epoch is older, so it was aborted: a committed one keeps its control record as long as its records."""
    other = replace(ENTRY, query="q2")
    apply(view, written(7, entry_record("app", ENTRY)))
    apply(view, written(7, entry_record("app", other), epoch=3), ended(7, COMMIT))
    assert view.entries == {"q2": other}


@pytest.mark.parametrize(
    "value", [b"{", b"[" * 3000 + b"]" * 3000, b'{"version":3}', b"", b"{}", b"[]", b'{"version":2}', b"\xff"]
)
def test_what_cannot_be_read_under_our_key_is_refused_once_it_is_committed(view, value):
    """The entry before it does not come back to life."""
    apply(view, written(7, entry_record("app", ENTRY)), ended(7, COMMIT))
    key = b'["app","q"]'
    apply(view, written(8, (key, value)), ended(8, ABORT))
    assert view.entries == {"q": ENTRY}
    apply(view, written(8, (key, value)), ended(8, COMMIT))
    with pytest.raises(ExactlyOnceError, match=r"no release of this sink has written|another release"):
        view.entries  # noqa: B018
    other = LedgerView("other")
    apply(other, written(8, (key, value)), ended(8, COMMIT))
    assert other.entries == {}, "another name is not concerned"
    apply(view, written(7, entry_record("app", ENTRY), epoch=3), ended(7, COMMIT))
    assert view.entries == {"q": ENTRY}


@pytest.mark.parametrize(
    "change",
    [
        {"batch": 1 << 63}, {"batch": True}, {"time": -1}, {"stage": []}, {"target": 3}, {"markers": [1]},
        {"tasks": [[1, "0" * 16, "app-0", 1 << 63, 0, 5]]}, {"tasks": [[1, "0" * 16, "app-0", 1, 1 << 15, 5]]},
        {"tasks": [[-1, "0" * 16]]}, {"tasks": [[1, " 0x0 _1"]]}, {"tasks": "ab"}, {"tasks": [[1, "0" * 16, "app-0"]]},
        {"tasks": [[1, "0" * 16, "app-0", 7, 2, 5]]}, {"version": 0.5}, {"version": "x"}, {"version": -1},
        {"version": 0}, {"kind": "stream"}, {"kind": None},
        {"topics": [["out"]]}, {"topics": [["out", "A" * 21]]}, {"topics": [["out", "A" * 21 + "+"]]}, {"topics": 1},
        {"time": 253_402_300_800_000}, {"target": "\x1b[2J"}, {"tasks": [[1, "0" * 16, "app-\ud800", 7, 2, 5]]},
    ],
)  # fmt: skip
def test_values_out_of_range_are_refused(change):
    key, value = entry_record("app", ENTRY)
    with pytest.raises(ExactlyOnceError, match="no release of this sink has written"):
        read_record("app", key, json.dumps({**json.loads(value), **change}).encode())


FOREIGN = [
    b"[" * 3000 + b"]" * 3000, b"\x00\xff", b"9" * 5000, b"", b"{}", b'["app","q",0,0]', b'[["app"],"q"]',
    b'["app",["q"]]', b'["app","q",true]', b'["app","q",-1]', b'["app","q",1e400]', b'["app","\\ud800"]',
    b'["app\\u001b[2J","q"]',
]  # fmt: skip


@pytest.mark.parametrize("key", FOREIGN)
def test_a_foreign_key_is_passed_over_and_counted(view, key):
    apply(view, written(9, (key, b"x")), ended(9, COMMIT), written(7, entry_record("app", ENTRY)), ended(7, COMMIT))
    assert view.entries == {"q": ENTRY}
    assert view.foreign == 1


@pytest.mark.parametrize("codec", range(8))
def test_a_batch_that_does_not_decode_is_foreign(view, codec):
    apply(view, written(9, (b"x", b""), attributes=TRANSACTIONAL | codec, payload=b"nonsense"))
    apply(view, written(7, entry_record("app", ENTRY)), ended(7, COMMIT))
    assert view.entries == {"q": ENTRY}
    assert view.foreign == 1


def test_a_batch_that_was_damaged_is_an_error():
    log = RawLog()
    log.records(7, entry_record("app", ENTRY))
    (batch,) = log.take()
    data = bytearray(batch.data)
    data[-1] ^= 1
    with pytest.raises(CorruptRecordError, match="crc"):
        LedgerView("app").apply(raw_batches(data))


# -- what became of transactions that are gone ------------------------------------------------------------------------


def prepared(task, epoch=2):
    return PreparedTransaction(f"app-{task}", 100 + task, epoch, 5)


def outcomes_of(log, offsets):
    outcomes = MarkerOutcomes({task: (offset, prepared(task)) for task, offset in offsets.items()})
    outcomes.apply([batch for batch in log.take() if batch.header.last_offset >= outcomes.next_offset], log.next_offset)
    return outcomes


def marker(log, task, epoch=2):
    return log.records(100 + task, marker_record("app", replace(MARKER, task=task)), epoch=epoch)


def test_a_marker_whose_transaction_is_committed_says_so():
    log = RawLog(start=40)
    offsets = {task: marker(log, task) for task in (0, 1)}
    log.end(101, ABORT)
    log.end(100, COMMIT)
    outcomes = outcomes_of(log, offsets)
    assert outcomes.decided
    assert outcomes.committed == {0}


def test_gone_is_not_said_before_the_log_is_read_past_the_marker():
    log = RawLog()
    marker(log, 5)
    outcomes = outcomes_of(log, {0: 1})
    assert not outcomes.decided
    assert outcomes.next_offset == 1
    offset = marker(log, 0)
    outcomes.apply(log.take(), log.next_offset)
    assert (offset, outcomes.decided) == (1, False), "its control record is not there yet"
    log.end(100, COMMIT)
    outcomes.apply(log.take(), log.next_offset)
    assert outcomes.decided
    assert outcomes.committed == {0}


@pytest.mark.parametrize("left", ["nothing", "the header", "another's"])
def test_what_compaction_has_left_of_an_aborted_transaction_is_gone(left):
    log = RawLog()
    if left == "nothing":
        log.skip(2)
    elif left == "the header":
        log.emptied(100)
    else:
        marker(log, 0, epoch=1)
    log.end(9, COMMIT)
    outcomes = outcomes_of(log, {0: 0})
    assert outcomes.decided
    assert outcomes.committed == set()


def test_what_a_producer_ended_before_is_not_taken_for_its_end():
    """With transactions v1 the epoch stays."""
    log = RawLog()
    log.records(100, barrier_record("app"))
    log.end(100, COMMIT)
    offset = marker(log, 0)
    log.end(100, ABORT)
    log.end(100, COMMIT)
    assert outcomes_of(log, {0: offset}).committed == set()


@pytest.mark.parametrize(
    ("began_with", "now", "epoch", "continuous"),
    [
        (3, 3, 3, True),  # InitProducerId
        (3, 3, 4, False),
        (5, 5, 4, True),  # EndTxn of the done record, InitProducerId
        (5, 5, 5, False),
        (3, 5, 3, True),  # transactions were upgraded in between
        (3, 5, 4, False),
        (5, 3, 4, True),
        (5, 3, 3, False),
    ],
)
def test_a_fence_follows_a_commits_done_record_or_another_one_was_in_between(began_with, now, epoch, continuous):
    """What the done record's EndTxn did to the epoch depends on the version it was sent in, not on today's."""
    log, view = RawLog(), LedgerView("app")
    key, value = entry_record(
        "app", replace(ENTRY, state=v.EntryState.DONE, tasks=(v.TaskOutcome(v.RowChecksum(2, 9)),))
    )
    log.records(7, (key, value), epoch=2)
    log.end(7, COMMIT, epoch=2)
    view.apply(log.take())
    planned = v.DriverIdentity(TransactionalIdentity("app-driver", 7, 2, began_with))
    assert view.continues(planned, TransactionalIdentity("app-driver", 7, epoch, now)) is continuous
