"""The writes on the user's Spark: a batch job, and a streaming query that is stopped and started again."""

from __future__ import annotations

import importlib.util
import platform
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

import spark_kafka_sink
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.spark.caller_job import is_connect
from spark_kafka_sink.spark.kafka_write import kafka_batches, write_kafka
from spark_kafka_sink.spark.sessions import activate_session
from spark_kafka_sink.tools.certification.plan import RUNS, STREAM, Kind, Plan
from spark_kafka_sink.tools.certification.rows import columns

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_POLL_S: Final = 0.5
_FORMAT: Final = "pykafka"


def has_format() -> bool:
    """Whether this Spark has Python data sources, which came with Spark 4.0."""
    return importlib.util.find_spec("pyspark.sql.datasource") is not None


def spark_facts(spark: SparkSession) -> dict[str, str]:
    """Versions of Spark and of a worker's Python, without host names. Runs a job of one task."""
    # mapInArrow and UDFs with Arrow need pandas, which format("pykafka") does without.
    (row,) = spark.range(0, 1, 1, 1).select(udf(_worker, "string", useArrow=False)("id").alias("text")).collect()
    way = 'format("pykafka")' if has_format() else "write_kafka"
    return {"Spark": f"{spark.version}, {_master(spark)}, {way}", "workers": row.text}


def _master(spark: SparkSession) -> str:
    if is_connect(spark):
        return "Spark Connect"
    scheme, has_address, _ = str(spark.sparkContext.master).partition("://")
    return f"{scheme} cluster" if has_address else scheme


def spark_hosts(spark: SparkSession) -> set[str]:
    """Names of the machines of driver and executors. A client of Spark Connect does not know them."""
    hosts: set[str] = set()
    with suppress(Exception):  # Spark may have been stopped, or be a client of Connect
        context: Any = spark.sparkContext
        hosts.add(context.getConf().get("spark.driver.host", ""))
        hosts |= {each.host() for each in context._jsc.sc().statusTracker().getExecutorInfos()}
    return hosts


def _worker(_: int) -> str:
    return f"{platform_text()}, spark-kafka-sink {spark_kafka_sink.__version__}"


def platform_text() -> str:
    """System and Python of this process."""
    return f"{platform.system()} {platform.release()} {platform.machine()}, Python {platform.python_version()}"


class Write:
    """One write of the plan. ``run`` is called in a thread of its own, ``stop`` in any thread."""

    def __init__(self, spark: SparkSession, plan: Plan, kind: Kind) -> None:
        self._spark = spark
        self._plan = plan
        self._kind = kind
        self._options = plan.write_options(kind)
        self._checkpoint = f"{plan.checkpoint}/{kind.guarantee}"
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True

    def run(self) -> None:
        """Writes all rows. Raises what Spark raises, or ``KafkaError`` after ``stop``."""
        if has_format():
            activate_session(self._spark)
        if self._kind.way == STREAM:
            self._stream()
        else:
            self._batch(columns(self._spark.range(self._plan.rows), "id", self._plan.mark))

    def _batch(self, frame: DataFrame) -> None:
        if has_format():
            frame.write.format(_FORMAT).options(**self._options).mode("append").save()
        else:
            write_kafka(frame, self._options)

    def _stream(self) -> None:
        """Runs the query to its end, several times. Each run is one micro-batch, and all have the same size."""
        for _ in range(RUNS):
            query = self._started()
            try:
                while not query.awaitTermination(_POLL_S):  # type: ignore[arg-type] # Spark takes a float, too
                    if self._stopped:
                        raise KafkaError("The query was stopped.")
            finally:
                query.stop()

    def _started(self) -> StreamingQuery:
        source = self._spark.readStream.format("rate-micro-batch").option(
            "rowsPerBatch", self._plan.rows_of(self._kind) // RUNS
        )
        writer = columns(source.load(), "value", self._plan.mark).writeStream
        if has_format():
            writer = writer.format(_FORMAT).options(**self._options)
        else:
            named = {"txnAppId": f"{self._plan.mark}-{STREAM}"} if "commitLogTopic" in self._options else {}
            writer = writer.foreachBatch(kafka_batches({**self._options, **named}))
        return writer.option("checkpointLocation", self._checkpoint).trigger(availableNow=True).start()


def remove_checkpoints(spark: SparkSession, plan: Plan) -> str:
    """Removes the checkpoints through Spark's file systems. Returns why they stay, or ""."""
    if is_connect(spark):
        return "A client of Spark Connect cannot remove checkpoints"
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(plan.checkpoint)
    path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()).delete(path, True)
    return ""
