"""What a program may have to do before Spark finds ``format("pykafka")``: register it, and in further threads activate
the session.

``DataSource.lookupDataSource`` of Spark 4.0 to 4.3 asks ``SparkSession.getActiveSession``, a thread-local variable of
the JVM, and neither the session of the frame nor the default session. So no way of registering reaches other threads.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from spark_kafka_sink.spark.caller_job import is_connect

_FOUND: Final = "DATA_SOURCE_ALREADY_EXISTS"


def register_format(spark: SparkSession) -> None:
    """Registers ``format("pykafka")`` in the session, where Spark does not find the installed package by itself.

    Newer Sparks than 4.0 prefer what is registered to what they have found; Spark 4.0 takes no second format of the
    name, so there the call is without effect if it has found one. Needs Spark 4.0 or newer.
    """
    from spark_kafka_sink.spark.source import KafkaDataSource

    try:
        spark.dataSource.register(KafkaDataSource)
    except AnalysisException as error:
        if error.getCondition() != _FOUND:
            raise


def activate_session(spark: Any) -> None:
    """Makes the session active in the calling thread, so that ``format("pykafka")`` is found there.

    Call it once in each thread that writes, for example as the initializer of a pool:
    ``ThreadPoolExecutor(4, initializer=activate_session, initargs=(spark,))``. The thread that created the session does
    not need it, nor does any thread on Spark Connect, where the call does nothing.

    It needs Spark 4.0 or newer and a thread of the JVM for each Python thread: ``PYSPARK_PIN_THREAD``, which is on by
    default. Raises ``TypeError`` if ``spark`` is not a session.
    """
    if not isinstance(spark, SparkSession) and not is_connect(spark):
        raise TypeError(f"activate_session takes a SparkSession, not {type(spark).__qualname__}.")
    if not is_connect(spark):
        SparkSession._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)
