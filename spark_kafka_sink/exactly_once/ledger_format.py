"""The ledger's bytes: record batches of JSON records, which an operator can read with any consumer.

The key says what a record is, in every version: ``["name", "query"]`` is an entry, ``["name", "query", task]`` a
marker, and ``["name"]`` a barrier, which says nothing. Compaction keeps the last record of each key. Values name the
version of their format. Records with other keys are foreign.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from spark_kafka_sink.common.compression import CODEC_IDS, compress
from spark_kafka_sink.common.model import LARGEST_INT16, LARGEST_INT32, LARGEST_INT64
from spark_kafka_sink.common.plain_json import plain
from spark_kafka_sink.errors import CorruptRecordError
from spark_kafka_sink.exactly_once.decode import BatchView, DecodedRecord, batch_headers, decode_batches
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.exactly_once.values import (
    Entry,
    EntryState,
    Marker,
    RowChecksum,
    SchemaId,
    Target,
    TaskOutcome,
    TopicId,
    WriteKind,
)
from spark_kafka_sink.producer.transaction_requests import PreparedTransaction
from spark_kafka_sink.records.batch import BatchHeader, encode_record, stamp_header

VERSION: Final = 2
"""The version of values. Readers ignore fields that they do not know, so a new number is only for what an earlier
release must not ignore. Every later release reads version 2: ``tests/unit/exactly_once/ledger-2.json`` is such a
ledger. The number also stands for the checksum of rows (``checksum.py``)."""

_MIN_INT64: Final = -(1 << 63)
_YEAR_9999: Final = 253_402_300_799_999
_CHECKSUM: Final = re.compile(r"[0-9a-f]{16}")
_TOPIC_ID: Final = re.compile(r"[\w-]{22}", re.ASCII)
_UNREADABLE: Final = (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError)

_CODEC: Final = "gzip"
_COMPRESS_FROM: Final = 1024
_COMMIT: Final = 1
_MAX_SIZE: Final = 64 << 20
"""The most bytes of a batch's records when decompressed; the entry of 100,000 tasks takes 8 MiB."""


class LedgerRecord(NamedTuple):
    """A record of the ledger. A ``value`` of None is a tombstone."""

    key: bytes
    value: bytes | None


class RecordKey(NamedTuple):
    """The key of a record: a barrier's has no ``query``, an entry's has no ``task``, a marker's has both."""

    name: str
    query: str | None = None
    task: int | None = None

    def to_bytes(self) -> bytes:
        return _json([part for part in self if part is not None])


@dataclass(frozen=True, slots=True)
class LedgerWrite:
    """The records of one transaction of the driver: entries, and markers in ``marker_partition``."""

    entries: tuple[LedgerRecord, ...]
    markers: tuple[LedgerRecord, ...] = ()
    marker_partition: int | None = None


def entry_write(name: str, entry: Entry) -> LedgerWrite:
    """The entry's record and, if the entry is DONE, tombstones for the markers that its batch does not have."""
    record = entry_record(name, entry)
    if not entry.is_done:
        return LedgerWrite((record,))
    spare = range(0) if entry.marker_partition is None else range(len(entry.tasks), entry.old_marker_count)
    return LedgerWrite((record,), _tombstones(name, entry, spare), entry.marker_partition)


def removal_write(name: str, entries: Iterable[Entry], marker_partition: int) -> LedgerWrite:
    """Removes entries and their markers."""
    removed = list(entries)
    records = tuple(LedgerRecord(RecordKey(name, name_.query).to_bytes(), None) for name_ in removed)
    markers = tuple(record for name_ in removed for record in _tombstones(name, name_, range(len(name_.tasks))))
    return LedgerWrite(records, markers, marker_partition)


def _tombstones(name: str, entry: Entry, tasks: Iterable[int]) -> tuple[LedgerRecord, ...]:
    """Tombstones that remove the markers of these tasks."""
    return tuple(LedgerRecord(RecordKey(name, entry.query, task).to_bytes(), None) for task in tasks)


def entry_record(name: str, entry: Entry) -> LedgerRecord:
    value: dict[str, object] = {
        "version": VERSION,
        "kind": entry.kind.value,
        "stage": entry.state.value,
        "batch": entry.number,
        "time": entry.decided_at,
        "tasks": [
            [outcome.rows.count, f"{outcome.rows.checksum:016x}", *_prepared_fields(outcome)] for outcome in entry.tasks
        ],
    }
    if entry.target is not None:
        value["target"] = entry.target.topic
    if entry.must_be_completed:
        value["markers"] = [entry.marker_partition, entry.old_marker_count]
        if entry.ledger_id is not None:
            value["ledger"] = shown_id(entry.ledger_id)
    if entry.schemas:
        value["schemas"] = entry.schemas
    if entry.topics:
        value["topics"] = [[topic.name, shown_id(topic.id)] for topic in entry.topics]
    if entry.query_name:
        value["query_name"] = entry.query_name
    if entry.turn > 1:
        value["turn"] = entry.turn
    return LedgerRecord(RecordKey(name, entry.query).to_bytes(), _json(value))


def marker_record(name: str, marker: Marker) -> LedgerRecord:
    value = {
        "version": VERSION,
        "batch": marker.number,
        "rows": marker.rows.count,
        "checksum": f"{marker.rows.checksum:016x}",
    }
    return LedgerRecord(RecordKey(name, marker.query, marker.task).to_bytes(), _json(value))


def barrier_record(name: str) -> LedgerRecord:
    """The barrier: a tombstone under a key of its own, which decides nothing."""
    return LedgerRecord(RecordKey(name).to_bytes(), None)


def read_key(key: bytes | None) -> RecordKey | None:
    """The parsed key; None for a foreign one."""
    try:
        parsed = json.loads(key or b"")
        if not isinstance(parsed, list) or not 1 <= len(parsed) <= 3:
            return None
        for part in parsed[:2]:
            _string(part)
        for part in parsed[2:]:
            _number(part, LARGEST_INT32)
        return RecordKey(*parsed)
    except _UNREADABLE:
        return None


def read_entry(key: RecordKey, value: bytes) -> Entry:
    """The entry in a record. Raises ``ExactlyOnceError`` for a value of another version, and for one that no release
    wrote."""
    try:
        fields = json.loads(value)
        version = _number(fields["version"], LARGEST_INT64, 1)
        if version == VERSION:
            return _entry(key, fields)
    except _UNREADABLE as error:
        raise ExactlyOnceError(
            f"The ledger holds {value[:200]!r} under {key.to_bytes().decode()}, which no release of this sink has "
            f"written: {str(error)[:200] or type(error).__name__}. Only this sink may write to the ledgerTopic. The "
            "ledger no longer says whether the last batch is in Kafka: look there, then continue with a new name "
            "(transactionalIdPrefix, or txnAppId)."
        ) from error
    raise ExactlyOnceError(
        f"The ledger's record {key.to_bytes().decode()} is of version {version}, this release reads {VERSION}: another "
        f"release has written it under the name {key.name!r}. Let that one finish its last batch. Then go on with it, "
        "or with this release and another ledgerTopic; the next error says which ledgerStart to set. Do not repeat the "
        "last txnVersion of a batch job, because an empty ledger does not know it."
    )


def encode_batch(header: BatchHeader, records: Sequence[LedgerRecord]) -> bytes:
    payload = b"".join(encode_record(delta, *record) for delta, record in enumerate(records))
    if len(payload) >= _COMPRESS_FROM:
        payload = compress(_CODEC, None, [payload])
        header = header._replace(attributes=header.attributes | CODEC_IDS[_CODEC])
    return stamp_header(header, [payload]) + payload


class RawBatch(NamedTuple):
    """A batch with only its header decoded; ``data`` is all of it."""

    header: BatchView
    data: memoryview

    @property
    def is_commit(self) -> bool:
        """Whether this control batch commits. Its record's key is a version and a type of 16 bits each (KIP-98)."""
        return any(record.key is not None and int.from_bytes(record.key[2:4]) == _COMMIT for record in self.records())

    def records(self) -> tuple[DecodedRecord, ...]:
        """The batch's records. Raises ``CorruptRecordError``."""
        return decode_batches(self.data, max_size=_MAX_SIZE)[0].records


def raw_batches(records: bytes | memoryview) -> list[RawBatch]:
    """The whole batches of a Fetch response. Raises ``CorruptRecordError``.

    Only headers are decoded, which takes 3 µs instead of 30, because most batches are control batches or of other
    names.
    """
    data, headers = memoryview(records), batch_headers(records, partial_tail=True)
    if any(header.last_offset_delta < 0 for header in headers):
        raise CorruptRecordError("a batch ends before its first offset")
    return [RawBatch(header, data[header.position : header.position + header.size]) for header in headers]


def _prepared_fields(outcome: TaskOutcome) -> list[object]:
    prepared = outcome.prepared
    if prepared is None:
        return []
    return [
        prepared.transactional_id, prepared.producer_id, prepared.epoch, prepared.end_txn_version, outcome.marker
    ]  # fmt: skip


def _entry(key: RecordKey, fields: dict[str, Any]) -> Entry:
    assert key.query is not None
    state, target = EntryState(fields["stage"]), fields.get("target")
    marker_partition, old_marker_count = None, 0
    if state is EntryState.INTENT:
        marker_partition, old_marker_count = (_number(field, LARGEST_INT32) for field in fields["markers"])
    return Entry(
        query=key.query,
        number=_number(fields["batch"], LARGEST_INT64, _MIN_INT64),
        state=state,
        tasks=tuple(_outcome(*outcome) for outcome in fields["tasks"]),
        decided_at=_number(fields["time"], _YEAR_9999),
        kind=WriteKind(fields["kind"]),
        target=Target(None if target is None else _string(target)) if "target" in fields else None,
        marker_partition=marker_partition,
        old_marker_count=old_marker_count,
        schemas=tuple(_schema(*each) for each in fields.get("schemas", ())),
        topics=tuple(TopicId(_string(name), _topic_id(shown)) for name, shown in fields.get("topics", ())),
        query_name=_string(fields.get("query_name", "")),
        ledger_id=_topic_id(fields["ledger"]) if "ledger" in fields else None,
        turn=_number(fields.get("turn", 1), LARGEST_INT32, 1),
    )


def _schema(side: object, subject: object, shown: object) -> SchemaId:
    schema_id = UUID(shown) if isinstance(shown, str) else _number(shown, LARGEST_INT32)
    return SchemaId(_string(side), _string(subject), schema_id)


def shown_id(topic_id: UUID) -> str:
    """A topic's id as Kafka's tools show it (Java: ``Uuid.toString``)."""
    return urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def _topic_id(shown: object) -> UUID:
    if not _TOPIC_ID.fullmatch(_string(shown)):
        raise ValueError("a topic's id has 22 characters")
    return UUID(bytes=urlsafe_b64decode(f"{shown}=="))


def _outcome(count: object, checksum: object, *prepared: Any) -> TaskOutcome:
    if not _CHECKSUM.fullmatch(_string(checksum)):
        raise ValueError("a checksum has 16 hexadecimal digits")
    rows = RowChecksum(_number(count, LARGEST_INT64), int(_string(checksum), 16))
    if not prepared:
        return TaskOutcome(rows)
    name, producer_id, epoch, version, marker = prepared
    transaction = PreparedTransaction(
        _string(name),
        _number(producer_id, LARGEST_INT64),
        _number(epoch, LARGEST_INT16),
        _number(version, LARGEST_INT16),
    )
    return TaskOutcome(rows, transaction, _number(marker, LARGEST_INT64))


def _number(value: Any, most: int, least: int = 0) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"a number between {least} and {most} is missing")
    return value


def _string(value: object) -> str:
    """A string, printable because operators read it in a terminal."""
    if not isinstance(value, str) or not value.isprintable():
        raise TypeError("a printable string is missing")
    return value


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), default=plain).encode()
