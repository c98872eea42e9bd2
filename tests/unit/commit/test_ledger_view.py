"""What the ledger's log adds up to, record by record and batch by batch."""

import json
import struct
from dataclasses import replace

import pytest

from spark_kafka_sink.commit.errors import ExactlyOnceError
from spark_kafka_sink.commit.format import entry_record, marker_record, read_record
from spark_kafka_sink.commit.ledger_view import LedgerView
from spark_kafka_sink.commit.values import Entry, Marker, RowSum, Stage, Target, TaskShare
from spark_kafka_sink.records.batch import CONTROL, TRANSACTIONAL
from spark_kafka_sink.records.decode import BatchView, DecodedBatch, DecodedRecord
from spark_kafka_sink.sender.transactions.values import PreparedTransaction

PREPARED = PreparedTransaction("app-0", 7, 2, 5)
ENTRY = Entry("q", 4, Stage.INTENT, (TaskShare(RowSum(2, 2**64 - 1), PREPARED), TaskShare(RowSum())), 123)
MARKER = Marker("q", 4, 0, RowSum(2, 9))
COMMIT, ABORT = 1, 0


def batch(producer, *records, attributes=TRANSACTIONAL, epoch=2):
    header = BatchView(0, 0, True, 0, 0, 2, 0, attributes, len(records) - 1, 0, 0, producer, epoch, 0, len(records))
    return DecodedBatch(header, tuple(DecodedRecord(i, 0, *record) for i, record in enumerate(records)))


def end(producer, how):
    return batch(producer, (struct.pack(">hh", 0, how), b""), attributes=TRANSACTIONAL | CONTROL)


@pytest.fixture
def view():
    return LedgerView("app")


def test_what_is_written_is_read():
    for record, value in ((entry_record("app", ENTRY), ENTRY), (marker_record("app", MARKER), MARKER)):
        assert read_record("app", *record) == value
        assert read_record("ap", *record) is None


def test_an_attempts_own_id_is_kept():
    prepared = PreparedTransaction("app-0.17", 7, 2, 5)
    entry = Entry("q", 0, Stage.INTENT, (TaskShare(RowSum(1, 1), prepared),))
    assert read_record("app", *entry_record("app", entry)) == entry


@pytest.mark.parametrize("target", [Target("events"), Target(None)])
def test_a_target_is_kept(target):
    entry = replace(ENTRY, target=target)
    assert read_record("app", *entry_record("app", entry)) == entry


def test_what_an_earlier_release_wrote_is_read():
    """Its transactional ids are what follows the name; of a target it knew nothing."""
    key, value = entry_record("app", ENTRY)
    first = {**json.loads(value), "version": 1, "tasks": [[2, "f" * 16, "-0", 7, 2, 5], [0, "0" * 16]]}
    assert read_record("app", key, json.dumps(first).encode()) == ENTRY


def test_ids_that_do_not_begin_with_the_name_are_kept():
    entry = Entry("q", 0, Stage.INTENT, (TaskShare(RowSum(1, 1), PreparedTransaction("mine-app-0", 7, 2, 5)),))
    assert read_record("txn-app", *entry_record("txn-app", entry)) == entry


def test_keys_do_not_depend_on_the_version():
    assert entry_record("app", ENTRY).key == b'["app","q"]'
    assert marker_record("app", MARKER).key == b'["app","q",0]'


def test_a_later_releases_record_is_refused_not_misread():
    key, value = entry_record("app", ENTRY)
    later = json.dumps({**json.loads(value), "version": 3}).encode()
    with pytest.raises(ExactlyOnceError, match=r"is of version 3, this release reads up to 2.*name 'app'"):
        read_record("app", key, later)


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b'{"version":1}', b'{"version":"x"}', b"\xff"])
def test_anything_else_under_our_key_is_refused(value):
    with pytest.raises(ExactlyOnceError, match="no release of this sink has written"):
        read_record("app", b'["app","q"]', value)


@pytest.mark.parametrize("key", [None, b"", b"x", b"{}", b'["app"]', b'["other","q"]'])
def test_what_is_not_ours_is_passed_over(key):
    assert read_record("app", key, b"whatever") is None


def test_records_count_when_their_transaction_is_committed(view):
    view.apply([batch(7, entry_record("app", ENTRY))])
    assert view.entries == {}
    view.apply([end(7, COMMIT)])
    assert view.entries == {"q": ENTRY}


def test_aborted_records_never_count(view):
    view.apply([batch(7, entry_record("app", ENTRY)), end(7, ABORT), end(7, COMMIT)])
    assert view.entries == {}


def test_one_open_transaction_hides_no_other(view):
    view.apply([batch(8, marker_record("app", MARKER)), batch(7, entry_record("app", ENTRY)), end(7, COMMIT)])
    assert view.entries == {"q": ENTRY}
    assert not view.committed("q", 4, 0)
    view.apply([end(8, COMMIT)])
    assert view.committed("q", 4, 0)
    assert not view.committed("q", 5, 0)
    assert not view.committed("q", 4, 1)


def test_a_record_outside_of_any_transaction_decides_nothing(view):
    view.apply([batch(-1, entry_record("app", ENTRY), attributes=0)])
    assert view.entries == {}


def test_a_transaction_is_undecided_until_its_end_is_in_the_log(view):
    assert not view.undecided(PREPARED)
    view.apply([batch(7, marker_record("app", MARKER))])
    assert view.undecided(PREPARED)
    assert not view.undecided(PreparedTransaction("app-0", 7, 1, 5)), "another epoch's"
    view.apply([end(7, ABORT)])
    assert not view.undecided(PREPARED)
