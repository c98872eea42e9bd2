"""The command line of ``spark-kafka-sink certify``: what is refused before Spark starts."""

import logging
import signal

import pytest

from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.testing import TestBroker
from spark_kafka_sink.tools.certification import certify as module
from spark_kafka_sink.tools.certification.certificate import Certificate
from spark_kafka_sink.tools.certification.plan import KINDS
from spark_kafka_sink.tools.cli import job
from spark_kafka_sink.tools.cli.main import main
from spark_kafka_sink.tools.connection_check.findings import Finding, Outcome

SERVERS = ("--bootstrap-server", "127.0.0.1:1")


@pytest.fixture(autouse=True)
def as_before():
    """The command sets handlers of signals and levels of loggers."""
    names = ("py4j", "spark_kafka_sink")
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    levels = [logging.getLogger(each).level for each in names]
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
    for name, level in zip(names, levels, strict=True):
        logging.getLogger(name).setLevel(level)


@pytest.fixture(autouse=True)
def sessions(monkeypatch):
    """Instead of starting Spark: the settings that it would have been started with."""
    started = []

    class Session:
        def __init__(self, name, settings):
            started.append(settings)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

    monkeypatch.setattr(job, "spark_session", Session)
    monkeypatch.setattr("spark_kafka_sink.tools.certification.writes.has_format", lambda: False)
    return started


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ([], "--bootstrap-server"),
        ([*SERVERS, "--rows", "0"], "--rows"),
        ([*SERVERS, "--rows", "many"], "--rows"),
        ([*SERVERS, "--timeout", "0"], "--timeout"),
        ([*SERVERS, "--topic-names", "x"], "--topic-names"),
    ],
)
def test_a_wrong_command_line_is_refused(line, says, capsys, sessions):
    with pytest.raises(SystemExit) as ended:
        main(["certify", *line])
    assert ended.value.code == 2
    assert says in capsys.readouterr().err
    assert sessions == []


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (["--topics", ""], "--topics is empty"),
        (["--topics", "a/b"], "topic"),
        (["--commit-log-topic", ""], "--commit-log-topic is empty"),
        (["--commit-log-topic", "no topic"], "commitLogTopic"),
        (["--transactional-id-prefix", ""], "--transactional-id-prefix is empty"),
        (["--transactional-id-prefix", "p" * 32_750], "--transactional-id-prefix is too long"),
        (["--checkpoint-location", ""], "--checkpoint-location is empty"),
        (["--command-property", "acks=7"], "error: acks"),
        (
            ["--command-property", "acks=0"],
            "error: deliveryGuarantee=exactly-once needs idempotence: set kafka.acks=all.",
        ),
        (["--command-config", "/no/such.properties"], "such.properties"),
        (["--remote", "sc://spark:15002"], "checkpointLocation"),
    ],
)
def test_wrong_options_are_told_before_spark_starts(line, says, capsys, sessions):
    assert main(["certify", *SERVERS, *line]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "error: " in shown.err
    assert says in shown.err
    assert "Traceback" not in shown.err
    assert sessions == []


def certificate(outcome):
    read = [Finding(kind.guarantee, f"read {kind.way}", Outcome.OK, "as written") for kind in KINDS]
    return Certificate([Finding("Spark", "start", outcome, "said"), *read], {}, 0)


@pytest.mark.parametrize(("outcome", "code"), [(Outcome.OK, 0), (Outcome.FAILED, 1)])
def test_the_exit_code_says_whether_every_step_worked(outcome, code, monkeypatch, sessions):
    called = []

    def certified(session, plan, timeout_s):
        called.append((plan, timeout_s))
        with session:
            return certificate(outcome)

    monkeypatch.setattr(module, "certified", certified)
    line = ["--topics", "orders", "--rows", "7", "--timeout", "9", "--transactional-id-prefix", "app",
            "--command-property", "linger.ms=3", "--checkpoint-location", "s3a://b/c",
            "--master", "local[3]"]  # fmt: skip
    assert main(["certify", *SERVERS, *line]) == code
    ((plan, timeout_s),) = called
    assert (plan.rows, plan.topics, plan.transactional_ids, timeout_s) == (7, "orders", "app", 9.0)
    assert plan.config.linger_ms == 3
    assert plan.checkpoint.startswith("s3a://b/c/")
    (settings,) = sessions
    assert settings["spark.master"] == "local[3]"


def in_session(action):
    """A run that does this once Spark has started."""

    def certified(session, plan, timeout_s):
        with session:
            return action()

    return certified


def interrupted():
    raise KeyboardInterrupt


def test_ctrl_c_is_130(monkeypatch):
    monkeypatch.setattr(module, "certified", in_session(interrupted))
    assert main(["certify", *SERVERS]) == 130


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_by_another_signal_is_one_by_ctrl_c(number, monkeypatch):
    """A closed terminal, which is SIGHUP, left topics and checkpoints behind."""
    monkeypatch.setattr(module, "certified", in_session(lambda: signal.raise_signal(number)))
    assert main(["certify", *SERVERS]) == 130


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_spark_starts_left_its_jvm_running(number, monkeypatch, capsys):
    """PySpark cannot be interrupted then, so the command ends once Spark has started."""
    events = []

    class Session:
        def __init__(self, name, settings):
            signal.raise_signal(number)
            events.append("started")

        def __enter__(self):
            return self

        def __exit__(self, *error):
            events.append("stopped")

    monkeypatch.setattr(job, "spark_session", Session)
    monkeypatch.setattr(module, "certified", in_session(lambda: events.append("certified")))
    assert main(["certify", *SERVERS]) == 130
    assert events == ["started", "stopped"]
    assert "ends as soon as Spark has started" in capsys.readouterr().err


def test_a_second_interrupt_while_spark_starts_ends_at_once(monkeypatch):
    def session(name, settings):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("not interrupted")

    monkeypatch.setattr(job, "spark_session", session)
    monkeypatch.setattr(module, "certified", in_session(lambda: certificate(Outcome.OK)))
    assert main(["certify", *SERVERS]) == 130


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_interrupt_also_after_a_start_that_failed(number, monkeypatch):
    """What delays them until Spark has started would delay them for good."""

    def session(name, settings):
        raise KafkaError("no Java")

    def certified(session, plan, timeout_s):
        with pytest.raises(KafkaError, match="no Java"):
            session.__enter__()
        signal.raise_signal(number)

    monkeypatch.setattr(job, "spark_session", session)
    monkeypatch.setattr(module, "certified", certified)
    assert main(["certify", *SERVERS]) == 130


def test_an_interrupt_while_spark_fails_to_start_ends_the_run(monkeypatch):
    def session(name, settings):
        signal.raise_signal(signal.SIGINT)
        raise KafkaError("no Java")

    monkeypatch.setattr(job, "spark_session", session)
    monkeypatch.setattr(module, "certified", in_session(lambda: certificate(Outcome.OK)))
    assert main(["certify", *SERVERS]) == 130


def test_a_second_sighup_does_not_interrupt_the_clean_up(monkeypatch):
    """The shell sends one to its jobs, and the kernel another to the terminal's processes."""
    ended = []

    def hung_up():
        try:
            signal.raise_signal(signal.SIGHUP)
        finally:
            signal.raise_signal(signal.SIGHUP)
            ended.append("cleaned up")

    monkeypatch.setattr(module, "certified", in_session(hung_up))
    assert main(["certify", *SERVERS]) == 130
    assert ended == ["cleaned up"]


def test_sighup_stays_ignored_under_nohup(monkeypatch):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def hung_up():
        signal.raise_signal(signal.SIGHUP)
        return certificate(Outcome.OK)

    monkeypatch.setattr(module, "certified", in_session(hung_up))
    assert main(["certify", *SERVERS]) == 0


def test_spark_starts_with_sighup_ignored_and_without_its_progress_bar(monkeypatch, sessions):
    """Its JVM inherits that, and must outlive the terminal to remove the checkpoints."""
    ignored = []
    monkeypatch.setattr(module, "certified", in_session(lambda: certificate(Outcome.OK)))
    session = job.spark_session

    def started(name, settings):
        ignored.append(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)
        return session(name, settings)

    monkeypatch.setattr(job, "spark_session", started)
    assert main(["certify", *SERVERS]) == 0
    assert ignored == [True]
    assert main(["certify", *SERVERS, "--conf", "spark.ui.showConsoleProgress=true"]) == 0
    assert [each["spark.ui.showConsoleProgress"] for each in sessions] == ["false", "true"]
    assert main(["certify", *SERVERS, "--remote", "sc://spark:15002", "--checkpoint-location", "/c"]) == 0
    assert "spark.ui.showConsoleProgress" not in sessions[-1]


def test_brokers_that_do_not_respond_are_a_verdict_before_spark_starts(capsys, sessions):
    with TestBroker() as broker:
        servers = broker.bootstrap_servers
    assert main(["certify", "--bootstrap-server", servers, "--command-property", "max.block.ms=1000"]) == 1
    shown = capsys.readouterr().out
    assert ": NOT certified, 1 of 3 steps failed, first connect of brokers, 2 could not be tested (" in shown
    assert sessions == []
