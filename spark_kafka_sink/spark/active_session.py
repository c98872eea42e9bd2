"""Spark finds Python data sources only in the session that is active in the calling thread.

``DataSource.lookupDataSource`` of Spark 4.0 to 4.3 asks ``SparkSession.getActiveSession``, a thread-local variable of the
JVM, and neither the session of the frame nor the default session. So no way of registering reaches other threads.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from spark_kafka_sink.spark.caller_job import is_connect


def activate_session(spark: SparkSession) -> None:
    """Makes the session active in the calling thread, so that ``format("pykafka")`` is found there.

    Call it once in each thread that writes, for example as the initializer of a pool:
    ``ThreadPoolExecutor(4, initializer=activate_session, initargs=(spark,))``. The thread that created the session does
    not need it, nor does any thread on Spark Connect, where the call does nothing.

    It needs Spark 4.0 or newer and a thread of the JVM for each Python thread: ``PYSPARK_PIN_THREAD``, which is on by default.
    """
    if not is_connect(spark):
        SparkSession._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)
