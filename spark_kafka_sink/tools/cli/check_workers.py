"""The connection check as a Spark job: in a Python worker of each executor."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, udf
from pyspark.sql.utils import is_remote

from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.spark.caller_job import reason
from spark_kafka_sink.tools.cli.job import spark_session
from spark_kafka_sink.tools.connection_check.check import CheckRequest
from spark_kafka_sink.tools.connection_check.findings import Finding, Outcome, Place, required_libraries

_ROUNDS: Final = 3
_TASKS_OF_CONNECT: Final = 8
_POLL_S: Final = 0.2
_SETTLED_S: Final = 3.0
"""The executors are complete if no further one comes for this long."""
_FIRST_EXECUTOR_S: Final = 20.0
"""The longest wait for a first executor. With dynamic allocation it may come only with the job."""


class Probe(Protocol):
    """What a task runs; ``number``: of the task. Returns JSON: host, process, findings as lists of their fields."""

    def __call__(self, number: int) -> str: ...


class WorkerCheckError(KafkaError):
    """The Spark job failed, or was not done in time."""


@dataclass(frozen=True)
class WorkerFindings:
    """What the workers found. ``executors`` is their number; None if Spark does not say (Spark Connect)."""

    master: str
    executors: int | None
    by_place: Mapping[Place, Sequence[Finding]]


def check_on_workers(
    request: CheckRequest, settings: Mapping[str, str], tasks: int | None, timeout_s: float
) -> WorkerFindings:
    """Runs the check on the workers. ``settings`` are Spark's options. There are as many ``tasks`` as executors by
    default. Raises ``KafkaError``.

    It runs on a thread of its own, because neither Spark's start nor a job that waits for executors has a deadline.
    """
    job = _Job(request, settings, tasks)
    thread = threading.Thread(target=job.run, name="check-workers", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if job.error is not None:
        raise job.error
    if job.found is None:
        raise WorkerCheckError(
            f"The Spark job was {job.state} after {timeout_s:.0f} s (--timeout): is the master running, and does it "
            "have free executors?"
        )
    return job.found


@dataclass
class _Job:
    """``run`` sets ``found`` or ``error``; ``state``: how far it is."""

    request: CheckRequest
    settings: Mapping[str, str]
    tasks: int | None
    state: str = "starting"
    found: WorkerFindings | None = None
    error: Exception | None = None

    def run(self) -> None:
        try:
            with spark_session("spark-kafka-sink check", self.settings) as spark:
                self.found = self._checked(spark)
        except Exception as error:
            self.error = error if isinstance(error, KafkaError) else WorkerCheckError(reason(error))

    def _checked(self, spark: SparkSession) -> WorkerFindings:
        self.state = "waiting for executors"
        executors = None if is_remote() else _await_executors(spark)
        tasks = self.tasks or executors or _TASKS_OF_CONNECT
        self.state = "not done"
        found: dict[Place, list[Finding]] = {}
        for _ in range(1 if executors is None else _ROUNDS):
            for text in _probed(spark, self.request, tasks):
                place, findings = _read(text)
                found.setdefault(place, findings)
            if executors is None or len(found) >= executors:
                break
        master = "Spark Connect" if is_remote() else str(spark.sparkContext.master)
        return WorkerFindings(master, executors, found)


def _await_executors(spark: SparkSession) -> int | None:
    """The number of executors once no more of them come; None if there is none, as with dynamic allocation."""
    context = spark.sparkContext._jsc.sc()
    if context.isLocal():
        return 1
    count, since = 0, time.monotonic()
    while time.monotonic() < since + (_SETTLED_S if count else _FIRST_EXECUTOR_S):
        found = len(context.statusTracker().getExecutorInfos()) - 1  # without the driver
        if found != count:
            count, since = found, time.monotonic()
        time.sleep(_POLL_S)
    return count or None


def _probed(spark: SparkSession, request: CheckRequest, tasks: int) -> list[str]:
    """One text per task. A plain UDF makes them, because workers may lack Arrow and pandas."""
    sent = CloudPickleSerializer().dumps(request)  # type: ignore[no-untyped-call]
    probe = udf(_probe(sent, required_libraries()), "string", useArrow=False).asNondeterministic()
    rows = spark.range(0, tasks, 1, tasks).select(probe(col("id")).alias("text")).collect()
    return [row.text for row in rows]


def _probe(request: bytes, libraries: Sequence[str]) -> Probe:
    """A nested function, because Spark sends it as code: a worker without this package can run it and say that it is
    missing.

    For the same reason ``request``, a ``CheckRequest``, is read inside the function instead of with it.
    """

    def probe(number: int) -> str:
        import json
        import os
        import socket

        from pyspark.serializers import CloudPickleSerializer

        findings: list[Finding] = []
        try:
            from spark_kafka_sink.tools.connection_check.findings import library_findings

            findings += library_findings(libraries)
            from spark_kafka_sink.common.clock import SystemClock
            from spark_kafka_sink.tools.connection_check.check import check

            sent = CloudPickleSerializer().loads(request)  # type: ignore[no-untyped-call]
            findings += check(sent, SystemClock())
            error = None
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
        texts = [[each.subject, each.step, each.outcome.value, each.text, each.elapsed_ms] for each in findings]
        if error is not None:
            texts.append(["this machine", "import", "FAILED", error, None])
        return json.dumps([socket.gethostname(), os.getppid(), texts])

    return probe


def _read(text: str) -> tuple[Place, list[Finding]]:
    host, process, findings = json.loads(text)
    return Place(host, process), [
        Finding(subject, step, Outcome(outcome), said, elapsed_ms)
        for subject, step, outcome, said, elapsed_ms in findings
    ]
