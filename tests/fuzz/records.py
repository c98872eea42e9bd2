"""What is in Kafka: record batches, the ledger, receipts."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Sequence
from typing import Final

from crc32c import crc32c

from spark_kafka_sink.common.compression import CODEC_IDS, compress, decompress
from spark_kafka_sink.common.task_figures import TaskFigures
from spark_kafka_sink.errors import CorruptRecordError
from spark_kafka_sink.exactly_once import ledger_format
from spark_kafka_sink.exactly_once.decode import batch_headers, decode_batches
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.exactly_once.ledger_format import LedgerRecord, RecordKey, raw_batches
from spark_kafka_sink.exactly_once.ledger_view import LedgerView
from spark_kafka_sink.exactly_once.receipts import WriteReceipt
from spark_kafka_sink.records.batch import CRC_END, HEADER_SIZE, BatchHeader, stamp_header
from tests.fuzz.target import Target, picked
from tests.unit.exactly_once.test_kept_ledger import FILE

_BOUND: Final = 1 << 20
_CODECS: Final = sorted(codec for codec in CODEC_IDS if codec != "none")
_LENGTH_END: Final = 12
_KEPT: Final = json.loads(FILE.read_text())
_SMALL: Final = 4096


def with_crcs(data: bytes) -> bytes:
    """The batches with the checksums that they should have; the last one ends with the data."""
    fixed = bytearray(data)
    start = 0
    while len(fixed) - start >= HEADER_SIZE:
        size = int.from_bytes(fixed[start + 8 : start + _LENGTH_END], "big", signed=True) + _LENGTH_END
        if not HEADER_SIZE <= size <= len(fixed) - start:
            size = len(fixed) - start
            fixed[start + 8 : start + _LENGTH_END] = (size - _LENGTH_END).to_bytes(4, "big")
        fixed[start + 17 : start + CRC_END] = crc32c(bytes(fixed[start + CRC_END : start + size])).to_bytes(4, "big")
        start += size
    return bytes(fixed)


def _decoded(data: bytes) -> None:
    for batch in decode_batches(data, max_size=_BOUND):
        assert len(batch.records) == batch.header.record_count


def _batches() -> Sequence[bytes]:
    records = [LedgerRecord(b"key", b"value"), LedgerRecord(b"k", None), LedgerRecord(b"", b"v" * 200)]
    header = BatchHeader(0, len(records), 1_700_000_000_000, 1_700_000_000_000, 7, 0, 3)
    plain = ledger_format.encode_batch(header, records)
    seeds = [plain, plain + plain]
    for codec in _CODECS:
        payload = compress(codec, None, [plain[HEADER_SIZE:]])
        seeds.append(stamp_header(header._replace(attributes=CODEC_IDS[codec]), [payload]) + payload)
    return seeds


def _decompressed(data: bytes) -> None:
    """The first byte says which codec."""
    assert len(decompress(CODEC_IDS[picked(_CODECS, data)], data[1:], _BOUND)) <= _BOUND


def _compressed() -> Sequence[bytes]:
    payloads = [b"records of some length, and records of the same length " * 20, b"", bytes(100_000)]
    return [bytes([at]) + compress(codec, None, [data]) for at, codec in enumerate(_CODECS) for data in payloads]


def _ledger_key(data: bytes) -> None:
    key = ledger_format.read_key(data)
    if key is not None:
        key.to_bytes()


def _ledger_records() -> Sequence[bytes]:
    """Values of the kept ledger, and keys."""
    values = {
        record.value
        for log in _logs(most=1 << 30)
        for batch in raw_batches(log)
        if not batch.header.is_control
        for record in batch.records()
        if record.value is not None and len(record.value) <= _SMALL
    }
    return [b'["name"]', b'["name","query"]', b'["name","query",3]', *sorted(values)]


def _logs(most: int = _SMALL) -> Sequence[bytes]:
    return [log for each in _KEPT if len(log := b64decode(each["entries_log"])) <= most]


def _ledger(data: bytes) -> None:
    for each in _KEPT:
        view = LedgerView(each["name"])
        view.apply(raw_batches(data))
        for query in view.entries:
            view.writer(query)


def _receipt(text: str) -> None:
    read = WriteReceipt.parse(text)
    assert WriteReceipt.parse(read.line()).count == read.count


def _receipts() -> Sequence[str]:
    figures = TaskFigures(1, 2, 3, 4, 5, 6, 7, 0.5, 1.5, 2.5, 3.5, dead_letters=(("too large", 2),))
    times = 1_700_000_000_000, 1_700_000_000_100
    return [WriteReceipt("query", 3, 1, "topic", 0, 10, 19, 10, 500, *times, each).line() for each in (None, figures)]


TARGETS: Final = (
    Target(
        "batches",
        (_decoded, lambda data: _decoded(with_crcs(data)), lambda data: batch_headers(data, partial_tail=True)),
        _batches, (CorruptRecordError,),
    ),
    Target("codecs", (_decompressed,), _compressed, (CorruptRecordError,)),
    Target(
        "ledger-records", (_ledger_key, lambda data: ledger_format.read_entry(RecordKey("name", "query"), data)),
        _ledger_records, (ExactlyOnceError,), is_json=True,
    ),
    Target(
        "ledgers", (_ledger, lambda data: _ledger(with_crcs(data))), _logs, (CorruptRecordError, ExactlyOnceError)
    ),
    Target("receipts", (_receipt,), _receipts, (ValueError,), is_json=True, is_text=True),
)  # fmt: skip
