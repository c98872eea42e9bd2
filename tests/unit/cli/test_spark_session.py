"""The session of jobs and commands: what a Spark that does not start, or fails, is told as."""

from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkRuntimeError

from spark_kafka_sink.tools.cli import job
from spark_kafka_sink.tools.cli.job import exit_code

NO_JAVA = PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})


def spark(monkeypatch, start):
    """``SparkSession`` with this ``getOrCreate``. Returns what happens to its session."""
    happened = []
    builder = SimpleNamespace(getOrCreate=start)
    builder.config = builder.appName = lambda *given, **named: builder
    monkeypatch.setattr(job, "SparkSession", SimpleNamespace(builder=builder))
    monkeypatch.setenv("PYSPARK_PYTHON", "python")
    return happened


@pytest.mark.parametrize(
    ("error", "says"),
    [(NO_JAVA, "Java gateway process exited"), (Py4JError("Master must start with yarn"), "Master must start")],
)
def test_incident_a_spark_that_does_not_start_was_a_traceback(monkeypatch, error, says, capsys):
    def fails():
        raise error

    def main():
        with job.spark_session("job", {}):
            raise AssertionError("it did not start")

    spark(monkeypatch, fails)
    assert exit_code(main) == 1
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert says in told


def test_a_job_that_fails_is_told_while_spark_still_runs(monkeypatch):
    happened = spark(monkeypatch, lambda: SimpleNamespace(stop=lambda: happened.append("stopped")))
    with pytest.raises(job.SparkJobError, match="no such table"), job.spark_session("job", {}):
        raise Py4JError("no such table")
    assert happened == ["stopped"]
