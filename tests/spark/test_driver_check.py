"""``driverCheck`` in Spark: a refused login ends a write before its first task, what only the driver lacks does not."""

import pytest

from spark_kafka_sink.testing.listener import login
from tests.contract.scenario import name
from tests.spark.test_security import on_kafka, refusals
from tests.spark.writes import fails, save

pytestmark = pytest.mark.jvm

LISTENER = "SASL_TLS"


@pytest.fixture
def jobs(spark):
    """The ids of the jobs that Spark has started for the test's writes."""
    group = name("group")
    spark.sparkContext.setJobGroup(group, "")
    yield lambda: spark.sparkContext.statusTracker().getJobIdsForGroup(group)
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)


def wrong_password(kafka):
    jaas = login("SCRAM-SHA-512", "client", "wr0ng")
    return {**kafka.spark_options(LISTENER), "topic": "t", "kafka.sasl.jaas.config": jaas}


@on_kafka
def test_a_wrong_password_is_an_error_after_one_attempt_and_no_task_has_started(spark, secure_kafka, jobs):
    rows, options = spark.range(0, 10, 1, 2).selectExpr("cast(id as string) value"), wrong_password(secure_kafka)
    attempts = []
    for check in ("true", "false"):
        before = refusals(secure_kafka, LISTENER)
        text = fails(save, rows, {**options, "driverCheck": check})
        assert "sasl.jaas.config" in text
        assert "To try each step from this machine: spark-kafka-sink check" in text
        assert "wr0ng" not in text
        assert ("No task was started" in text) is (check == "true")
        assert bool(jobs()) is (check == "false")
        attempts.append(refusals(secure_kafka, LISTENER) - before)
    checked, unchecked = attempts
    assert checked == 1
    assert unchecked > checked
