"""How long a Python worker that writes takes to import the sink, after what every worker of PySpark imports."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from benchmarks.harness import ROOT
from benchmarks.model import Part, Run
from benchmarks.rounds import rounds_of

if TYPE_CHECKING:
    from benchmarks.harness import Harness

DEADLINE_S = 60
REPEATS = 5

# What pyspark/daemon.py and the writing worker have imported by the time that they unpickle a writer.
_PROGRAM = """
import json, time
import pyspark.daemon, pyspark.worker, pyspark.sql.datasource, pyspark.sql.pandas.serializers, pyarrow, numpy, pandas
import pyspark.sql.worker.write_into_data_source
wall, cpu = time.perf_counter(), time.process_time()
import spark_kafka_sink.spark.sink_write, spark_kafka_sink.spark.write
print(json.dumps({"import_s": time.perf_counter() - wall, "import_cpu_s": time.process_time() - cpu}))
"""


def run_imports(part: Part, rounds: int, harness: Harness) -> Iterator[Run]:
    """Each run is the quickest of five new processes: what others do can only add."""
    for number, side in rounds_of(part, rounds):
        tries = [_import() for _ in range(REPEATS)]
        yield Run(side.name, number, part.rows, min(tries, key=lambda each: each["import_s"]))


def _import() -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _PROGRAM],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    measures: dict[str, float] = json.loads(done.stdout)
    return measures
