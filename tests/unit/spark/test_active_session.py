"""Sessions that ``activate_session`` leaves alone; tests/spark/test_batch.py has those that it makes active."""

from spark_kafka_sink.spark import activate_session


class ConnectSession:
    """Without a JVM, as Spark Connect's session is: every attribute is an error."""


ConnectSession.__module__ = "pyspark.sql.connect.session"


def test_every_thread_of_spark_connect_finds_the_format_already():
    activate_session(ConnectSession())
