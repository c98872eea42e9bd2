"""``local_spark``: a Spark session on this machine for tests of jobs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.testing.java import java_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS: Final = MappingProxyType({
    "spark.master": "local[2]",
    "spark.app.name": "tests",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",  # the machine's name may not resolve
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.session.timeZone": "UTC",
})  # fmt: skip
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


@contextmanager
def local_spark(settings: Mapping[str, str] = _NOTHING) -> Iterator[SparkSession]:
    """A Spark session with two cores, two shuffle partitions, UTC and no UI, whose workers run this Python.
    ``settings``: further settings of Spark.

    A session that is already there is used instead, and not stopped. Raises ``JavaError`` without Java 17.
    """
    from pyspark.sql import SparkSession

    if (there := SparkSession.getActiveSession()) is not None:
        yield there
        return
    os.environ["JAVA_HOME"] = java_environment()["JAVA_HOME"]  # the Java there may be too old
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = SparkSession.builder.config(map={**_SETTINGS, **settings}).getOrCreate()
    try:
        yield session
    finally:
        session.stop()
