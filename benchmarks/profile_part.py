"""Where the CPU of a Python worker goes: py-spy samples its threads while it writes."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.batch_part import batch_bench
from benchmarks.model import Part, Run, Side
from benchmarks.rounds import rounds_of

if TYPE_CHECKING:
    from benchmarks.batch_part import BatchBench
    from benchmarks.harness import Harness

SAMPLES_PER_S: Final = 250
END_DEADLINE_S: Final = 20

STEPS: Final = (
    (r"/network/selector\.py", "syscall_us"),
    (r"^stamp_header ", "crc_us"),
    (r"/common/compression\.py", "compress_us"),
    (r"/(network|security|login)/|/producer/(sender|produce_\w+|sequences|transaction_\w+)\.py", "sender_us"),
    (r"/records/", "encode_us"),
    (r"/producer/(kafka_)?partitioners?\.py", "partition_us"),
    (r"/(producer|spark|exactly_once)/", "append_us"),
)
"""A sample belongs to the innermost frame of the sink's own, by the first of these that it matches."""

_FRAME: Final = re.compile(r"\((?P<file>[^()]*spark_kafka_sink/[^()]*)\)$")
_READING: Final = re.compile(r"\((pyspark/.*|serializers\.py):")
"""PySpark's generators run inside of the frame that asks for the next rows."""


def run_profiles(part: Part, rounds: int, harness: Harness) -> Iterator[Run]:
    """Every side with its workers sampled; µs per row are the workers' CPU, cut up as the samples are."""
    with batch_bench(part, harness) as bench:
        for number, side in rounds_of(part, rounds):
            yield Run(side.name, number, part.rows, _profiled(bench, side, part.rows, harness))


def _profiled(bench: BatchBench, side: Side, rows: int, harness: Harness) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        with _sampled([worker.pid for worker in harness.processes.workers()], Path(folder)):
            measures = bench.write(side, rows)
        samples: Counter[str] = Counter()
        for file in Path(folder).iterdir():
            samples.update(steps(file.read_text().splitlines()))
    total = measures["workers_us"]
    shares = {name: total * count / samples.total() for name, count in samples.items()}
    return {"rows_per_s": measures["rows_per_s"], "workers_us": total, **shares}


@contextlib.contextmanager
def _sampled(workers: Iterable[int], folder: Path) -> Iterator[None]:
    """``py-spy record`` beside each worker, for as long as the block takes."""
    program = [str(Path(sys.executable).with_name("py-spy")), "record", "--nonblocking"]
    program += ["--format", "raw", "--rate", str(SAMPLES_PER_S)]
    spies = [
        subprocess.Popen(
            [*program, "--pid", str(worker), "--output", str(folder / str(worker))],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for worker in workers
    ]
    try:
        yield
    finally:
        for spy in spies:
            spy.send_signal(signal.SIGINT)  # ends a recording
    for spy in spies:
        _, said = spy.communicate(timeout=END_DEADLINE_S)
        if spy.returncode:
            raise RuntimeError(f"py-spy must be allowed to look into other processes (root, or ptrace): {said!r}")


def steps(stacks: Iterable[str]) -> Counter[str]:
    """Samples by step. ``stacks`` are py-spy's raw lines: frames from the outermost, then how often it was seen."""
    found: Counter[str] = Counter()
    for line in stacks:
        stack, _, count = line.rpartition(" ")
        found[_step(stack.split(";"))] += int(count)
    return found


def _step(frames: list[str]) -> str:
    own = [(at, match["file"]) for at, frame in enumerate(frames) if (match := _FRAME.search(frame)) is not None]
    if not own or any(map(_READING.search, frames[own[-1][0] :])):
        return "reading_us"
    step = next((name for pattern, name in STEPS if re.search(pattern, frames[own[-1][0]])), "append_us")
    # The accumulator serves both sides.
    return "sender_us" if step == "append_us" and any("/producer/sender.py" in file for _, file in own) else step
