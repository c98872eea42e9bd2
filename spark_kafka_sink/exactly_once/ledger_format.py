"""The ledger's records: JSON that an operator can read with any consumer.

Keys tell what a record is about and never change: ``["name", "query"]`` is an entry, ``["name", "query", task]`` a
marker, ``["name"]`` a barrier, which says nothing; compaction keeps the last of each. Values say the version of their
format. Whatever else is found in the topic is of others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.exactly_once.values import Entry, EntryState, Marker, RowSum, Target, TaskShare
from spark_kafka_sink.transactions.values import PreparedTransaction

VERSION: Final = 2
"""Readers take this version and every earlier one. Version 1 had of a transactional id what follows the name, and no
offsets of markers: they were in the entry's partition, before its intent."""

_INT64: Final = (1 << 63) - 1
_INT32: Final = (1 << 31) - 1
_INT16: Final = (1 << 15) - 1
_YEAR_9999: Final = 253_402_300_799_999
_CHECKSUM: Final = re.compile(r"[0-9a-f]{16}")
_UNREADABLE: Final = (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError)


class LedgerRecord(NamedTuple):
    """``value`` None: a tombstone."""

    key: bytes
    value: bytes | None


class RecordKey(NamedTuple):
    """``query`` None: a barrier's. ``task`` None: an entry's, else a marker's."""

    name: str
    query: str | None = None
    task: int | None = None


@dataclass(frozen=True, slots=True)
class LedgerWrite:
    """The records of one transaction of the driver: of entries, and of markers in ``marker_partition``."""

    entries: tuple[LedgerRecord, ...]
    markers: tuple[LedgerRecord, ...] = ()
    marker_partition: int | None = None


def entry_write(name: str, entry: Entry) -> LedgerWrite:
    """An entry that is done takes the markers with it that no batch needs any more, and a plain job's itself."""
    if entry.state is not EntryState.DONE:
        return LedgerWrite((entry_record(name, entry),))
    if entry.once:
        gone = (LedgerRecord(entry_record(name, entry).key, None),)
        return LedgerWrite(gone, _tombstones(name, entry, range(len(entry.tasks))), entry.marker_partition)
    spare = range(len(entry.tasks), entry.markers_before)
    return LedgerWrite((entry_record(name, entry),), _tombstones(name, entry, spare), entry.marker_partition)


def entry_record(name: str, entry: Entry) -> LedgerRecord:
    value: dict[str, object] = {
        "version": VERSION,
        "stage": entry.state.value,
        "batch": entry.number,
        "time": entry.decided_at,
        "tasks": [[share.rows.count, f"{share.rows.checksum:016x}", *_prepared_fields(share)] for share in entry.tasks],
    }
    if entry.target is not None:
        value["target"] = entry.target.topic
    if entry.state is EntryState.INTENT and entry.marker_partition is not None:
        value["markers"] = [entry.marker_partition, entry.markers_before]
    if entry.once:
        value["once"] = True
    return LedgerRecord(_json([name, entry.query]), _json(value))


def marker_record(name: str, marker: Marker) -> LedgerRecord:
    value = {
        "version": VERSION,
        "batch": marker.number,
        "rows": marker.rows.count,
        "checksum": f"{marker.rows.checksum:016x}",
    }
    return LedgerRecord(_json([name, marker.query, marker.task]), _json(value))


def barrier_record(name: str) -> LedgerRecord:
    """A record that says nothing: a tombstone under a key of its own, which no reader takes for an entry's."""
    return LedgerRecord(_json([name]), None)


def read_key(key: bytes | None) -> RecordKey | None:
    """None for a key that no release of this sink has written."""
    try:
        parsed = json.loads(key or b"")
    except (ValueError, RecursionError):
        return None
    if (
        not isinstance(parsed, list)
        or not 1 <= len(parsed) <= 3
        or not all(isinstance(each, str) and each.isprintable() for each in parsed[:2])
    ):
        return None
    if len(parsed) == 3 and not _is_number(parsed[2], _INT32):
        return None
    return RecordKey(*parsed)


def read_entry(key: RecordKey, value: bytes) -> Entry:
    """Raises ``ExactlyOnceError`` for a value that a later release wrote, or none did."""
    fields = _fields(key, value)
    try:
        return _entry(key, fields)
    except _UNREADABLE as error:
        raise _unreadable(key, value, error) from error


def read_marker(key: RecordKey, value: bytes) -> Marker:
    """Raises as ``read_entry`` does."""
    fields = _fields(key, value)
    assert key.query is not None
    assert key.task is not None
    try:
        return Marker(key.query, _signed(fields["batch"]), key.task, _row_sum(fields["rows"], fields["checksum"]))
    except _UNREADABLE as error:
        raise _unreadable(key, value, error) from error


def _fields(key: RecordKey, value: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(value)
        version = _number(fields["version"], _INT64)
    except _UNREADABLE as error:
        raise _unreadable(key, value, error) from error
    if version > VERSION:
        raise ExactlyOnceError(
            f"The ledger's record {_json(_named(key)).decode()} is of version {version}, this release reads up to "
            f"{VERSION}. A later release has written under the name {key.name!r}: run that one, or finish its batches "
            "with it before going back."
        )
    return dict(fields)


def _unreadable(key: RecordKey, value: bytes, error: Exception) -> ExactlyOnceError:
    return ExactlyOnceError(
        f"The ledger holds {value[:200]!r} under {_json(_named(key)).decode()}, which no release of this sink has "
        f"written: {str(error)[:200] or type(error).__name__}. Nothing but this sink may write to the commitLogTopic. "
        "Whether the last batch is in Kafka, the ledger does not say any more: look there, then go on under a new name "
        "(transactionalIdPrefix, or txnAppId)."
    )


def _entry(key: RecordKey, fields: dict[str, Any]) -> Entry:
    assert key.query is not None
    before = key.name if fields["version"] == 1 else ""
    shares = tuple(_share(before, *share) for share in fields["tasks"])
    target = Target(_optional_string(fields["target"])) if "target" in fields else None
    marker_partition, markers_before = None, 0
    if "markers" in fields:
        marker_partition, markers_before = (_number(each, _INT32) for each in fields["markers"])
        if any(share.prepared is not None and share.marker is None for share in shares):
            raise ValueError("the offset of a marker is missing")
    stage, decided_at = EntryState(fields["stage"]), _number(fields["time"], _YEAR_9999)
    once = fields.get("once", False) is True
    number = _signed(fields["batch"])
    return Entry(key.query, number, stage, shares, decided_at, target, marker_partition, markers_before, once)


def _share(before: str, count: object, checksum: object, *prepared: Any) -> TaskShare:
    rows = _row_sum(count, checksum)
    if not prepared:
        return TaskShare(rows)
    name, producer_id, epoch, version, *marker = prepared
    transaction = PreparedTransaction(
        before + _string(name), _number(producer_id, _INT64), _number(epoch, _INT16), _number(version, _INT16)
    )
    return TaskShare(rows, transaction, _number(marker[0], _INT64) if marker else None)


def _prepared_fields(share: TaskShare) -> list[object]:
    prepared = share.prepared
    if prepared is None:
        return []
    marker = [] if share.marker is None else [share.marker]
    return [prepared.transactional_id, prepared.producer_id, prepared.epoch, prepared.end_txn_version, *marker]


def _tombstones(name: str, entry: Entry, tasks: Iterable[int]) -> tuple[LedgerRecord, ...]:
    if entry.marker_partition is None:
        return ()
    return tuple(LedgerRecord(_json([name, entry.query, task]), None) for task in tasks)


def _row_sum(count: object, checksum: object) -> RowSum:
    if not _CHECKSUM.fullmatch(_string(checksum)):
        raise ValueError("a checksum has 16 hexadecimal digits")
    return RowSum(_number(count, _INT64), int(_string(checksum), 16))


def _is_number(value: object, most: int) -> bool:
    return type(value) is int and 0 <= value <= most


def _number(value: Any, most: int) -> int:
    if not _is_number(value, most):
        raise ValueError(f"a number between 0 and {most} is missing")
    return int(value)


def _signed(value: Any) -> int:
    if type(value) is not int or not -_INT64 - 1 <= value <= _INT64:
        raise ValueError("a number of 64 bits is missing")
    return value


def _string(value: object) -> str:
    """Of what a terminal shows: operators read it, and a lone surrogate has no bytes."""
    if not isinstance(value, str) or not value.isprintable():
        raise TypeError("a printable string is missing")
    return value


def _optional_string(value: object) -> str | None:
    return None if value is None else _string(value)


def _named(key: RecordKey) -> list[object]:
    return [part for part in key if part is not None]


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
