"""Sessions that ``activate_session`` leaves alone, formats that are registered already; tests/spark has the others."""

import pytest
from pyspark.errors import AnalysisException

from spark_kafka_sink.spark import activate_session, register_format


class ConnectSession:
    """Without a JVM, as Spark Connect's session is: every attribute is an error."""


ConnectSession.__module__ = "pyspark.sql.connect.session"


def test_every_thread_of_spark_connect_finds_the_format_already():
    activate_session(ConnectSession())


def test_incident_no_session_was_an_attribute_error():
    with pytest.raises(TypeError, match="takes a SparkSession, not NoneType"):
        activate_session(None)


class Session:
    """Whose registration raises ``error``."""

    def __init__(self, error):
        self.dataSource = self
        self._error = error

    def register(self, source):
        raise self._error


def refusal(condition):
    error = AnalysisException("refused")
    error.getCondition = lambda: condition
    return error


def test_incident_spark_4_0_takes_no_second_format_of_the_name_that_it_has_found_itself():
    register_format(Session(refusal("DATA_SOURCE_ALREADY_EXISTS")))


def test_another_refusal_of_the_format_is_raised():
    with pytest.raises(AnalysisException):
        register_format(Session(refusal("CANNOT_LOAD")))
