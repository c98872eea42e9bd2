"""Dead letters of records that only a broker found too large: the bytes that were sent, read back. No I/O."""

from __future__ import annotations

import numpy as np

from spark_kafka_sink.producer.append.refused_records import RefusedRecord
from spark_kafka_sink.records.columns import RecordColumns, TopicColumn, bytes_column
from spark_kafka_sink.records.decode import DecodedRecord, decode_batches
from spark_kafka_sink.records.encode import header_section
from spark_kafka_sink.spark.dead_letters.options import Reason
from spark_kafka_sink.spark.dead_letters.record import CONNECT, OMITTED, Letters, omitted_headers
from spark_kafka_sink.spark.rows import TOO_LARGE, FaultKind

_ADDED = (CONNECT.encode(), OMITTED.encode())

_Headers = tuple[tuple[bytes, bytes | None], ...]


def refused_letter(record: RefusedRecord) -> Letters:
    """The dead letter for a row that the broker refused. Its partition is the one that it was sent to."""
    sent = _record(record)
    kind = FaultKind(Reason.RECORD_TOO_LARGE, TOO_LARGE)
    columns = _columns(sent, sent.key, sent.value, sent.headers)
    where = np.array([record.partition.partition], np.int32)
    times = np.array([sent.timestamp], np.int64)
    return Letters(kind, [str(record.error)], TopicColumn((record.partition.topic,)), columns, where, times)


def shorter_letter(record: RefusedRecord) -> RecordColumns | None:
    """A refused dead letter without its value; one without a value also without its key; one without both also without
    the row's own headers. None: it has none of them.
    """
    sent = _record(record)
    added = tuple(each for each in sent.headers if each[0].startswith(_ADDED))
    own = tuple(each for each in sent.headers if not each[0].startswith(_ADDED))
    if sent.value is not None:
        return _columns(sent, sent.key, None, sent.headers + omitted_headers("value", sent.value))
    if sent.key is not None:
        return _columns(sent, None, None, sent.headers + omitted_headers("key", sent.key))
    if own:
        return _columns(sent, None, None, added + omitted_headers("headers", header_section(own)))
    return None


def _record(record: RefusedRecord) -> DecodedRecord:
    (batch,) = decode_batches(record.batch)
    (sent,) = batch.records
    return sent


def _columns(sent: DecodedRecord, key: bytes | None, value: bytes | None, headers: _Headers) -> RecordColumns:
    return RecordColumns(
        key=bytes_column([key]),
        value=bytes_column([value]),
        headers=bytes_column([header_section(headers)]),
        timestamps=np.array([sent.timestamp], np.int64),
    )
