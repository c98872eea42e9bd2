"""What dead letters cost the append path, in one process without Kafka: rows as Spark hands them over, until they are
acknowledged by a scripted node.

``python -m benchmarks.dead_letters_part ROWS`` prints the measures of all sides as one line of JSON. One core.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from benchmarks.harness import ROOT
from benchmarks.model import Part, Run

if TYPE_CHECKING:
    import pyarrow as pa

    from benchmarks.harness import Harness

BATCH_ROWS = 10_000
"""As many as Spark puts into an Arrow batch."""
BATCHES = 10
DEADLINE_S = 600
BAD = 100
"""One row in so many."""

_NO_PARTITION = 1_000
"""No topic here has so many."""

_TOPIC, _LETTERS = "rows", "letters"
_SCHEMA = {"type": "record", "name": "R", "fields": [{"name": f"c{n}", "type": "string"} for n in range(4)]}


def run_dead_letters(part: Part, rounds: int, harness: Harness) -> Iterator[Run]:
    """Each round is one process that runs all sides in turn, many times: the differences are as small as 1 %."""
    for number in range(1, min(rounds, part.most_rounds or rounds) + 1):
        program = [sys.executable, "-m", "benchmarks.dead_letters_part", str(part.rows)]
        done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(program)} failed:\n{done.stdout}{done.stderr}")
        figures = json.loads(done.stdout)
        for side in part.sides:
            yield Run(side.name, number, part.rows, {"client_us": figures[side.writer]})


def measured(rows: int) -> dict[str, float]:
    """CPU µs per row that came, by writer: the quickest of the runs, whose number follows from ``rows``."""
    writers = _writers()
    quickest = dict.fromkeys(writers, float("inf"))
    for _ in range(max(1, rows // (2 * BATCH_ROWS * BATCHES * len(writers)))):
        for name, write in writers.items():
            # Twice: the first run finds the caches full of another side's rows.
            quickest[name] = min(quickest[name], write(), write())
    return {name: seconds / (BATCH_ROWS * BATCHES) * 1e6 for name, seconds in quickest.items()}


def _writers() -> Mapping[str, Callable[[], float]]:
    raw, encoded = _raw(), _structs()
    return {
        "raw": _task(raw, False),
        "raw-good": _task(raw, True),
        "raw-null-topic": _task(_replaced(raw, "topic"), True),
        "raw-partition": _task(_replaced(raw, "partition", _NO_PARTITION), True),
        "avro": _task(encoded, False),
        "avro-good": _task(encoded, True),
        "avro-unencodable": _task(_structs(bad=True), True),
    }


def _task(batch: pa.RecordBatch, takes_letters: bool) -> Callable[[], float]:
    """Writes a task's rows; returns the CPU seconds."""
    import pyarrow as pa

    from spark_kafka_sink.common.clock import SystemClock
    from spark_kafka_sink.exactly_once.receipts import TaskName
    from spark_kafka_sink.schemas.formats.plan import FrameColumn, plan_formats
    from spark_kafka_sink.schemas.formats.task_formats import TaskFormats
    from spark_kafka_sink.schemas.registry.schema import Side
    from spark_kafka_sink.spark.options import SinkOptions
    from spark_kafka_sink.spark.pipeline import Pipeline
    from spark_kafka_sink.spark.schema import RowLayout

    given = {"kafka.bootstrap.servers": "boot:9092"}
    if takes_letters:
        given |= {"deadlettertopic": _LETTERS, "deadletterlimit": "none"}
    formats = None
    kind = batch.schema.field("value").type
    if pa.types.is_struct(kind):
        given |= {"valueformat": "avro", "valueschema": json.dumps(_SCHEMA)}
        options = SinkOptions.parse(given)
        assert options.formats is not None
        formats = plan_formats(options.formats, {Side.VALUE: FrameColumn(kind)}, None, None)
    options = SinkOptions.parse(given)
    output: Any = _Output()
    clock = SystemClock()
    name = TaskName("query", 0, 0)

    def run() -> float:
        layout = RowLayout(**{field: index for index, field in enumerate(batch.schema.names)})
        before, started = output.cluster.foreign_s, time.thread_time()
        encoders = None if formats is None else TaskFormats(formats)
        Pipeline(options, output, clock, name, encoders).write(iter([batch] * BATCHES), layout)
        output.cluster.settle()
        return float(time.thread_time() - started - (output.cluster.foreign_s - before))

    run()
    bad = output.cluster.delivered.get(_LETTERS, 0)
    assert sum(output.cluster.delivered.values()) == BATCH_ROWS * BATCHES
    assert bad in (0, BATCH_ROWS * BATCHES // BAD)
    return run


class _Output:
    """A ``TaskOutput`` and its core."""

    writes = True

    def __init__(self) -> None:
        from benchmarks.scripted_cluster import PARTITIONS, ScriptedCluster
        from spark_kafka_sink.common.clock import SystemClock
        from spark_kafka_sink.producer.receipt import SendReceipt
        from spark_kafka_sink.producer.task_output import TaskMeter

        self.receipt = SendReceipt()
        self.cluster = ScriptedCluster({}, (_TOPIC, _LETTERS))
        self.config = self.cluster.config
        self.meter = TaskMeter(SystemClock())
        self.partitions = PARTITIONS

    def core(self) -> Any:
        return self

    def refused(self) -> Iterator[Any]:
        return iter(())

    def flush(self) -> None:
        """The cluster settles after the write."""

    def count(self, *_: object) -> None:
        """As at least once."""

    def append(self, topics: Any, columns: Any, partitions: Any) -> None:
        self.cluster.append(topics, columns, partitions)

    def append_own(self, topic: str, columns: Any) -> None:
        from spark_kafka_sink.records.columns import TopicColumn

        self.cluster.append(TopicColumn.of(topic), columns, None)

    def has_metadata(self, topic: str) -> bool:
        return True

    def partition_count(self, topic: str) -> int:
        return self.partitions

    def refreshed_partition_count(self, topic: str) -> int:
        return self.partitions

    @property
    def calls(self) -> Any:
        return self

    def now(self) -> float:
        return 0.0

    def call(self, call: Any, deadline: float) -> Any:
        """DescribeConfigs: the limits of topics are a broker's default."""
        from kio.schema.errors import ErrorCode

        config = SimpleNamespace(name="max.message.bytes", value="1048588")
        described = {"error_code": ErrorCode.none, "configs": [config]}
        return SimpleNamespace(
            results=[SimpleNamespace(resource_name=name, **described) for name in (_TOPIC, _LETTERS)]
        )


def _raw() -> pa.RecordBatch:
    import numpy as np
    import pyarrow as pa

    numbers = np.random.default_rng(1).integers(0, 1_000_000, BATCH_ROWS).tolist()
    return pa.record_batch(
        {
            "topic": pa.array([_TOPIC] * BATCH_ROWS),
            "key": pa.array([b"customer-%d" % number for number in numbers], pa.binary()),
            "value": pa.array([b"%0100d" % number for number in numbers], pa.binary()),
            "partition": pa.nulls(BATCH_ROWS, pa.int32()),
        }
    )


def _structs(bad: bool = False) -> pa.RecordBatch:
    """Four strings of 25 bytes as the value; a null one cannot be encoded."""
    import pyarrow as pa

    raw = _raw()
    texts = [value.decode() for value in raw.column("value").to_pylist()]
    rows = [{f"c{n}": text[25 * n : 25 * n + 25] for n in range(4)} for text in texts]
    if bad:
        for row in rows[::BAD]:
            row["c2"] = None
    kind = pa.struct([(f"c{n}", pa.string()) for n in range(4)])
    return raw.set_column(raw.schema.get_field_index("value"), "value", pa.array(rows, kind))


def _replaced(batch: pa.RecordBatch, name: str, by: object = None) -> pa.RecordBatch:
    """One value in a hundred by another."""
    import pyarrow as pa

    index = batch.schema.get_field_index(name)
    values = batch.column(index).to_pylist()
    values[::BAD] = [by] * len(values[::BAD])
    return batch.set_column(index, name, pa.array(values, batch.schema.field(index).type))


if __name__ == "__main__":
    print(json.dumps(measured(int(sys.argv[1]))))
