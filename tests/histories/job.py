"""The driver of a workload: ``python job.py WORKLOAD SETTINGS``. SETTINGS: JSON with servers, registry and folder.

It goes on until FOLDER has a file ``stop``, and then ends with a write that leaves nothing open. What fails is run
again, as a scheduler would: a query from its checkpoint, a version under its number, a job that is not repeated never.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

import spark_kafka_sink
from spark_kafka_sink.spark import write_kafka
from tests.faults.chaos.processes import MARK, SIDE, START
from tests.faults.chaos.query_job import run_until_done
from tests.faults.support.kill_points import VARIABLE
from tests.histories.hooks import PROXIES, PROXIES_OF_EXECUTORS
from tests.histories.recorder import ACTOR, FOLDER, Recorder, recorder_of_environment, short
from tests.histories.workloads import (
    DRIVER_HOST,
    DRIVER_PORTS,
    HALT_FILE,
    LETTERS,
    OPTIONS_FILE,
    ROWS,
    RUNNING_FILE,
    TASKS,
    replace_file,
)

_REFUSED = re.compile(r"deleted and created again since.*?ledgerStart=(trust-ledger:\d+)")
_APART_S = 1.0
_TRIGGER = "1 second"

OPTIONS = {
    "kafka.request.timeout.ms": 6_000,
    "kafka.delivery.timeout.ms": 30_000,
    "kafka.max.block.ms": 30_000,
    "kafka.metadata.max.age.ms": 10_000,  # so that new partitions are written to soon
}
EXACTLY_ONCE = {
    "deliveryGuarantee": "exactly-once",
    "kafka.transaction.timeout.ms": 120_000,  # so that the transactions of a job whose driver died end in the run
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
_OF_EXECUTORS = (MARK, START, FOLDER, ACTOR, VARIABLE, "PYTHONPATH")


@dataclass(frozen=True)
class Job:
    """What every workload needs."""

    spark: SparkSession
    record: Recorder
    servers: str
    registry: str
    folder: Path
    switched: Mapping[str, object]
    """Options that this run has instead of its own."""

    @property
    def stops(self) -> bool:
        return (self.folder / "stop").exists()

    def options(self, topic: str, **more: object) -> dict[str, object]:
        """Those of an at-least-once write."""
        return {**OPTIONS, **self.switched, "kafka.bootstrap.servers": self.servers, "topic": topic, **more}

    def exactly_once(self, topic: str, **more: object) -> dict[str, object]:
        return self.options(topic, **EXACTLY_ONCE, **more)

    def version(self, name: str, number: int) -> dict[str, object]:
        """Those of a write that is repeated until it succeeds."""
        return self.exactly_once(name, txnAppId=name, txnVersion=number, **self.accepted(f"{name}/{number}"))

    def told(self, write: str, run: Callable[[], object]) -> None:
        """A run of a batch write, with Spark's verdict on it."""
        start = os.environ[START]
        replace_file(self.folder / RUNNING_FILE, write)
        self.record("began", write=write, start=start)
        try:
            run()
        except Exception as error:
            text = " ".join([str(error), *getattr(error, "__notes__", ())])
            verdict = {"outcome": "failed", "error": short(text)}
            self.record("verdict", write=write, start=start, by="spark", **verdict)
            self.accept(write, text)
            raise
        verdict = {"outcome": "committed", "error": ""}
        self.record("verdict", write=write, start=start, by="spark", **verdict)

    def accept(self, name: str, text: str) -> None:
        """Does what an operator does when the topic of a write, or of a query, was created again: its next run gets the
        value that the error names."""
        refused = _REFUSED.search(text)
        if refused is not None:
            self.record("trusted", write=name, ledger_start=refused[1])
            self._accepted(name).write_text(refused[1])

    def accepted(self, name: str) -> dict[str, str]:
        """The option that ``accept`` has left."""
        file = self._accepted(name)
        return {"ledgerStart": file.read_text()} if file.exists() else {}

    def _accepted(self, name: str) -> Path:
        return self.folder / f"accepted-{name.replace('/', '-')}"


def source(job: Job) -> DataFrame:
    """Micro-batch N has the numbers from N * ROWS on."""
    rate = job.spark.readStream.format("rate-micro-batch")
    return rate.option("rowsPerBatch", ROWS).option("numPartitions", TASKS).load()


def key(write: str) -> str:
    """SQL for the name of a row in the micro-batch that it is of."""
    return f"concat('{write}/', cast(value div {ROWS} as string), '/', cast(value as string)) key"


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
    (write,) = LETTERS.writes
    dead = ", ".join(map(str, write.dead_letters))
    partition = f"if(value % {ROWS} in ({dead}), 99, cast(value % {TASKS} as int)) partition"
    rows = source(job).selectExpr(key("letters"), "named_struct('number', value) value", partition)
    options = job.exactly_once(
        "letters",
        transactionalIdPrefix="letters",
        deadLetterTopic=write.dead_letter_topic,
        valueFormat="avro",
        **{"schema.registry.url": job.registry},
        **job.accepted("letters"),
    )
    into = rows.writeStream.format("pykafka").options(**options)
    try:
        run_query(job, into.option("checkpointLocation", str(job.folder / "checkpoint")))
    except Exception as error:
        job.accept("letters", str(error))
        raise


def control(job: Job) -> None:
    rows = source(job).selectExpr(key("control"), "cast(value as string) value")
    into = rows.writeStream.format("pykafka").options(**job.options("control"))
    run_query(job, into.option("checkpointLocation", str(job.folder / "checkpoint")))


def pairs(job: Job) -> None:
    """Each micro-batch goes into two topics, one by the format and one by ``write_kafka``."""

    def write_both(frame: DataFrame, number: int) -> None:
        for name in ("pairs-one", "pairs-two"):
            rows = frame.selectExpr(key(name), "cast(value as string) value")
            options = job.version(name, number)
            job.told(f"{name}/{number}", by_format(rows, options) if name == "pairs-one" else by_call(rows, options))

    into = source(job).writeStream.foreachBatch(write_both)
    run_query(job, into.option("checkpointLocation", str(job.folder / "checkpoint")))


Way = Callable[[DataFrame, dict[str, object]], Callable[[], object]]


def by_format(rows: DataFrame, options: dict[str, object]) -> Callable[[], object]:
    return lambda: rows.write.format("pykafka").options(**options).mode("append").save()


def by_call(rows: DataFrame, options: dict[str, object]) -> Callable[[], object]:
    return lambda: write_kafka(rows, options)


def rows_of_job(job: Job, write: str) -> DataFrame:
    name = f"concat('{write}/', cast(id as string)) key"
    return job.spark.range(0, ROWS, 1, TASKS).selectExpr(name, "cast(id as string) value")


def nightly(job: Job) -> None:
    _versions(job, "nightly", (by_format, by_call))


def oldest(job: Job) -> None:
    """Spark 3.5 has no Python data sources."""
    _versions(job, "oldest", (by_call,))


def _versions(job: Job, name: str, ways: Sequence[Way]) -> None:
    """Version after version; one that failed, or whose driver died, is repeated."""
    done = job.folder / "done"
    done.mkdir(exist_ok=True)
    while True:
        last = job.stops
        version = 1 + max((int(file.name) for file in done.iterdir()), default=0)
        write = f"{name}/{version}"
        options = job.version(name, version)
        by = ways[version % len(ways)]
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
        options = job.exactly_once("once", txnAppId=f"once-{number}", txnVersion=0)
        by = by_format if number % 2 else by_call
        job.told(write, by(rows_of_job(job, write), options))
        if last:
            return
        time.sleep(_APART_S)


JOBS = {job.__name__: job for job in (pairs, letters, nightly, once, oldest, control)}


def settings_of_spark(master: str) -> dict[str, str]:
    """Without ``master``, everything runs in the driver's process and its Python workers."""
    if not master:
        return {**_SETTINGS, "spark.master": _LOCAL}
    own = {PROXIES: os.environ[PROXIES_OF_EXECUTORS], SIDE: "executor"}
    variables = {name: os.environ[name] for name in _OF_EXECUTORS} | own
    of_executors = {f"spark.executorEnv.{name}": value for name, value in variables.items()}
    return {**_SETTINGS, **_ON_EXECUTORS, **of_executors, **_network_of_driver(), "spark.master": master}


def _network_of_driver() -> dict[str, str]:
    """It listens where it always does, and executors connect to the gates before that."""
    port, blocks = os.environ[DRIVER_PORTS].split()
    return {
        "spark.driver.bindAddress": _SETTINGS["spark.driver.host"],
        "spark.driver.host": DRIVER_HOST,
        "spark.driver.port": port,
        "spark.driver.blockManager.port": blocks,
        "spark.port.maxRetries": "0",  # or it would listen at a port that no gate is before
    }


def main(workload: str, settings: str) -> None:
    given = json.loads(settings)
    os.environ.pop("LD_PRELOAD", None)  # a clock that is off is one of Python, not of the JVM
    builder = SparkSession.builder.appName(workload)
    for name, value in settings_of_spark(given["master"]).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    record = recorder_of_environment()
    record(
        "driver", workload=workload, start=os.environ[START], phase="session", sink=spark_kafka_sink.__file__,
        spark=spark.version,
    )  # fmt: skip
    folder = Path(given["folder"])
    options = folder / OPTIONS_FILE
    switched = json.loads(options.read_text()) if options.exists() else {}
    job = Job(spark, record, given["servers"], given["registry"], folder, switched)
    run_until_done(spark, lambda: JOBS[workload](job))


if __name__ == "__main__":
    main(*sys.argv[1:])
