"""What tasks leave on a TestBroker: batches as they are stored, ledger entries, receipts, dead letters, messages.

Times, ids that are drawn and figures that depend on the machine are shown as ``<...>``. Nothing is compressed, because
the bytes would be the library's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.exactly_once.receipts import TaskName
from spark_kafka_sink.schemas.formats.plan import FrameColumn, plan_formats
from spark_kafka_sink.schemas.formats.task_formats import TaskFormats
from spark_kafka_sink.schemas.registry.schema import Side
from spark_kafka_sink.spark import write
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.pipeline import Pipeline
from spark_kafka_sink.spark.schema import RowLayout
from spark_kafka_sink.testing import TestBroker
from spark_kafka_sink.testing.broker.topic_view import StoredRecord
from tests.contract.exactly_once.runs import LEDGER, Query
from tests.support.kept import forget_writes

_MS = 1_700_000_000_000
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_SCHEMA = '{"type":"record","name":"R","fields":[{"name":"a","type":"string"},{"name":"b","type":["null","long"]}]}'
_STRUCT = pa.struct([("a", pa.string()), ("b", pa.int64())])


def _rows() -> dict[str, pa.Array]:
    """Forty rows with every column: three partitions by key, two topics."""
    count = 40
    return {
        "value": pa.array(
            [None if n % 13 == 0 else f"value {n}".encode() * (n % 5) for n in range(count)], pa.binary()
        ),
        "key": pa.array([f"key {n % 7}" for n in range(count)]),
        "topic": pa.array(["out" if n % 3 else "more" for n in range(count)]),
        "headers": pa.array([[{"key": f"h{n}", "value": b"x" * n}] * (n % 3) for n in range(count)], _HEADERS),
        "timestamp": pa.array([_MS + 1000 * n for n in range(count)], pa.timestamp("ms", "UTC")),
    }


def _given_partitions() -> dict[str, pa.Array]:
    rows = {name: column[:10] for name, column in _rows().items() if name not in ("key", "topic")}
    return {**rows, "partition": pa.array([n % 2 for n in range(10)], pa.int32())}


def _given_topic() -> dict[str, pa.Array]:
    return {name: column for name, column in _rows().items() if name != "topic"}


def _unfit() -> dict[str, pa.Array]:
    """Rows that are too large and for an unknown partition. (An unknown topic would be waited for.)"""
    return {
        "value": pa.array([b"good", b"x" * 3_000, b"no partition"]),
        "topic": pa.array(["out", "small", "out"]),
        "partition": pa.array([0, 0, 9], pa.int32()),
        "timestamp": pa.array([_MS] * 3, pa.timestamp("ms", "UTC")),
    }


def _structs() -> dict[str, pa.Array]:
    return {
        "value": pa.array([{"a": "one", "b": 1}, {"a": None, "b": 2}, {"a": "three", "b": None}], _STRUCT),
        "key": pa.array(["k", "k", "k"]),
        "timestamp": pa.array([_MS] * 3, pa.timestamp("ms", "UTC")),
    }


_LETTERS = {"deadlettertopic": "dead"}

SCENARIOS: Mapping[str, tuple[dict[str, pa.Array], dict[str, str]]] = {
    "every column": (_rows(), {}),
    "without idempotence": (_rows(), {"kafka.enable.idempotence": "false", "kafka.acks": "1"}),
    "small batches": (_rows(), {"kafka.batch.size": "200"}),
    "crc32": (_rows(), {"kafka.partitioner.class": "crc32"}),
    "partitions of the rows": (_given_partitions(), {"topic": "out"}),
    "round robin": (_given_topic(), {"topic": "out", "kafka.partitioner.class": "RoundRobinPartitioner"}),
    "a rate": (_rows(), {"maxrowspersecondpertask": "10000"}),
    "receipts": (_rows(), {"receiptstopic": "receipts"}),
    "dead letters": (_unfit(), _LETTERS),
    "unfit rows": (_unfit(), {}),
    "a negative time": ({"value": pa.array([b"x"]), "timestamp": pa.array([-2])}, {"topic": "out"}),
    "avro": (_structs(), {"topic": "out", "valueformat": "avro", "valueschema": _SCHEMA}),
    "avro with dead letters": (_structs(), {"topic": "out", "valueformat": "avro", "valueschema": _SCHEMA, **_LETTERS}),
}


def at_least_once() -> list[str]:
    """Each scenario on a broker of its own."""
    return [line for name, scenario in SCENARIOS.items() for line in _run(name, *scenario, exactly_once=False)]


def exactly_once() -> list[str]:
    """The same in a transaction, with what the ledger has afterwards."""
    return [line for name, scenario in SCENARIOS.items() for line in _run(name, *scenario, exactly_once=True)]


def _run(name: str, columns: Mapping[str, pa.Array], given: dict[str, str], *, exactly_once: bool) -> Iterator[str]:
    yield f"== {name}"
    with TestBroker(config={"auto.create.topics.enable": False}) as broker:
        for topic in ("out", "more"):
            broker.create_topic(topic, partitions=3)
        broker.create_topic("small", configs={"max.message.bytes": 2_000})
        for topic in ("dead", "receipts"):
            broker.create_topic(topic)
        options = SinkOptions.parse({
            "kafka.bootstrap.servers": broker.bootstrap_servers, "kafka.client.id": "recorded",
            "kafka.linger.ms": "60000", "kafka.max.block.ms": "3000", "kafka.compression.type": "none", **given,
        })  # fmt: skip
        try:
            said = _transaction(broker, columns, options, given) if exactly_once else _producer(columns, options)
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        forget_writes()
        yield _steady(said.replace(broker.bootstrap_servers, "<servers>"))
        yield f"requests: {', '.join(sorted({f'{each.api} {each.version}' for each in broker.requests}))}"
        for topic in broker.topics:
            yield from _topic(broker, topic)


def _formats(columns: Mapping[str, pa.Array], options: SinkOptions) -> Any:
    frame = {Side.VALUE: FrameColumn(columns["value"].type)}
    return None if options.formats is None else plan_formats(options.formats, frame, options.topic, None)


def _producer(columns: Mapping[str, pa.Array], options: SinkOptions) -> str:
    layout = RowLayout(**{name: index for index, name in enumerate(columns)})
    batches = iter([pa.record_batch(dict(columns))])
    message = write.write_rows(batches, layout, options, _formats(columns, options))
    written = [
        f"{each.topic}-{each.partition} {each.first_offset}..{each.last_offset}: {each.count} rows, {each.bytes} bytes"
        for each in message.writes
    ]
    return "; ".join([*written, f"dead letters: {dict(message.figures.dead_letters)}"])


def _transaction(
    broker: TestBroker, columns: Mapping[str, pa.Array], options: SinkOptions, given: dict[str, str]
) -> str:
    kafka = {name.removeprefix("kafka."): value for name, value in given.items() if name.startswith("kafka.")}
    kafka = {"compression.type": "none", "linger.ms": "60000", "max.block.ms": "3000", **kafka}
    kafka.pop("enable.idempotence", None)
    kafka.pop("acks", None)
    query = Query(broker.bootstrap_servers, options=kafka)
    plan, formats = query.plan(0), _formats(columns, options)
    layout = RowLayout(**{name: index for index, name in enumerate(columns)})
    batches: Iterator[pa.RecordBatch] = iter([pa.record_batch(dict(columns))])
    with query.open_task(plan, 0, 0) as task:
        encoders = None if formats is None else TaskFormats(formats)
        Pipeline(options, task, SystemClock(), TaskName("q1", 0, 0), encoders).write(batches, layout)
        report = task.prepare()
    query.commit([report])
    return f"{report.outcome.rows}; dead letters: {dict(task.figures.dead_letters)}"


def _topic(broker: TestBroker, topic: str) -> Iterator[str]:
    view = broker.topic(topic)
    for record in view.records() if topic in (LEDGER, "dead", "receipts") else ():
        yield f"{topic}: {_shown(record)}"
    if topic in ("out", "more", "small"):
        for contents in view._contents(None, read_committed=False):
            if contents.data:
                yield f"{topic}-{contents.index}: {_without_crc(bytes(contents.data))}"


def _without_crc(batches: bytes) -> str:
    """Hex of the stored batches. A control batch has the time of the broker, and so have the CRCs."""
    shown, at = [], 0
    while at < len(batches):
        end = at + 12 + int.from_bytes(batches[at + 8 : at + 12], "big")
        is_control = bool(batches[at + 22] & 0x20)
        shown.append("<marker>" if is_control else batches[at:end].hex())
        at = end
    return " ".join(shown)


def _shown(record: StoredRecord) -> str:
    value = record.value
    if value is not None and value.startswith(b"{"):
        value = json.dumps(json.loads(value), sort_keys=True).encode()
    headers = [f"{key.decode()}={content!r}" for key, content in record.headers]
    return _steady(f"{record.key!r} {value!r} {' '.join(headers)}")


_UNSTEADY = (
    (r'"(began_at|ended_at|time|\w+_ms|requests|compressed_bytes)": [\d.]+', r'"\1": <>'),
    (r"b'\d{13}'", "<>"),
    (r"\b1[6-9]\d{11}\b", lambda found: found[0] if found[0].startswith("17000000") else "<ms>"),
    (r'(\["[\w.-]+", |"ledger": )"[\w-]{22}"', r'\1"<id>"'),
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<uuid>"),
)  # fmt: skip


def _steady(text: str) -> str:
    for pattern, instead in _UNSTEADY:
        text = re.sub(pattern, instead, text)
    return text
