"""CPU time per row of the hot path, as a multiple of work of the same kind that does not change.

Machines differ, and so does one machine from minute to minute; a ratio of two things that are measured in turn, each by
the quickest of its repeats, hardly does. ``guard.json`` has the ratios this commit stands for, and
``tests/repository/test_speed_guard.py`` fails when one has become 1.3 times as large.

    python -m benchmarks.guard            shows them
    python -m benchmarks.guard --update   writes them: after a change that makes something faster, or is worth its price
"""

from __future__ import annotations

import argparse
import json
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple

import crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.scripted_cluster import PARTITIONS, ScriptedCluster
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.producer.kafka_partitioners import BuiltInPartitioner
from spark_kafka_sink.producer.partitioner import PartitionLoad
from spark_kafka_sink.records.columns import RecordColumns, TopicColumn
from spark_kafka_sink.records.encode import encode_records

NUMBERS = Path(__file__).with_name("guard.json")
REPEATS = 15
ROWS = 10_000
"""As many as Spark puts into an Arrow batch."""
TOPIC = "t"

_HEADER = struct.Struct(">qiibIhiqqqhii")


def rows() -> RecordColumns:
    """Keys of 9 to 15 bytes, values of 100."""
    numbers = np.random.default_rng(1).integers(0, 1_000_000, ROWS)
    keys = pa.array([b"customer-%d" % number for number in numbers], pa.binary())
    return RecordColumns(key=keys, value=pa.array([b"%0100d" % number for number in numbers], pa.binary()))


# What is compared with: the same libraries at work of the same kind, in the same proportion of calls to bytes.


def numbers_kernel() -> Callable[[], object]:
    """Whole columns of numbers multiplied, shifted and gathered by numpy."""
    data = np.random.default_rng(1).integers(0, 256, ROWS * 16, dtype=np.uint8)
    places = np.arange(ROWS) * 16
    factor = np.uint32(0x5BD1E995)

    def run() -> object:
        mixed = np.zeros(ROWS, np.uint32)
        for byte in range(16):
            word = data[places + byte].astype(np.uint32)
            word *= factor
            word ^= word >> np.uint32(24)
            mixed *= factor
            mixed ^= word
        return mixed

    return run


def columns_kernel() -> Callable[[], object]:
    """Columns of bytes taken in another order and joined row by row by Arrow."""
    columns = rows()
    order = np.random.default_rng(2).permutation(ROWS)
    small = pa.array([b"%c" % (number % 128) for number in range(ROWS)], pa.binary())

    def run() -> object:
        taken = [pc.take(column, pa.array(order)) for column in (columns.key, columns.value)]
        joined = pc.binary_join_element_wise(small, small, taken[0], small, taken[1], small, b"")
        return np.cumsum(pc.binary_length(joined).to_numpy())

    return run


class _Thing:
    __slots__ = ("data", "key", "numbers")

    def __init__(self, key: tuple[str, int], data: memoryview) -> None:
        self.key = key
        self.data = data
        self.numbers: list[int] = []


def objects_kernel() -> Callable[[], object]:
    """Small Python objects in dicts and lists, a packed header and a checksum for every 16 KiB."""
    data = memoryview(bytes(16 * 1024 * 64))

    def run() -> object:
        kept: dict[tuple[str, int], list[_Thing]] = {}
        for number in range(64):
            for part in range(12):
                thing = _Thing((TOPIC, part % PARTITIONS), data[number * 16384 : (number + 1) * 16384])
                thing.numbers.extend((part, number))
                kept.setdefault(thing.key, []).append(thing)
            header = _HEADER.pack(0, 1, 0, 2, 0, 0, 3, 4, 5, 6, 7, 8, 9)
            crc32c.crc32c(data[number * 16384 : (number + 1) * 16384], crc32c.crc32c(header))
        return kept

    return run


# What is measured.


def partition() -> Callable[[], object]:
    """A partition for each of the keys."""
    partitioner = BuiltInPartitioner(ProducerConfig.parse({"bootstrap.servers": "h:1"}), Random(1))
    columns = rows()
    sizes = np.full(ROWS, 120, np.int64)
    load = PartitionLoad(tuple(range(PARTITIONS)))
    return lambda: partitioner.partition(TOPIC, columns, None, sizes, PARTITIONS, load)


def encode() -> Callable[[], object]:
    """The rows, sorted by partition, as records."""
    columns = rows()
    order = np.random.default_rng(2).permutation(ROWS)
    deltas = np.arange(ROWS) % 130
    return lambda: encode_records(columns, deltas, 0, order)


def deliver(batch_size: int) -> Callable[[], float]:
    """Append, send, acknowledge: the whole engine without its thread. Returns the seconds of the benchmark itself."""
    columns = rows()
    cluster = ScriptedCluster({"batch.size": batch_size}, (TOPIC,))

    def run() -> float:
        before = cluster.foreign_s
        cluster.append(TopicColumn.of(TOPIC), columns, None)
        cluster.settle()
        return cluster.foreign_s - before

    return run


class Subject(NamedTuple):
    """``make`` gives what is run, which may give back the seconds that were not its own; ``beside``: the kernels it is
    measured by, all of them together.
    """

    make: Callable[[], Callable[[], object]]
    beside: tuple[str, ...]


KERNELS: Mapping[str, Callable[[], Callable[[], object]]] = {
    "numbers": numbers_kernel,
    "columns": columns_kernel,
    "objects": objects_kernel,
}

SUBJECTS: Mapping[str, Subject] = {
    "partition": Subject(partition, ("numbers",)),
    "encode": Subject(encode, ("columns",)),
    "deliver in batches of 16 KiB": Subject(lambda: deliver(16_384), ("columns", "objects")),
    "deliver in batches of 256 KiB": Subject(lambda: deliver(262_144), ("columns",)),
}


@dataclass(frozen=True, slots=True)
class Reading:
    """``us_per_row`` of CPU here and now; ``ratio`` to the kernels, which is what compares."""

    us_per_row: float
    ratio: float


def measure(repeats: int = REPEATS) -> dict[str, Reading]:
    """The quickest of ``repeats`` of everything, all in turn."""
    runs = {name: make() for name, make in KERNELS.items()}
    runs.update((name, subject.make()) for name, subject in SUBJECTS.items())
    for run in runs.values():
        run()
    quickest = dict.fromkeys(runs, float("inf"))
    for _ in range(repeats):
        for name, run in runs.items():
            quickest[name] = min(quickest[name], _cpu_s(run))
    return {
        name: Reading(quickest[name] / ROWS * 1e6, quickest[name] / sum(quickest[each] for each in subject.beside))
        for name, subject in SUBJECTS.items()
    }


def expected() -> dict[str, float]:
    """The ratios in the repository."""
    numbers: dict[str, float] = json.loads(NUMBERS.read_text())
    return numbers


def _cpu_s(run: Callable[[], object]) -> float:
    started = time.thread_time()
    foreign_s = run()
    return time.thread_time() - started - (foreign_s if isinstance(foreign_s, float) else 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.guard", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--update", action="store_true", help=f"write the ratios to {NUMBERS.name}")
    update = parser.parse_args().update
    readings = measure()
    before = expected() if NUMBERS.exists() else {}
    for name, reading in readings.items():
        known = f"{before[name]:.3f}" if name in before else "new"
        print(f"{name:<32} {reading.us_per_row:6.3f} µs/row   ratio {reading.ratio:.3f}   in the repository: {known}")
    if update:
        NUMBERS.write_text(json.dumps({name: round(each.ratio, 3) for name, each in readings.items()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
