"""The ledger's records: JSON that an operator can read with any consumer.

Keys tell what a record is about and never change: ``["prefix", "query"]`` is an entry, ``["prefix", "query", task]`` a
marker; compaction keeps the last of each. Values say the version of their format.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from spark_kafka_sink.commit.errors import ExactlyOnceError
from spark_kafka_sink.commit.values import Entry, Marker, RowSum, Stage, TaskShare
from spark_kafka_sink.sender.transactions.values import PreparedTransaction

VERSION: Final = 1
"""Readers take this version and every earlier one."""


class LedgerRecord(NamedTuple):
    key: bytes
    value: bytes


def entry_record(prefix: str, entry: Entry) -> LedgerRecord:
    """Of a transactional id only what follows the prefix is written."""
    tasks = [
        [share.rows.count, f"{share.rows.checksum:016x}", *_prepared_fields(prefix, share.prepared)]
        for share in entry.tasks
    ]
    value = {
        "version": VERSION,
        "stage": entry.stage.value,
        "batch": entry.number,
        "time": entry.decided_at,
        "tasks": tasks,
    }
    return LedgerRecord(_json([prefix, entry.query]), _json(value))


def marker_record(prefix: str, marker: Marker) -> LedgerRecord:
    value = {
        "version": VERSION,
        "batch": marker.number,
        "rows": marker.rows.count,
        "checksum": f"{marker.rows.checksum:016x}",
    }
    return LedgerRecord(_json([prefix, marker.query, marker.task]), _json(value))


def read_record(prefix: str, key: bytes | None, value: bytes | None) -> Entry | Marker | None:
    """None for what belongs to another prefix or is a tombstone.

    Raises ``ExactlyOnceError`` for a record of this prefix that a later release wrote, or that is none of ours.
    """
    name = _parsed_key(key)
    if name is None or name[0] != prefix or value is None:
        return None
    try:
        fields = json.loads(value)
        version = fields["version"]
        if version <= VERSION:
            return _entry(prefix, name[1], fields) if len(name) == 2 else _marker(name, fields)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ExactlyOnceError(
            f"The ledger holds {value[:200]!r} under {key!r}, which no release of this sink has written: {error!r}. "
            "Nothing but this sink may write to the commitLogTopic."
        ) from error
    raise ExactlyOnceError(
        f"The ledger's record {key!r} is of version {version}, this release reads up to {VERSION}. A later release has "
        f"written under the prefix {prefix!r}: run that one, or finish its batches with it before going back."
    )


def _entry(prefix: str, query: str, fields: dict[str, Any]) -> Entry:
    shares = tuple(
        TaskShare(RowSum(count, int(checksum, 16)), _prepared(prefix, prepared))
        for count, checksum, *prepared in fields["tasks"]
    )
    return Entry(query, fields["batch"], Stage(fields["stage"]), shares, fields["time"])


def _marker(name: list[Any], fields: dict[str, Any]) -> Marker:
    return Marker(name[1], fields["batch"], name[2], RowSum(fields["rows"], int(fields["checksum"], 16)))


def _prepared_fields(prefix: str, prepared: PreparedTransaction | None) -> list[object]:
    if prepared is None:
        return []
    suffix = prepared.transactional_id.removeprefix(prefix)
    return [suffix, prepared.producer_id, prepared.epoch, prepared.end_txn_version]


def _prepared(prefix: str, fields: list[Any]) -> PreparedTransaction | None:
    return PreparedTransaction(prefix + fields[0], *fields[1:]) if fields else None


def _parsed_key(key: bytes | None) -> list[Any] | None:
    try:
        name = json.loads(key or b"")
    except ValueError:
        return None
    return name if isinstance(name, list) and len(name) in (2, 3) else None


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
