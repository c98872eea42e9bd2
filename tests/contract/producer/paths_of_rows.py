"""All paths of rows, in a process that has not imported pandas, until one of them has.

python -m tests.contract.producer.paths_of_rows <bootstrap servers> <file of a descriptor set> <Arrow file>
"""

import datetime as dt
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from spark_kafka_sink import KafkaProducer, ProducerRecord, SyncProducer, encode_avro, encode_protobuf
from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.exactly_once.checksum import row_sum
from spark_kafka_sink.records.arrays import bytes_column, int32_array
from spark_kafka_sink.records.columns import RecordColumns, TopicColumn
from spark_kafka_sink.schemas.encoding.encoder import UnencodableRowsError

SERVERS, DESCRIPTORS, ORDERS = sys.argv[1:4]
TOPIC = "t"
OPTIONS = {"bootstrap.servers": SERVERS, "linger.ms": 1}
OWN = "tests.unit.partitioning.own_partitioners"
LONG = b"x" * 100_000
STRINGS = bytes_column([b"a", None, b"ccc"]).cast(pa.string())
NUMBERS = int32_array(np.array([0, 1, 2], np.int32))
LAYOUTS = [
    STRINGS,
    STRINGS.cast(pa.binary()),
    STRINGS.cast(pa.large_string()),
    STRINGS.cast(pa.large_binary()),
    STRINGS.cast(pa.string_view()),
    STRINGS.cast(pa.binary_view()),
    STRINGS.dictionary_encode(),
    pa.chunked_array([STRINGS, STRINGS]),
    pa.chunked_array([], pa.string()),
    bytes_column([b"a", b"b"]).cast(pa.binary(1)),
    pa.nulls(3),
]
AT = dt.datetime(2026, 5, 4, 3, 2, 1, 5, tzinfo=dt.UTC)
SCHEMA = json.dumps({"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"},
    {"name": "note", "type": ["null", "string"]},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "lines", "type": {"type": "array", "items": "double"}},
    {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
    {"name": "paid", "type": "boolean"},
]})  # fmt: skip
PARTITIONERS = (
    "round_robin", "UniformStickyPartitioner", "DefaultPartitioner", "crc32", f"{OWN}:Sticky",
    f"{OWN}:LastPartition",
)  # fmt: skip


def records(**fields: Any) -> list[ProducerRecord]:
    return [ProducerRecord(TOPIC, b"%d" % row, **fields) for row in range(5)]


def send(*each: ProducerRecord, **options: Any) -> None:
    with KafkaProducer({**OPTIONS, **options}) as producer:
        futures = [producer.send(record) for record in each]
        producer.flush()
        for future in futures:
            future.result(60)


def send_columns(options: dict[str, object] | None = None, **columns: Any) -> None:
    with KafkaProducer({**OPTIONS, **(options or {})}) as producer:
        receipt = producer.send_columns(TOPIC, **columns)
        producer.flush()
        receipt.wait(60_000)


def records_of_all_kinds() -> None:
    for fields in ({}, {"key": b"k"}, {"timestamp": 5, "partition": 0}):
        send(*records(**fields))
    send(*records(headers=[("h", b"x"), ("null", None)]), *records(key=LONG), ProducerRecord(TOPIC, None, None))


def rows_of_all_partitioners() -> None:
    for name in PARTITIONERS:
        send(*records(key=b"k"), *records(), **{"partitioner.class": name})
        send_columns({"partitioner.class": name}, key=["a", None, "b"], value=["1", "2", "3"])


def columns_of_all_layouts() -> None:
    for column in LAYOUTS:
        send_columns(value=column, key=column)


def columns_with_all_else() -> None:
    when = NUMBERS.cast(pa.int64())
    for kind in (pa.int64(), pa.timestamp("us", "UTC"), pa.timestamp("ns", "UTC"), pa.timestamp("s", "UTC")):
        send_columns(value=STRINGS, timestamp=when.cast(kind), partition=NUMBERS)
    keys = bytes_column([b"k", b"l"]).cast(pa.string())
    offsets = int32_array(np.array([0, 1, 1, 2], np.int32))
    entries = pa.StructArray.from_arrays([keys, keys.cast(pa.binary())], ["key", "value"])
    send_columns(value=STRINGS, headers=pa.ListArray.from_arrays(offsets, entries))
    send_columns(value=STRINGS, headers=pa.MapArray.from_arrays(offsets, keys, keys))


def columns_of_python_values() -> None:
    headers = [[{"key": "h", "value": b"x"}], None, []]
    send_columns(value=["1", None, "ü"], key=(b"a", b"b", None), headers=headers, timestamp=[1, 2, None])
    send_columns(value=np.array(["a", "b"]), timestamp=[AT, None], partition=np.array([0, 1]))
    send_columns(value=[bytearray(b"a"), b"b"], timestamp=range(2), partition=[np.int32(0), 1])
    for refused in (["a", b"b"], [1, 2.5], ["caf\udce9"], [2**63], [object()], {"a": 1}, 5):
        try:
            send_columns(value=refused)
        except InvalidRecordError:
            continue
        raise AssertionError(refused)
    send_columns(value=np.array([b"a", None], object), timestamp=np.array([1, 2]))


def columns_of_many_topics() -> None:
    with KafkaProducer(OPTIONS) as producer:
        topics = TopicColumn((TOPIC, "other"), np.array([0, 1, 0], np.int32))
        receipt = producer.send_columns(TOPIC, value=["first"])
        columns = RecordColumns(bytes_column([b"k"] * 3), bytes_column([LONG] * 3))
        producer._core.append_columns(topics, columns, None, receipt)
        receipt.wait(60_000)
        producer.metrics()


def sync_producer() -> None:
    with SyncProducer({"bootstrap.servers": SERVERS}) as producer:
        producer.send(ProducerRecord(TOPIC, b"v", b"k"))
        producer.send(*records(key=b"k", headers=[("h", None)]))


def orders(column: str) -> pa.ChunkedArray:
    with pa.OSFile(ORDERS) as file:
        return pa.ipc.open_file(file).read_all()[column]


def avro() -> None:
    send_columns(value=encode_avro(orders("orders"), SCHEMA))


def protobuf() -> None:
    send_columns(value=encode_protobuf(orders("messages"), Path(DESCRIPTORS).read_bytes(), "shop.Order"))


def rows_that_cannot_be_encoded() -> None:
    """The error shows the value."""
    seconds = pa.Int64Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(np.array([2**62]))])
    try:
        encode_avro(seconds.cast(pa.timestamp("s", "UTC")), '{"type": "long", "logicalType": "timestamp-micros"}')
    except UnencodableRowsError:
        return
    raise AssertionError("it was encoded")


def checksum() -> None:
    for column in (bytes_column([b"a", None]), bytes_column([LONG, None, b"b"])):
        row_sum(TopicColumn((TOPIC,)), RecordColumns(value=column))


PATHS: list[Callable[[], None]] = [
    records_of_all_kinds,
    rows_of_all_partitioners,
    columns_of_all_layouts,
    columns_with_all_else,
    columns_of_python_values,
    columns_of_many_topics,
    sync_producer,
    avro,
    protobuf,
    rows_that_cannot_be_encoded,
    checksum,
]


def main() -> None:
    assert "pandas" not in sys.modules, "this program imports it"
    for number, path in enumerate(PATHS):
        path()
        if "pandas" in sys.modules:
            sys.exit(f"path {number} imports pandas: {path.__name__}")
    sys.stdout.write(f"{len(PATHS)} paths\n")


if __name__ == "__main__":
    main()
