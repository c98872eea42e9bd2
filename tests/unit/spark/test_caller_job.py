"""The job of ``write_kafka`` when its caller is interrupted, with Spark's classes replaced."""

import logging
import signal
import threading
from types import SimpleNamespace

import pytest
from pyspark import SparkJobInfo, SparkStageInfo

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.spark import caller_job
from tests.support.manual_clock import ManualClock
from tests.support.waiting import DEADLINE_S, eventually

CLOCK = SystemClock()


class Context:
    """Ends the job at the ``ends_at``-th cancellation, as a plan does that starts one job after another."""

    def __init__(self, ends_at: int = 1) -> None:
        self.tags: list[str] = []
        self.cancelled: list[str] = []
        self.ended = threading.Event()
        self.description: str | None = None
        self._jsc = SimpleNamespace()
        self._ends_at = ends_at

    def addJobTag(self, tag: str) -> None:  # noqa: N802 (Spark's name)
        self.tags.append(tag)

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802
        assert name == "spark.job.description"
        return self.description

    def setJobDescription(self, text: str) -> None:  # noqa: N802
        self.description = text

    def cancelJobsWithTag(self, tag: str) -> None:  # noqa: N802
        self.cancelled.append(tag)
        if len(self.cancelled) == self._ends_at:
            self.ended.set()


class Frame:
    def __init__(self, context: Context) -> None:
        self.sparkSession = SimpleNamespace(sparkContext=context)
        self._context = context
        self.begun = threading.Event()

    def collect(self) -> list[str]:
        self.begun.set()
        if not self._context.ended.wait(DEADLINE_S):
            raise AssertionError("nobody ended the job")
        raise RuntimeError("the job was cancelled")


@pytest.fixture(autouse=True)
def a_thread_without_spark(monkeypatch):
    monkeypatch.setattr(caller_job, "InheritableThread", threading.Thread)
    monkeypatch.setattr(caller_job, "_AGAIN_S", 0.01)


def collect(frame: Frame, clock=CLOCK):
    return caller_job.run_cancellable(frame.sparkSession, frame.collect, "write_kafka", clock)


def interrupted(frame: Frame) -> None:
    """Interrupts the call as soon as its job has begun."""

    def interrupt() -> None:
        frame.begun.wait(DEADLINE_S)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    watch = threading.Thread(target=interrupt)
    watch.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            collect(frame)
    finally:
        watch.join()


@pytest.mark.parametrize("ends_at", [1, 3])
def test_an_interrupted_call_cancels_its_job_until_it_ends(ends_at):
    context = Context(ends_at)
    interrupted(Frame(context))
    assert context.ended.is_set()
    (tag,) = context.tags
    # The thread of a job that has ended may take a while to say so; until then the caller cancels again.
    assert len(context.cancelled) >= ends_at
    assert set(context.cancelled) == {tag}


def test_what_the_caller_does_meanwhile_may_end_the_job():
    """A timeout of selftest: the streaming query is stopped, too, which no tag cancels."""
    context, told = Context(), []
    frame = Frame(context)

    def meanwhile():
        if frame.begun.is_set():
            told.append("late")
            raise TimeoutError("not done")

    with pytest.raises(TimeoutError, match="not done"):
        caller_job.run_cancellable(
            frame.sparkSession, frame.collect, "selftest", CLOCK, meanwhile, lambda: told.append("stop")
        )
    assert told == ["late", "stop"]
    assert set(context.cancelled) == set(context.tags)
    assert context.ended.is_set()
    assert context.description.startswith(f"selftest at {__file__}:")


@pytest.mark.parametrize("own", [None, "load orders"])
def test_sparks_ui_shows_the_callers_line_unless_the_caller_has_described_the_job(own):
    context = Context()
    context.description = own
    context.ended.set()
    with pytest.raises(RuntimeError, match="was cancelled"):
        collect(Frame(context))
    assert context.description.startswith(own or f"write_kafka at {__file__}:")


def test_a_session_that_is_stopped_meanwhile_fails_with_sparks_own_error():
    context = Context()

    def stopped(self):
        context._jsc = None
        raise RuntimeError("SparkContext was shut down")

    frame = Frame(context)
    frame.collect = stopped.__get__(frame)
    with pytest.raises(RuntimeError, match="was shut down"):
        collect(frame)


def test_a_stopped_context_ends_the_wait_of_an_interrupted_call(monkeypatch, caplog):
    context = Context()

    def stopped(tag: str) -> None:
        raise RuntimeError("the context has been stopped")

    monkeypatch.setattr(context, "cancelJobsWithTag", stopped)
    with caplog.at_level(logging.WARNING, "spark_kafka_sink"):
        interrupted(Frame(context))
    context.ended.set()
    assert "could not be cancelled: the context has been stopped" in caplog.text


def test_a_job_that_does_not_end_is_left_with_a_warning(monkeypatch, caplog):
    monkeypatch.setattr(caller_job, "_CANCEL_S", 0.05)
    context = Context(ends_at=10_000)
    with caplog.at_level(logging.WARNING, "spark_kafka_sink"):
        interrupted(Frame(context))
    context.ended.set()
    assert len(context.cancelled) == 5
    assert "has not ended within" in caplog.text


def test_a_call_that_is_interrupted_before_its_job_begins_runs_none(monkeypatch):
    class Interrupted(threading.Thread):
        def start(self) -> None:
            threads.append(self)
            raise KeyboardInterrupt

    threads: list[threading.Thread] = []
    monkeypatch.setattr(caller_job, "InheritableThread", Interrupted)
    context = Context()
    frame = Frame(context)
    with pytest.raises(KeyboardInterrupt):
        collect(frame)
    threading.Thread.start(threads[0])
    threads[0].join(DEADLINE_S)
    assert not threads[0].is_alive()
    assert (context.tags, context.cancelled, frame.begun.is_set()) == ([], [], False)


class Tracker:
    """Spark's status tracker, Python's and the JVM's: job 8 writes, after the shuffle of job 7."""

    def __init__(self, tells=True):
        self.asked = 0
        self._tells = tells

    def getJobIdsForTag(self, tag):  # noqa: N802 (Spark's name)
        self.asked += 1
        if not self._tells:
            raise RuntimeError("the context has been stopped")
        return [7, 8]

    def getJobInfo(self, job):  # noqa: N802
        return {7: SparkJobInfo(7, [2], "SUCCEEDED"), 8: SparkJobInfo(8, [2, 3], "RUNNING")}[job]

    def getStageInfo(self, stage):  # noqa: N802
        return {2: SparkStageInfo(2, 0, "", 50, 0, 50, 0), 3: SparkStageInfo(3, 0, "", 200, 4, 12, 1)}[stage]


class Hurried(ManualClock):
    """Ten seconds pass from one look to the next."""

    def now(self):
        return self.advance(10_000)


def lines_of(monkeypatch, tracker, clock, looks):
    """What is logged until Spark was asked this often."""
    lines, context = [], Context()
    monkeypatch.setattr(caller_job, "show_progress", lines.append)
    context.statusTracker = lambda: tracker
    context._jsc.sc = lambda: SimpleNamespace(statusTracker=lambda: tracker)
    frame = Frame(context)
    frame.collect = lambda: eventually(lambda: tracker.asked >= looks) or ["row"]
    assert collect(frame, clock) == ["row"]
    return lines


def test_a_long_write_is_logged_every_30_s_and_no_thread_is_left(monkeypatch):
    before = threading.active_count()
    lines = lines_of(monkeypatch, Tracker(), Hurried(), 2)
    told = "12 of 200 tasks of stage 3 have finished, 4 running"
    assert lines[:2] == [f"The write has run for 30 s: {told}", f"The write has run for 60 s: {told}"]
    eventually(lambda: threading.active_count() == before)


def test_a_short_write_asks_spark_nothing_and_a_status_that_spark_does_not_tell_fails_no_write(monkeypatch):
    short = Tracker()
    assert lines_of(monkeypatch, short, CLOCK, 0) == []
    assert short.asked == 0
    assert lines_of(monkeypatch, Tracker(tells=False), Hurried(), 2) == []


# The reason of an error of Spark.

AT_PLANNING = """\
[PYTHON_DATA_SOURCE_ERROR] Failed to initialize Python data source writer: Traceback (most recent call last):
  File "spark_kafka_sink/spark/sink_write.py", line 36, in writer
    return KafkaBatchWriter(*self._plan(schema))
                             ^^^^^^^^^^^^^^^^^^
spark_kafka_sink.errors.ConfigError: - kafka.acks must be one of all, -1, 0, 1, but is '7'.
- kafka.lingerms is not an option of Kafka's producer; did you mean kafka.linger.ms?
 SQLSTATE: 38000"""

OF_A_STREAM = """\
[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [PYTHON_DATA_SOURCE_ERROR] Failed to initialize \
Python data source writer: Traceback (most recent call last):
  File "spark_kafka_sink/spark/sink_write.py", line 43, in streamWriter
    return KafkaStreamWriter(*self._plan(schema))
spark_kafka_sink.errors.ConfigError: topic is blank; give it a value or leave it out.
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = 1, runId = 2]"""

IN_A_TASK = """\
An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "spark_kafka_sink/network/metadata.py", line 120, in wait_for_topic
    raise KafkaTimeoutError(self._timeout_text(topic, partition, max_wait_ms))
spark_kafka_sink.errors.KafkaTimeoutError: Topic t not present in metadata after 1000 ms."""

WHILE_HANDLING = """\
Traceback (most recent call last):
  File "a.py", line 1, in <module>
KeyError: 1

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "a.py", line 3, in <module>
spark_kafka_sink.errors.NetworkError: No broker could be reached.

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:581)
"""

WITHOUT_THE_PACKAGE = """\
Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times: org.apache.spark.api.python.PythonException: \
Traceback (most recent call last):
  File "pyspark/serializers.py", line 520, in loads
    return cloudpickle.loads(obj, encoding=encoding)
ModuleNotFoundError: No module named 'spark_kafka_sink'

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:581)"""

OF_SPARK = """\
[PATH_NOT_FOUND] Path does not exist: file:/nowhere. SQLSTATE: 42K03"""

OF_THE_JVM = """\
An error occurred while calling o48.load.
: java.lang.ClassNotFoundException: org.postgresql.Driver
\tat java.base/java.lang.Class.forName0(Native Method)
\tat java.base/java.lang.Class.forName(Class.java:375)"""


@pytest.mark.parametrize(
    ("raised", "sentence"),
    [
        (
            AT_PLANNING,
            "- kafka.acks must be one of all, -1, 0, 1, but is '7'.\n"
            "- kafka.lingerms is not an option of Kafka's producer; did you mean kafka.linger.ms?",
        ),
        (OF_A_STREAM, "topic is blank; give it a value or leave it out."),
        (IN_A_TASK, "Topic t not present in metadata after 1000 ms."),
        (WHILE_HANDLING, "No broker could be reached."),
        (WITHOUT_THE_PACKAGE, "ModuleNotFoundError: No module named 'spark_kafka_sink'"),
        (OF_SPARK, OF_SPARK),
        (
            OF_THE_JVM,
            "An error occurred while calling o48.load.\n: java.lang.ClassNotFoundException: org.postgresql.Driver",
        ),
    ],
)
def test_the_reason_is_what_the_user_can_act_on(raised, sentence):
    assert caller_job.reason(RuntimeError(raised)) == sentence
