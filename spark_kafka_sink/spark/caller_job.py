"""A Spark job that ends with the call that started it, and the reason of its error.

The job runs in a thread of its own, so that an interrupt reaches the caller, who cancels the job by a tag that only
this thread has: the caller's job group and tags stay as they are. A long job is logged every 30 s.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, Final, TypeVar
from uuid import uuid4

from pyspark import InheritableThread
from pyspark.sql import DataFrame, SparkSession

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.spark.python_process import show_progress

_log = logging.getLogger("spark_kafka_sink.spark")

_Result = TypeVar("_Result")

_CANCEL_S: Final = 60.0
"""How long a caller waits for the job that it cancelled. Spark first asks the job's tasks to end, then ends the job."""

_AGAIN_S: Final = 0.5
"""The pause before a cancelled plan is cancelled again, because it may start a further job."""


_PROGRESS_MS: Final = 30_000.0
_DESCRIPTION: Final = "spark.job.description"


def run_cancellable(
    session: SparkSession,
    action: Callable[[], _Result],
    name: str,
    clock: Clock,
    meanwhile: Callable[[], None] | None = None,
    stop: Callable[[], None] | None = None,
) -> _Result:
    """Runs ``action``, which runs jobs of the session, in another thread, and returns its result. ``name``: the jobs'
    name in Spark's UI.

    Every 30 s it logs how far the jobs are, and ``meanwhile`` runs in the caller's thread every half second. If that
    raises, or if the call is interrupted, ``stop`` is called and the jobs are cancelled; ``action`` has ended when this
    raises.
    """
    tag = f"pykafka-{uuid4().hex}"
    result: Future[_Result] = Future()
    job = _ConnectJob(session) if is_connect(session) else _ClassicJob(session, name)
    began = clock.now()
    due = began + _PROGRESS_MS

    def run() -> None:
        if result.set_running_or_notify_cancel():
            try:
                job.add_tag(tag)
                result.set_result(action())
            except BaseException as error:
                result.set_exception(error)

    try:
        job.thread(run).start()
        while not result.done():
            if meanwhile is not None:
                meanwhile()
            wait([result], timeout=_AGAIN_S)  # an interrupt just before a wait is noticed only after it
            if (now := clock.now()) >= due:
                due = now + _PROGRESS_MS
                _show_progress(job, tag, now - began)
        return result.result()
    except BaseException:
        if not result.cancel():  # it has begun
            if stop is not None:
                stop()
            _cancel(job, tag, result)
        raise


def _call_site(name: str) -> str:
    """The line of the program that called this package."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("spark_kafka_sink."):
        frame = frame.f_back
    return f"{name} at {frame.f_code.co_filename}:{frame.f_lineno}"


def is_connect(of: DataFrame | SparkSession) -> bool:
    """Whether the frame or session is Spark Connect's, whose client is this process."""
    return type(of).__module__.startswith("pyspark.sql.connect.")


def _show_progress(job: _ClassicJob | _ConnectJob, tag: str, ms: float) -> None:
    """Asks Spark in a thread that ends with this call: an interrupt of the caller must not strike between a request to
    the JVM and its response.
    """

    def show() -> None:
        try:
            text = job.progress(tag)
        except Exception as error:  # a session or context that has been stopped: the job fails by itself
            _log.debug("Spark does not report the progress of a write: %s", error)
            return
        if text:
            show_progress(f"The write has run for {ms / 1000:.0f} s: {text}")

    thread = job.thread(show)
    thread.start()
    thread.join()


class _ClassicJob:
    """A job of a classic session. Tags are local properties, which the thread inherits from the caller (Spark:
    ``InheritableThread``).

    ``cancel`` runs in the caller's thread, ``progress`` in one of its own, ``add_tag`` first in the job's.
    """

    def __init__(self, session: SparkSession, name: str) -> None:
        self._context = session.sparkContext
        self._call_site = _call_site(name)

    def thread(self, target: Callable[[], None]) -> threading.Thread:
        thread: threading.Thread = InheritableThread(target=target, daemon=True)
        return thread

    def add_tag(self, tag: str) -> None:
        """Tags the job. Spark's UI then also shows the caller's line that started it."""
        self._context.addJobTag(tag)
        if self._context.getLocalProperty(_DESCRIPTION) is None:  # the caller's own description stays
            self._context.setJobDescription(self._call_site)

    def cancel(self, tag: str) -> None:
        self._context.cancelJobsWithTag(tag)

    def progress(self, tag: str) -> str:
        """The number of tasks that have finished and that run; "" if Spark does not know."""
        tracker = self._context.statusTracker()
        jobs = map(tracker.getJobInfo, self._context._jsc.sc().statusTracker().getJobIdsForTag(tag))
        ids = sorted({stage for job in jobs if job is not None for stage in job.stageIds})
        stages = [stage for stage in map(tracker.getStageInfo, ids) if stage is not None]
        return (
            "; ".join(
                f"{stage.numCompletedTasks} of {stage.numTasks} tasks of stage {stage.stageId} have finished, "
                f"{stage.numActiveTasks} running"
                for stage in stages
                if stage.numActiveTasks or 0 < stage.numCompletedTasks < stage.numTasks
            )
            or "no task is running"
        )


class _ConnectJob:
    """A job of Spark Connect. Tags are the client's, for each of its threads."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._callers: set[str] = session.getTags()

    def thread(self, target: Callable[[], None]) -> threading.Thread:
        return threading.Thread(target=target, daemon=True)

    def add_tag(self, tag: str) -> None:
        for each in (*self._callers, tag):
            self._session.addTag(each)

    def cancel(self, tag: str) -> None:
        self._session.interruptTag(tag)

    def progress(self, tag: str) -> str:
        return ""  # the client's own progress bar and handlers show it (SparkSession.registerProgressHandler)


def _cancel(job: _ClassicJob | _ConnectJob, tag: str, result: Future[Any]) -> None:
    for _ in range(int(_CANCEL_S / _AGAIN_S)):
        if result.done():
            return
        try:
            job.cancel(tag)
        except Exception as error:  # a session or context that has been stopped
            _log.warning("The Spark job with tag %s could not be cancelled: %s", tag, error)
            return
        wait([result], timeout=_AGAIN_S)
    _log.warning("The Spark job with tag %s was cancelled, but has not ended within %.0f s", tag, _CANCEL_S)


# A Python traceback: indented lines, then the error, whose text ends where Spark's begins.
_RAISED = re.compile(
    r"Traceback \(most recent call last\):\n(?: [^\n]*\n|\n)+"
    r"(?P<package>(?:[a-z]\w*\.)*)(?P<kind>\w+)(?:: (?P<text>.*?))?(?=\n SQLSTATE: |\n\tat |\n=== |\n\n|\Z)",
    re.DOTALL,
)
_JVM_STACK = re.compile(r"\n\tat |\n\nJVM stacktrace")


def reason(error: BaseException) -> str:
    """The error of Spark's Python process, if there is one, otherwise Spark's text. This package's errors come without
    class name."""
    text = str(error)
    raised = list(_RAISED.finditer(text))
    if not raised:
        return _JVM_STACK.split(text, maxsplit=1)[0].strip()
    last = raised[-1]
    said = (last["text"] or "").strip()
    return said if said and last["package"].startswith("spark_kafka_sink.") else f"{last['kind']}: {said}".strip(": ")
