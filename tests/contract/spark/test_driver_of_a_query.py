"""The commit and abort of a query's micro-batch, in other processes of the driver than its planning."""

import pytest
from pyspark import SparkFiles

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.spark.commit_message import KafkaCommitMessage
from spark_kafka_sink.spark.exactly_once import abort_exactly_once, commit_exactly_once, plan_transactions
from spark_kafka_sink.spark.options import SinkOptions
from tests.contract.brokers import broker_with
from tests.contract.exactly_once.runs import LEDGER, TOPIC, Query, committed, new_process

broker = broker_with(TOPIC, partitions=2, like=["4.1", "3.9", "3.5"])


@pytest.fixture(autouse=True)
def application(tmp_path, monkeypatch):
    """Spark gives each application's processes a folder of its own."""
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))


@pytest.fixture
def options(broker):
    def of_query(checkpoint="s3://bucket/c", **more):
        given = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "topic": TOPIC,
            "deliveryguarantee": "exactly-once",
            "transactionalidprefix": "app",
            "ledgertopic": LEDGER,
            "checkpointlocation": checkpoint,
            **more,
        }
        return SinkOptions.parse(given, is_batch=False)

    return of_query


@pytest.fixture
def query(broker):
    query = Query(broker.bootstrap_servers)
    query.run(0, [[b"a"]])
    return query


def begin(query, options, number=1, task=0):
    """Plans a batch, of which a task is in mid-write."""
    new_process()
    write = query.open_task(plan_transactions(options), number, task)
    query.append(write, [b"x"])
    write.receipts()


def give_up(options, messages=(None,)):
    new_process()
    return abort_exactly_once(messages, options, None).text


def test_incident_an_abort_without_a_report_left_open_what_its_tasks_had_begun(broker, query, options):
    begin(query, options())
    assert broker.transaction_state("app-0") == "Ongoing"
    assert (
        give_up(options())
        == "The write was aborted, and none of its rows is visible: 1 prepared transactions were aborted"
    )
    assert broker.transaction_state("app-0") != "Ongoing"
    query.run(1, [[b"b"]])
    assert committed(broker) == {b"a": 1, b"b": 1}


def test_an_abort_that_comes_late_harms_no_query_that_was_started_again(broker, query, options, tmp_path, monkeypatch):
    begin(query, options())
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path / "another application"))
    reports = query.tasks(plan_transactions(options()), 1, [[b"b"]])
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))
    assert "another driver has fenced app-driver since" in give_up(options())
    query.commit(reports)
    assert committed(broker) == {b"a": 1, b"b": 1}


@pytest.mark.parametrize("other", ["s3://bucket/other", ""], ids=["of another checkpoint", "of no checkpoint"])
def test_an_abort_that_does_not_know_its_run_touches_nothing_and_says_who_waits(broker, query, options, other):
    """What another query of the application has noted under the same name is not its run."""
    begin(query, options(other))
    text = give_up(options())
    assert "Its tasks may have left transactions open. read_committed readers of these topics wait for them" in text
    assert f"15 min (kafka.transaction.timeout.ms) are over, or `{query.settings.command('abort')}` is run" in text
    assert broker.transaction_state("app-0") == "Ongoing"


def test_the_abort_of_a_first_batch_says_what_it_leaves_open(broker, options):
    begin(Query(broker.bootstrap_servers), options(), number=0)
    assert "none of its rows is visible: 0 prepared transactions were aborted. Its tasks may have" in give_up(options())
    assert broker.transaction_state("app-0") == "Ongoing"


@pytest.mark.parametrize(("name", "says"), [("spark-q1", "once"), ("shop", "once (transactionalIdPrefix shop)")])
def test_incident_the_line_of_a_micro_batch_had_the_querys_id_twice(broker, options, name, says):
    named = options(transactionalidprefix=name)
    reports = Query(broker.bootstrap_servers, name).tasks(plan_transactions(named), 0, [[b"a"]])
    line = commit_exactly_once([KafkaCommitMessage(report=report) for report in reports], named, SystemClock()).line
    assert line.endswith(f"committed exactly {says}")
    assert line.count("q1") == 1
