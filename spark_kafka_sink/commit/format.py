"""The ledger's records: JSON that an operator can read with any consumer.

Keys tell what a record is about and never change: ``["name", "query"]`` is an entry, ``["name", "query", task]`` a
marker; compaction keeps the last of each. Values say the version of their format.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from spark_kafka_sink.commit.errors import ExactlyOnceError
from spark_kafka_sink.commit.values import Entry, Marker, RowSum, Stage, Target, TaskShare
from spark_kafka_sink.sender.transactions.values import PreparedTransaction

VERSION: Final = 2
"""Readers take this version and every earlier one. Version 1 had of a transactional id what follows the name."""


class LedgerRecord(NamedTuple):
    key: bytes
    value: bytes | None


def barrier_record(name: str) -> LedgerRecord:
    """A record that says nothing: a tombstone under a key of its own, which no reader takes for an entry's."""
    return LedgerRecord(_json([name]), None)


def entry_record(name: str, entry: Entry) -> LedgerRecord:
    tasks = [
        [share.rows.count, f"{share.rows.checksum:016x}", *_prepared_fields(share.prepared)] for share in entry.tasks
    ]
    value: dict[str, object] = {
        "version": VERSION,
        "stage": entry.stage.value,
        "batch": entry.number,
        "time": entry.decided_at,
        "tasks": tasks,
    }
    if entry.target is not None:
        value["target"] = entry.target.topic
    return LedgerRecord(_json([name, entry.query]), _json(value))


def marker_record(name: str, marker: Marker) -> LedgerRecord:
    value = {
        "version": VERSION,
        "batch": marker.number,
        "rows": marker.rows.count,
        "checksum": f"{marker.rows.checksum:016x}",
    }
    return LedgerRecord(_json([name, marker.query, marker.task]), _json(value))


def read_record(name: str, key: bytes | None, value: bytes | None) -> Entry | Marker | None:
    """None for what belongs to another name or is a tombstone.

    Raises ``ExactlyOnceError`` for a record of this name that a later release wrote, or that is none of ours.
    """
    parsed = _parsed_key(key)
    if parsed is None or parsed[0] != name or value is None:
        return None
    try:
        fields = json.loads(value)
        version = fields["version"]
        if version <= VERSION:
            return _entry(parsed, fields) if len(parsed) == 2 else _marker(parsed, fields)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ExactlyOnceError(
            f"The ledger holds {value[:200]!r} under {key!r}, which no release of this sink has written: {error!r}. "
            "Nothing but this sink may write to the commitLogTopic."
        ) from error
    raise ExactlyOnceError(
        f"The ledger's record {key!r} is of version {version}, this release reads up to {VERSION}. A later release has "
        f"written under the name {name!r}: run that one, or finish its batches with it before going back."
    )


def _entry(key: list[Any], fields: dict[str, Any]) -> Entry:
    before = key[0] if fields["version"] == 1 else ""
    shares = tuple(
        TaskShare(RowSum(count, int(checksum, 16)), _prepared(before, prepared))
        for count, checksum, *prepared in fields["tasks"]
    )
    target = Target(fields["target"]) if "target" in fields else None
    return Entry(key[1], fields["batch"], Stage(fields["stage"]), shares, fields["time"], target)


def _marker(key: list[Any], fields: dict[str, Any]) -> Marker:
    return Marker(key[1], fields["batch"], key[2], RowSum(fields["rows"], int(fields["checksum"], 16)))


def _prepared_fields(prepared: PreparedTransaction | None) -> list[object]:
    if prepared is None:
        return []
    return [prepared.transactional_id, prepared.producer_id, prepared.epoch, prepared.end_txn_version]


def _prepared(before: str, fields: list[Any]) -> PreparedTransaction | None:
    return PreparedTransaction(before + fields[0], *fields[1:]) if fields else None


def name_of(key: bytes | None) -> str | None:
    """Whose record it is; None when it is none of ours."""
    parsed = _parsed_key(key)
    return parsed[0] if parsed is not None and isinstance(parsed[0], str) else None


def _parsed_key(key: bytes | None) -> list[Any] | None:
    try:
        parsed = json.loads(key or b"")
    except ValueError:
        return None
    return parsed if isinstance(parsed, list) and len(parsed) in (2, 3) else None


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
