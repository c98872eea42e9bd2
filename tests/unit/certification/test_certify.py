"""A whole run against TestBroker. Its jobs run here, without Spark: ``tests/spark/test_certify.py`` is with it."""

import errno
import io
import sys
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import ClassVar

import pytest
from pyspark.errors import PySparkRuntimeError

from spark_kafka_sink import ConfigError, KafkaProducer, ProducerRecord, certify
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.testing import Listener, TestBroker
from spark_kafka_sink.testing.broker.faults import KEPT
from spark_kafka_sink.testing.listener import login
from spark_kafka_sink.tools.certification import certify as module
from spark_kafka_sink.tools.certification.certify import certified
from spark_kafka_sink.tools.certification.plan import EXACTLY_ONCE, Plan
from spark_kafka_sink.tools.connection_check.findings import Finding, Outcome
from tests.unit.certification.test_rows import record

ROWS = 20
STEPS = [
    "brokers connect", "brokers versions", "Spark start",
    "at-least-once batch", "at-least-once read batch", "at-least-once stream", "at-least-once read stream",
    "exactly-once check",
    "exactly-once batch", "exactly-once read batch", "exactly-once repeat batch",
    "exactly-once stream", "exactly-once read stream",
    "clean-up delete",
]  # fmt: skip

NOT_TRIED = ["at-least-once batch and stream", "exactly-once batch and stream"]


@pytest.fixture
def broker():
    with TestBroker() as broker:
        yield broker


@pytest.fixture
def job(monkeypatch):
    """Jobs run in the caller's thread. ``job.rows`` of a write's kind and plan: the numbers of the rows it writes.
    ``job.repeats``: what a batch job with a txnVersion writes when it runs again.
    """

    class Job:
        @staticmethod
        def rows(kind, plan):
            return range(plan.rows_of(kind))

        removed = ""
        repeats = ()
        written: ClassVar[set[str]] = set()

    Job.written.clear()

    class Write:
        def __init__(self, spark, plan, kind):
            self._plan, self._kind = plan, kind

        def stop(self):
            pass

        def run(self):
            servers = ",".join(f"{host}:{port}" for host, port in self._plan.config.bootstrap_servers)
            options = self._plan.write_options(self._kind)
            topic = options["topic"]
            numbers = Job.repeats if topic in Job.written else Job.rows(self._kind, self._plan)
            if "txnVersion" in options:
                Job.written.add(topic)
            with KafkaProducer({"bootstrap.servers": servers, "enable.idempotence": False}) as producer:
                for number in numbers:
                    key, value = record(number, self._plan.mark)
                    producer.send(ProducerRecord(topic, value, key))

    monkeypatch.setattr(module, "Write", Write)
    monkeypatch.setattr(module, "ran", lambda spark, action, *others: action())
    monkeypatch.setattr(module, "spark_facts", lambda spark: {"Spark": "9.9.9, local", "workers": "Linux"})
    monkeypatch.setattr(module, "remove_checkpoints", lambda spark, plan: Job.removed)
    return Job


def run(broker, **options):
    plan = Plan.of({"kafka.bootstrap.servers": broker.bootstrap_servers, **options}, ROWS, is_connect=False)
    return certified(nullcontext(object()), plan, 60.0)


def outcomes(certificate, *but):
    """Steps by outcome; all must be OK ``but`` these."""
    assert [step(each) for each in certificate.findings if each.outcome is not Outcome.OK] == [*but]
    return [step(each) for each in certificate.findings]


def step(finding):
    return f"{finding.subject} {finding.step}"


def text(certificate, wanted):
    (found,) = [each.text for each in certificate.findings if step(each) == wanted]
    return found


def left(broker):
    return [each for each in broker.topics if not each.startswith("__consumer") and each != "__transaction_state"]


def test_each_step_is_told_and_nothing_is_left(broker, job, capsys):
    certificate = run(broker, topic="orders", includeHeaders="true", receiptsTopic="r")
    assert outcomes(certificate) == STEPS
    assert certificate.worked
    assert left(broker) == []
    assert text(certificate, "clean-up delete") == "6 topics, the checkpoints"
    assert text(certificate, "at-least-once read batch").startswith("20 records as written, ")
    shown = capsys.readouterr().out
    assert shown.endswith(f"\n{certificate.text}\n")
    assert "\nnot tried  receiptsTopic\n" in shown
    assert "127.0.0.1" not in certificate.text


@pytest.mark.parametrize(
    ("rows", "guarantee", "says"),
    [
        ([0, 1, 2], "at-least-once", "17 missing, of 20 rows"),
        ([*range(20), 5], EXACTLY_ONCE, "1 duplicates, of 20 rows"),
        ([*range(20), 99], "at-least-once", "1 records that match no row, of 20 rows"),
    ],
)
def test_rows_that_are_not_as_written_are_told_and_the_run_goes_on(broker, job, rows, guarantee, says):
    right = job.rows
    job.rows = lambda kind, plan: rows if kind == (guarantee, "batch") else right(kind, plan)
    certificate = run(broker)
    repeated = "exactly-once repeat batch"
    expected = [each for each in STEPS if guarantee != EXACTLY_ONCE or each != repeated]
    assert outcomes(certificate, f"{guarantee} read batch") == expected
    assert not certificate.worked
    assert says in text(certificate, f"{guarantee} read batch")
    assert left(broker) == []


def test_a_repeated_row_is_told_at_least_once(broker, job):
    right = job.rows
    job.rows = lambda kind, plan: [*right(kind, plan), *([5] if kind == ("at-least-once", "batch") else [])]
    certificate = run(broker)
    assert certificate.worked
    assert "21 records, 1 of them repeated, which at-least-once allows as" in text(
        certificate, "at-least-once read batch"
    )


def test_a_write_that_fails_is_told_and_the_others_are_tried(broker, job):
    def fails(kind, plan):
        if kind == ("at-least-once", "stream"):
            raise RuntimeError("no executor at worker-7:4040")
        return range(plan.rows_of(kind))

    job.rows = fails
    certificate = run(broker)
    assert not certificate.worked
    steps = outcomes(certificate, "at-least-once stream")
    assert "at-least-once read stream" not in steps
    assert "brokers check" in steps
    assert steps[-2:] == ["exactly-once read stream", "clean-up delete"]
    assert "worker-7" not in certificate.text
    assert left(broker) == []


def test_what_a_failed_step_leaves_out_is_in_the_verdict(broker, job):
    """Incident: brokers that went away in a write left the exactly-once steps out without a word."""

    def fails(kind, plan):
        broker.faults.answer("Metadata", "UNKNOWN_SERVER_ERROR", times=KEPT)
        broker.faults.answer("ApiVersions", "UNKNOWN_SERVER_ERROR", times=KEPT)
        raise RuntimeError("no broker")

    job.rows = fails
    certificate = run(broker, **{"kafka.max.block.ms": "500"})
    untried = ["at-least-once stream", "exactly-once batch and stream"]
    assert [step(each) for each in certificate.findings if each.outcome is Outcome.UNTESTED] == untried
    assert "untested exactly-once, batch and stream: not tried, because check of brokers failed" in certificate.text
    assert ", 2 could not be tested (" in certificate.text


def test_a_repeated_job_that_doubles_a_row_is_told(broker, job):
    job.repeats = [3]
    certificate = run(broker)
    assert outcomes(certificate, "exactly-once repeat batch") == STEPS
    assert not certificate.worked
    assert text(certificate, "exactly-once repeat batch") == "1 duplicates, of 20 rows"


def test_spark_starts_only_once_the_brokers_respond(job):
    @contextmanager
    def session():
        started.append(True)
        yield object()

    started = []
    with TestBroker() as broker:
        options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "kafka.max.block.ms": "500"}
    plan = Plan.of(options, ROWS, is_connect=False)
    assert not certified(session(), plan, 60.0).worked
    assert started == []


def test_incident_a_spark_that_could_not_be_entered_was_a_traceback_without_a_verdict(broker, job):
    @contextmanager
    def session():
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
        yield

    plan = Plan.of({"kafka.bootstrap.servers": broker.bootstrap_servers}, ROWS, is_connect=False)
    certificate = certified(session(), plan, 60.0)
    assert outcomes(certificate, "Spark start", *NOT_TRIED) == STEPS[:3] + NOT_TRIED
    assert "Java gateway process exited before sending its port number" in text(certificate, "Spark start")
    assert "not tried, because start of Spark failed" in certificate.text


def test_hosts_of_executors_are_not_in_the_verdict(broker, job, monkeypatch):
    def fails(kind, plan):
        raise RuntimeError("lost worker-7, said workhorse")

    monkeypatch.setattr(module, "spark_hosts", lambda spark: {"worker-7", "workhorse", ""})
    job.rows = fails
    assert "lost <host 1>, said <host 2>" in run(broker).text


def test_the_account_of_the_process_is_not_in_the_verdict(broker, job, monkeypatch):
    def fails(kind, plan):
        raise RuntimeError("cannot write to /scratch/erin/x")

    monkeypatch.setattr("getpass.getuser", lambda: "erin")
    job.rows = fails
    assert "cannot write to /scratch/<user>/x" in run(broker).text


def test_the_words_of_brokers_have_no_host_and_no_line_end(broker, job, monkeypatch):
    """Incident: the id of a cluster was its host name, and stood in the verdict."""
    monkeypatch.setattr("spark_kafka_sink.testing.broker.apis.metadata.CLUSTER_ID", "corp.servicebus.example\n```\nx")
    asked = module.Cluster.any_api_versions

    def any_api_versions(cluster):
        return replace(asked(cluster), features={"kafka.corp.example\n```\ny": 1, "metadata.version": 33})

    monkeypatch.setattr(module.Cluster, "any_api_versions", any_api_versions)
    certificate = run(broker)
    assert certificate.facts["brokers"] == r"1, cluster <host 1>\n```\nx"
    assert certificate.facts["features"] == r"<host 2>\n```\ny 1, metadata.version 33"
    assert ".example" not in certificate.text
    assert certificate.text.splitlines()[1:].index("```") == len(certificate.text.splitlines()) - 2, "one end"


def test_versions_of_libraries_are_not_taken_for_hosts(broker, job, monkeypatch):
    def findings(names):
        yield Finding("libraries", "crc32c", Outcome.OK, "2.9.post0")

    monkeypatch.setattr(module, "library_findings", findings)
    assert "\nlibraries  crc32c 2.9.post0\n" in run(broker).text


def test_topics_that_stay_are_told_with_the_command_and_do_not_spoil_the_verdict(broker, job, capsys):
    broker.faults.answer("DeleteTopics", "TOPIC_AUTHORIZATION_FAILED", times=KEPT)
    certificate = run(broker)
    assert certificate.worked
    assert outcomes(certificate, "clean-up delete") == STEPS
    stay = left(broker)
    assert len(stay) == 5, "the check's, and one a write"
    told = text(certificate, "clean-up delete")
    for each in stay:
        assert each in told
    assert "kafka-topics.sh --bootstrap-server <host 1>:" in told
    mark = stay[-1].partition("certify-")[2][:8]
    assert f"--delete --topic '.*certify-{mark}.*'" in told
    assert f"kafka-topics.sh --bootstrap-server {broker.bootstrap_servers} " in " ".join(
        capsys.readouterr().out.split()
    )


def test_checkpoints_that_stay_are_told(broker, job, capsys):
    job.removed = "A client of Spark Connect cannot remove checkpoints"
    certificate = run(broker, checkpointLocation="s3a://bucket/x")
    assert certificate.worked
    assert text(certificate, "clean-up delete").startswith(f"{job.removed}. There may be left: s3a://")
    assert "kafka-topics" not in text(certificate, "clean-up delete")
    assert left(broker) == []
    assert "s3a://bucket/x/spark-kafka-sink-certify-" in capsys.readouterr().out.partition("```text")[0]
    assert "bucket" not in certificate.text, "as docs/operations.md says"


@pytest.mark.parametrize("step", ["at-least-once batch", "exactly-once stream"])
def test_an_interrupt_leaves_nothing_and_has_no_verdict(broker, job, step, capsys):
    def interrupted(kind, plan):
        if " ".join(kind) == step:
            raise KeyboardInterrupt
        return range(plan.rows_of(kind))

    job.rows = interrupted
    with pytest.raises(KeyboardInterrupt):
        run(broker)
    assert left(broker) == []
    shown = capsys.readouterr().out
    assert "```" not in shown
    assert ("1 topic\n" if "batch" in step else "6 topics, the checkpoints\n") in shown, "it said 1 topics"


def test_a_second_interrupt_tells_what_may_be_left(broker, job, monkeypatch, capsys):
    def interrupted(*of):
        raise KeyboardInterrupt

    job.rows = interrupted
    monkeypatch.setattr(module.ThrowAwayTopics, "delete", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(broker)
    shown = capsys.readouterr().out
    (topic,) = left(broker)
    assert f"Not cleaned up. There may be left: {topic}. The topics are deleted by: kafka-topics.sh" in shown


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_closed_terminal_left_topics_behind(broker, job, monkeypatch, is_terminal):
    """What is shown raises EIO then, which ended the clean-up before it had begun."""

    class Closed(io.StringIO):
        def write(self, text):
            raise OSError(errno.EIO, "Input/output error")

        flush = isatty = lambda self: is_terminal

    def hung_up(*of):
        monkeypatch.setattr(sys, "stdout", Closed())
        raise KeyboardInterrupt

    job.rows = hung_up
    with pytest.raises(KeyboardInterrupt):
        run(broker)
    monkeypatch.undo()
    assert left(broker) == []


def test_a_closed_pipe_ends_the_run_and_leaves_nothing(broker, job, monkeypatch):
    """``certify | head -3`` closes the pipe after three lines, while the run goes on."""

    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    def gone(kind, plan):
        monkeypatch.setattr(sys, "stdout", Closed())
        return range(plan.rows_of(kind))

    job.rows = gone
    with pytest.raises(BrokenPipeError):
        run(broker)
    monkeypatch.undo()
    assert left(broker) == []


def test_a_spark_that_does_not_start_is_not_used_to_clean_up(broker, job, monkeypatch):
    def fails(*of):
        raise RuntimeError("no executors")

    def removed(*of):
        raise AssertionError("Spark is used")

    monkeypatch.setattr(module, "spark_facts", fails)
    monkeypatch.setattr(module, "remove_checkpoints", removed)
    certificate = run(broker)
    assert outcomes(certificate, "Spark start", *NOT_TRIED) == STEPS[:3] + NOT_TRIED
    assert left(broker) == []


def test_without_the_rights_of_exactly_once_only_that_is_not_certified(broker, job):
    broker.faults.answer("InitProducerId", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", times=KEPT)
    certificate = run(broker)
    assert not certificate.worked
    untried = "exactly-once batch and stream"
    steps = outcomes(certificate, "exactly-once check", untried)
    assert steps[-3:] == ["exactly-once check", untried, "clean-up delete"]
    assert text(certificate, untried) == "not tried, because check of exactly-once failed"
    assert "initialise of exactly-once: " in text(certificate, "exactly-once check")
    assert left(broker) == []


def test_without_the_right_to_create_topics_each_write_is_told(broker, job):
    broker.faults.answer("CreateTopics", "TOPIC_AUTHORIZATION_FAILED", times=KEPT)
    certificate = run(broker)
    assert not certificate.worked
    assert "CREATE on the topic or the cluster" in text(certificate, "at-least-once batch")
    assert left(broker) == []


def test_a_refused_login_ends_it_before_spark_and_shows_no_secret(job, capsys):
    with TestBroker(listeners={"SECURE": Listener("SASL_SSL")}) as broker:
        options = broker.client_options("SECURE") | {"sasl.jaas.config": login("SCRAM-SHA-512", "client", "wr0ng pw")}
        plan = Plan.of({f"kafka.{name}": value for name, value in options.items()}, ROWS, is_connect=False)
        certificate = certified(nullcontext(object()), plan, 60.0)
    assert not certificate.worked
    finding, *untried = certificate.findings
    assert step(finding) == "brokers connect"
    assert [step(each) for each in untried] == NOT_TRIED
    assert "read by" not in certificate.text, "a verdict named a reader that had read nothing"
    assert finding.text.startswith("SASL of <host 1>:")
    assert "\nlogin      SASL_SSL, SCRAM-SHA-512\n" in certificate.text
    for secret in ("wr0ng", "client", "127.0.0.1"):
        assert secret not in certificate.text
    assert "wr0ng" not in capsys.readouterr().out


def test_wrong_options_are_told_before_anything_is_sent(broker):
    with pytest.raises(ConfigError, match=r"(?s)rows is 0.*kafka\.acks"):
        certify(object(), {"kafka.bootstrap.servers": broker.bootstrap_servers, "kafka.acks": "7"}, rows=0)
    assert list(broker.requests) == []


def test_a_job_that_takes_too_long_is_told(broker, job, monkeypatch):
    monkeypatch.setattr(module, "ran", lambda spark, action, name, clock, meanwhile, stop: meanwhile())
    plan = Plan.of({"kafka.bootstrap.servers": broker.bootstrap_servers}, ROWS, is_connect=False)
    certificate = certified(nullcontext(object()), plan, 0.0)
    assert outcomes(certificate, "Spark start", *NOT_TRIED) == STEPS[:3] + NOT_TRIED
    assert text(certificate, "Spark start").startswith("not done after 0 s (timeout): does Spark have free executors, ")


def test_a_write_that_takes_too_long_says_how_far_it_came(broker, job, monkeypatch):
    """The verdict only asked for free executors, also when brokers did not respond or the machine was slow."""

    def ran(spark, action, name, clock, meanwhile, stop):
        if (result := action()) is None:  # a write
            meanwhile()
        return result

    monkeypatch.setattr(module, "ran", ran)
    plan = Plan.of({"kafka.bootstrap.servers": broker.bootstrap_servers}, ROWS, is_connect=False)
    told = text(certified(nullcontext(object()), plan, 0.0), "at-least-once batch")
    assert told.startswith("not done after 0 s (timeout), 20 of 20 rows are in the topic: does Spark have ")


def test_a_terminal_shows_how_far_a_write_is(broker, job, monkeypatch):
    shown = []

    def ran(spark, action, name, clock, meanwhile, stop):
        result = action()
        meanwhile()
        return result

    monkeypatch.setattr(module, "ran", ran)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    running = module.Screen.running
    monkeypatch.setattr(module.Screen, "running", lambda self, text: running(self, text) or shown.append(text))
    assert run(broker).worked
    assert "exactly-once, stream: 20 of 20 rows" in shown
    assert "reading back: 20 of 20 records" in shown
    assert "deleting 6 topics" in shown


@pytest.mark.parametrize(("read_before", "failed"), [(1, True), (0, False)])
def test_what_librdkafka_cannot_go_on_reading_is_a_finding(broker, job, monkeypatch, read_before, failed):
    """Incident: a batch that librdkafka could not decode was read by the package itself, and "certified"."""

    def broken(topics, name):
        if read_before:
            yield [record(0, name.split("-")[1])]
        raise KafkaError("Local: Bad message format")

    monkeypatch.setattr(module.ThrowAwayTopics, "_read_by_librdkafka", broken)
    certificate = run(broker)
    assert certificate.worked is not failed
    assert ("Bad message format" in text(certificate, "at-least-once read batch")) is failed
    assert ("librdkafka could not read" in certificate.facts["read by"]) is not failed
