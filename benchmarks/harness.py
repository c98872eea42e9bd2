"""The broker, the schema registry and the Spark session that the parts share, each started when it is first needed."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from benchmarks.model import LOCAL
from benchmarks.processes import Processes
from benchmarks.topics import BROKER_PROPERTIES
from spark_kafka_sink.testing.java import java_environment
from spark_kafka_sink.testing.local_kafka import LocalKafka
from spark_kafka_sink.testing.local_schema_registry import LocalSchemaRegistry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[1]
CORES = 2

SETTINGS = {
    "spark.driver.memory": "4g",
    "spark.executor.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": str(CORES),
    "spark.sql.streaming.pollingDelay": "1ms",
    "spark.log.level": "ERROR",
}


class Harness:
    def __init__(self) -> None:
        self._stack = ExitStack()
        self._master = LOCAL
        self._spark: SparkSession | None = None
        self._stack.callback(self.stop_spark)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    @cached_property
    def kafka(self) -> LocalKafka:
        return self._stack.enter_context(LocalKafka(properties=BROKER_PROPERTIES))

    @cached_property
    def registry(self) -> LocalSchemaRegistry:
        return self._stack.enter_context(LocalSchemaRegistry())

    @property
    def spark(self) -> SparkSession:
        """A session that has Spark's JVM sink and Avro functions, the do-nothing sink and this one."""
        if self._spark is None:
            self._spark = self._session()
        return self._spark

    def run_on(self, master: str) -> None:
        """Spark's master from now on; another one ends the session that is there."""
        if master != self._master:
            self._master = master
            self.stop_spark()

    def stop_spark(self) -> None:
        """Ends the session; the next one starts Python processes of its own."""
        if self._spark is not None:
            self._spark.stop()
            self._spark = None

    def _session(self) -> SparkSession:
        from pyspark.sql import SparkSession

        from benchmarks.nothing import NothingDataSource
        from benchmarks.spark_jars import avro_jar, sink_jars

        os.environ.update(java_environment())
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        builder = SparkSession.builder.master(self._master).appName("benchmarks")
        for name, value in {**SETTINGS, "spark.jars": ",".join(map(str, (*sink_jars(), avro_jar())))}.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        spark.dataSource.register(NothingDataSource)
        return spark

    @property
    def processes(self) -> Processes:
        return Processes(self.spark)

    def settle(self, fresh_workers: bool = False) -> None:
        """What earlier runs left to be written or collected is not the next one's."""
        if fresh_workers:
            self.processes.end_workers()
        os.sync()
        jvm: Any = self.spark.sparkContext._jvm
        jvm.System.gc()
