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


def interrupted(frame: Frame) -> None:
    """Interrupts the call as soon as its job has begun."""

    def interrupt() -> None:
        frame.begun.wait(DEADLINE_S)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    watch = threading.Thread(target=interrupt)
    watch.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            caller_job.collected(frame, CLOCK)
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
        caller_job.ran(frame.sparkSession, frame.collect, "selftest", CLOCK, meanwhile, lambda: told.append("stop"))
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
        caller_job.collected(Frame(context), CLOCK)
    assert context.description.startswith(own or f"write_kafka at {__file__}:")


def test_a_session_that_is_stopped_meanwhile_fails_with_sparks_own_error():
    context = Context()

    def stopped(self):
        context._jsc = None
        raise RuntimeError("SparkContext was shut down")

    frame = Frame(context)
    frame.collect = stopped.__get__(frame)
    with pytest.raises(RuntimeError, match="was shut down"):
        caller_job.collected(frame, CLOCK)


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
        caller_job.collected(frame, CLOCK)
    threading.Thread.start(threads[0])
    threads[0].join(DEADLINE_S)
    assert not threads[0].is_alive()
    assert (context.tags, context.cancelled, frame.begun.is_set()) == ([], [], False)


class Tracker:
    """Spark's status tracker, Python's and the JVM's: job 8 writes, after the shuffle of job 7."""

    tags: tuple[str, ...] = ()

    def getJobIdsForTag(self, tag):  # noqa: N802 (Spark's name)
        self.tags = (*self.tags, tag)
        return [7, 8]

    def getJobInfo(self, job):  # noqa: N802
        return {7: SparkJobInfo(7, [2], "SUCCEEDED"), 8: SparkJobInfo(8, [2, 3], "RUNNING")}[job]

    def getStageInfo(self, stage):  # noqa: N802
        return {2: SparkStageInfo(2, 0, "", 50, 0, 50, 0), 3: SparkStageInfo(3, 0, "", 200, 4, 12, 1)}[stage]


class StoppedTracker(Tracker):
    def getJobIdsForTag(self, tag):  # noqa: N802
        raise RuntimeError("the context has been stopped")


@pytest.fixture
def lines(monkeypatch):
    found = []
    monkeypatch.setattr(caller_job, "show_progress", found.append)
    return found


def job_of(tracker):
    context = Context()
    context.statusTracker = lambda: tracker
    context._jsc.sc = lambda: SimpleNamespace(statusTracker=lambda: tracker)
    return caller_job._ClassicJob(SimpleNamespace(sparkContext=context), "write_kafka")


def logged(tracker, *seconds):
    """What is logged if the job is looked at after each of these pauses."""
    clock = ManualClock()
    progress = caller_job._Progress(job_of(tracker), "the-tag", clock)
    for each in seconds:
        clock.advance(each * 1000)
        progress.log_if_due()


def test_a_long_write_is_logged_every_30_s(lines):
    tracker = Tracker()
    logged(tracker, 29, 1, 29, 1)
    told = "12 of 200 tasks of stage 3 have finished, 4 running"
    assert lines == [f"The write has run for 30 s: {told}", f"The write has run for 60 s: {told}"]
    assert tracker.tags == ("the-tag", "the-tag")


def test_a_short_write_asks_spark_nothing_and_a_status_that_spark_does_not_tell_fails_no_write(lines):
    tracker = Tracker()
    logged(tracker, *[1] * 29)
    assert tracker.tags == ()
    logged(StoppedTracker(), 30, 30)
    assert lines == []


def test_the_caller_logs_while_it_waits_and_no_thread_is_left(lines, monkeypatch):
    class Hurried(ManualClock):
        def now(self):
            return self.advance(31_000)

    before = threading.active_count()
    monkeypatch.setattr(caller_job._ClassicJob, "progress", lambda self, tag: "1 of 2 tasks")
    frame = Frame(Context())
    frame.collect = lambda: eventually(lambda: lines) or ["row"]
    assert caller_job.collected(frame, Hurried()) == ["row"]
    assert lines[0].endswith(": 1 of 2 tasks")
    eventually(lambda: threading.active_count() == before)
