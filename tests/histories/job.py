"""The driver of a workload: ``python job.py WORKLOAD SETTINGS``. SETTINGS: JSON with servers, registry and folder.

It goes on until FOLDER has a file ``stop``, and then ends with a write that leaves nothing open. What fails is run
again, as a scheduler would: a query from its checkpoint, a version under its number, a job that is not repeated never.
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
from tests.faults.chaos.processes import START
from tests.faults.chaos.query_job import run_until_done
from tests.histories.recorder import Recorder, claim_of, recorder_of_environment
from tests.histories.workloads import ROWS, TASKS

_APART_S = 1.0
_TRIGGER = "1 second"

OPTIONS = {
    "kafka.request.timeout.ms": 6_000,
    "kafka.delivery.timeout.ms": 30_000,
    "kafka.max.block.ms": 30_000,
}
EXACTLY_ONCE = {
    **OPTIONS,
    "deliveryGuarantee": "exactly-once",
    "kafka.transaction.timeout.ms": 120_000,  # so that the transactions of a job whose driver died end in the run
}
_SETTINGS = {
    "spark.master": "local[2,2]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.pollingDelay": "50ms",
    "spark.sql.streaming.minBatchesToRetain": "10",
}


@dataclass(frozen=True)
class Job:
    """What every workload needs."""

    spark: SparkSession
    record: Recorder
    servers: str
    registry: str
    folder: Path

    @property
    def stops(self) -> bool:
        return (self.folder / "stop").exists()

    def options(self, topic: str, **more: object) -> dict[str, object]:
        return {"kafka.bootstrap.servers": self.servers, "topic": topic, **more}

    def told(self, write: str, run: Callable[[], object]) -> None:
        """A run of a batch write, with Spark's verdict on it."""
        start = os.environ[START]
        self.record("began", write=write, start=start)
        try:
            run()
        except Exception as error:
            text = " ".join([str(error), *getattr(error, "__notes__", ())])
            short = " ".join(text.split())[:600]
            verdict = {"outcome": "failed", "claim": claim_of(text), "error": short}
            self.record("verdict", write=write, start=start, by="spark", **verdict)
            raise
        verdict = {"outcome": "committed", "claim": "none", "error": ""}
        self.record("verdict", write=write, start=start, by="spark", **verdict)


def source(job: Job) -> DataFrame:
    """Micro-batch N has the numbers from N * ROWS on."""
    rate = job.spark.readStream.format("rate-micro-batch")
    return rate.option("rowsPerBatch", ROWS).option("numPartitions", TASKS).load()


def key(write: str) -> str:
    """SQL for the name of a row in the micro-batch that it is of."""
    return f"concat('{write}/', cast(value div {ROWS} as string), '/', cast(value as string)) key"


def run_query(job: Job, into: DataStreamWriter) -> None:
    query = into.trigger(processingTime=_TRIGGER).start()
    while not (query.awaitTermination(0.2) or job.stops):
        pass
    query.stop()
    into.trigger(availableNow=True).start().awaitTermination()


def letters(job: Job) -> None:
    """One row of ten names a partition that does not exist, and becomes a dead letter."""
    partition = f"if(value % 10 = 7, 99, cast(value % {TASKS} as int)) partition"
    rows = source(job).selectExpr(key("letters"), "named_struct('number', value) value", partition)
    options = job.options(
        "letters",
        transactionalIdPrefix="letters",
        deadLetterTopic="letters-dead",
        valueFormat="avro",
        **{"schema.registry.url": job.registry},
    )
    into = rows.writeStream.format("pykafka").options(**EXACTLY_ONCE, **options)
    run_query(job, into.option("checkpointLocation", str(job.folder / "checkpoint")))


def control(job: Job) -> None:
    rows = source(job).selectExpr(key("control"), "cast(value as string) value")
    into = rows.writeStream.format("pykafka").options(**OPTIONS, **job.options("control"))
    run_query(job, into.option("checkpointLocation", str(job.folder / "checkpoint")))


def pairs(job: Job) -> None:
    """Each micro-batch goes into two topics, one by the format and one by ``write_kafka``."""

    def write_both(frame: DataFrame, number: int) -> None:
        for name in ("pairs-one", "pairs-two"):
            rows = frame.selectExpr(key(name), "cast(value as string) value")
            options = {**EXACTLY_ONCE, **job.options(name, txnAppId=name, txnVersion=number)}
            job.told(f"{name}/{number}", by_format(rows, options) if name == "pairs-one" else by_call(rows, options))

    into = source(job).writeStream.foreachBatch(write_both)
    run_query(job, into.option("checkpointLocation", str(job.folder / "checkpoint")))


def by_format(rows: DataFrame, options: dict[str, object]) -> Callable[[], object]:
    return lambda: rows.write.format("pykafka").options(**options).mode("append").save()


def by_call(rows: DataFrame, options: dict[str, object]) -> Callable[[], object]:
    return lambda: write_kafka(rows, options)


def rows_of_job(job: Job, write: str) -> DataFrame:
    name = f"concat('{write}/', cast(id as string)) key"
    return job.spark.range(0, ROWS, 1, TASKS).selectExpr(name, "cast(id as string) value")


def nightly(job: Job) -> None:
    """Version after version; one that failed, or whose driver died, is repeated."""
    done = job.folder / "done"
    done.mkdir(exist_ok=True)
    while True:
        last = job.stops
        version = 1 + max((int(file.name) for file in done.iterdir()), default=0)
        write = f"nightly/{version}"
        options = {**EXACTLY_ONCE, **job.options("nightly", txnAppId="nightly", txnVersion=version)}
        by = by_format if version % 2 else by_call
        job.told(write, by(rows_of_job(job, write), options))
        (done / str(version)).touch()
        if last:
            return
        time.sleep(_APART_S)


def once(job: Job) -> None:
    """Job after job, none of them a second time, whatever becomes of it."""
    claimed = job.folder / "claimed"
    claimed.mkdir(exist_ok=True)
    while True:
        last = job.stops
        number = 1 + max((int(file.name) for file in claimed.iterdir()), default=0)
        (claimed / str(number)).touch(exist_ok=False)  # another driver of this workload may be alive
        write = f"once/{number}"
        options = {**EXACTLY_ONCE, **job.options("once", transactionalIdPrefix="once", neverRepeated=True)}
        by = by_format if number % 2 else by_call
        job.told(write, by(rows_of_job(job, write), options))
        if last:
            return
        time.sleep(_APART_S)


JOBS = {job.__name__: job for job in (pairs, letters, nightly, once, control)}


def main(workload: str, settings: str) -> None:
    given = json.loads(settings)
    builder = SparkSession.builder.appName(workload)
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    record = recorder_of_environment()
    record("driver", workload=workload, start=os.environ[START], phase="session")
    job = Job(spark, record, given["servers"], given["registry"], Path(given["folder"]))
    run_until_done(spark, lambda: JOBS[workload](job))


if __name__ == "__main__":
    main(*sys.argv[1:])
