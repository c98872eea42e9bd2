"""The driver of a workload on Spark: ``python job.py WORKLOAD SETTINGS``. SETTINGS: JSON with servers, folder, master.

It goes on until the folder has a file ``stop``, and then ends with a write that leaves nothing open. What fails is run
again, as a scheduler would: a query from its checkpoint, a version under its number.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from spark_kafka_sink.spark import write_kafka
from tests.faults.support.kill_points import VARIABLE
from tests.soak.drivers import print_failure
from tests.soak.events import ACTOR, FOLDER, Recorder, recorder_of_environment
from tests.soak.hooks import PROXIES, PROXIES_OF_EXECUTORS
from tests.soak.processes import MARK, SIDE, START
from tests.soak.workloads import HALT_FILE, LETTERS, PLANTED, ROWS, RUNNING_FILE, STOP_FILE, TASKS, replace_file

_APART_S = 1.0
_PAUSE_S = 0.5
_TRIGGER = "1 second"
_NO_SOURCE = "DATA_SOURCE_NOT_FOUND"

OPTIONS = {
    "kafka.request.timeout.ms": 6_000,
    "kafka.delivery.timeout.ms": 30_000,
    "kafka.max.block.ms": 30_000,
}
EXACTLY_ONCE = {
    "deliveryGuarantee": "exactly-once",
    "kafka.transaction.timeout.ms": 120_000,  # so that the transactions of a driver that died end in the run
}
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.pollingDelay": "50ms",
    "spark.sql.streaming.minBatchesToRetain": "10",
}
_LOCAL = "local[2,2]"
_ON_EXECUTORS = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.task.maxFailures": "2",
    "spark.network.timeout": "30s",
    "spark.network.timeoutInterval": "10s",
    "spark.executor.heartbeatInterval": "3s",
}
_OF_EXECUTORS = (MARK, START, FOLDER, ACTOR, VARIABLE, PLANTED, "PYTHONPATH")


@dataclass(frozen=True)
class Job:
    """What every workload needs."""

    spark: SparkSession
    record: Recorder
    servers: str
    folder: Path

    @property
    def stops(self) -> bool:
        return (self.folder / STOP_FILE).exists()

    def options(self, topic: str, **more: object) -> dict[str, object]:
        """Those of an at-least-once write."""
        return {**OPTIONS, "kafka.bootstrap.servers": self.servers, "topic": topic, **more}

    def version(self, name: str, number: int) -> dict[str, object]:
        """Those of an exactly-once write that is repeated until it succeeds."""
        return self.options(name, **EXACTLY_ONCE, txnAppId=f"txn-{name}", txnVersion=number)

    def told(self, write: str, run: Callable[[], object]) -> None:
        """A run of a batch write, with Spark's verdict on it."""
        of_run = {"write": write, "start": os.environ[START]}
        replace_file(self.folder / RUNNING_FILE, write)
        self.record("began", **of_run)
        try:
            run()
        except Exception as error:
            text = " ".join([str(error), *getattr(error, "__notes__", ())])
            self.record("verdict", **of_run, by="job", outcome="failed", error=text)
            raise
        self.record("verdict", **of_run, by="job", outcome="committed", error="")

    def query(self, rows: DataFrame, options: dict[str, object]) -> DataStreamWriter:
        return self.with_checkpoint(rows.writeStream.format("pykafka").options(**options))

    def with_checkpoint(self, into: DataStreamWriter) -> DataStreamWriter:
        return into.option("checkpointLocation", str(self.folder / "checkpoint"))


def source(job: Job) -> DataFrame:
    """Micro-batch N has the numbers from N * ROWS on."""
    rate = job.spark.readStream.format("rate-micro-batch")
    return rate.option("rowsPerBatch", ROWS).option("numPartitions", TASKS).load()


def columns(write: str) -> tuple[str, str]:
    """SQL for the name of a row in the micro-batch that it is of, and for its value."""
    key = f"concat('{write}/', cast(value div {ROWS} as string), '/', cast(value as string)) key"
    return key, "cast(value as string) value"


def run_query(job: Job, into: DataStreamWriter) -> None:
    """One query after the other, as often as it is stopped from outside."""
    halt = job.folder / HALT_FILE
    while not job.stops:
        query = into.trigger(processingTime=_TRIGGER).start()
        while not (query.awaitTermination(0.2) or job.stops or halt.exists()):
            pass
        halt.unlink(missing_ok=True)
        query.stop()
    into.trigger(availableNow=True).start().awaitTermination()


def letters(job: Job) -> None:
    """One row of ten names a partition that does not exist, and becomes a dead letter."""
    dead = ", ".join(map(str, LETTERS.dead_letters))
    partition = f"if(value % {ROWS} in ({dead}), 99, cast(value % {TASKS} as int)) partition"
    options = job.options(
        "letters", **EXACTLY_ONCE, transactionalIdPrefix="letters", deadLetterTopic=LETTERS.dead_letter_topic
    )
    run_query(job, job.query(source(job).selectExpr(*columns("letters"), partition), options))


def control(job: Job) -> None:
    run_query(job, job.query(source(job).selectExpr(*columns("control")), job.options("control")))


def pairs(job: Job) -> None:
    """Each micro-batch goes into two topics, one by the format and one by ``write_kafka``."""

    def write_both(frame: DataFrame, number: int) -> None:
        for name, write in (("pairs-one", by_format), ("pairs-two", write_kafka)):
            rows = frame.selectExpr(*columns(name))
            options = job.version(name, number)
            job.told(f"{name}/{number}", lambda write=write, rows=rows, options=options: write(rows, options))

    run_query(job, job.with_checkpoint(source(job).writeStream.foreachBatch(write_both)))


def by_format(rows: DataFrame, options: dict[str, object]) -> None:
    rows.write.format("pykafka").options(**options).mode("append").save()


def nightly(job: Job) -> None:
    """Version after version; one that failed, or whose driver died, is repeated."""
    done = job.folder / "done"
    done.mkdir(exist_ok=True)
    last = False
    while not last:
        last = job.stops
        version = 1 + max((int(file.name) for file in done.iterdir()), default=0)
        write = f"nightly/{version}"
        row = f"concat('{write}/', cast(id as string)) key", "cast(id as string) value"
        rows = job.spark.range(0, ROWS, 1, TASKS).selectExpr(*row)
        way = by_format if version % 2 else write_kafka
        job.told(write, lambda way=way, rows=rows, version=version: way(rows, job.version("nightly", version)))
        (done / str(version)).touch()
        time.sleep(_APART_S)


JOBS = {job.__name__: job for job in (pairs, letters, nightly, control)}


def settings_of_spark(master: str) -> dict[str, str]:
    """Without ``master``, everything runs in the driver's process and its Python workers."""
    if not master:
        return {**_SETTINGS, "spark.master": _LOCAL}
    own = {PROXIES: os.environ[PROXIES_OF_EXECUTORS], SIDE: "executor"}
    variables = {name: os.environ[name] for name in _OF_EXECUTORS if name in os.environ} | own
    of_executors = {f"spark.executorEnv.{name}": value for name, value in variables.items()}
    return {**_SETTINGS, **_ON_EXECUTORS, **of_executors, "spark.master": master}


def run_until_done(spark: SparkSession, work: Callable[[], None]) -> None:
    """Again after each failure, which is printed. A session that is stopped ends the process, and so does one whose
    look-up of Python data sources has failed, because Spark never repeats it."""
    while True:
        try:
            work()
            break
        except Exception as error:
            print_failure(error)
            if spark.sparkContext._jsc.sc().isStopped() or _NO_SOURCE in str(error):
                raise SystemExit(1) from None
            time.sleep(_PAUSE_S)
    spark.stop()


def main(workload: str, settings: str) -> None:
    given = json.loads(settings)
    builder = SparkSession.builder.appName(workload)
    for name, value in settings_of_spark(given["master"]).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    job = Job(spark, recorder_of_environment(), given["servers"], Path(given["folder"]))
    run_until_done(spark, lambda: JOBS[workload](job))


if __name__ == "__main__":
    main(*sys.argv[1:])
