"""The connection check as a Spark job, in a Python worker of each executor, and the differences to this machine."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, udf
from pyspark.sql.utils import is_remote

from spark_kafka_sink.errors import ConnectionStep
from spark_kafka_sink.tools.connection_check import CheckRequest
from spark_kafka_sink.tools.findings import Finding, Outcome, lines, required_libraries

_ROUNDS: Final = 3
_TASKS_OF_CONNECT: Final = 8
_POLL_S: Final = 0.2
_SETTLED_S: Final = 3.0
"""The time without a new executor after which the executors count as complete."""
_FIRST_EXECUTOR_S: Final = 20.0
"""The longest wait for a first executor. With dynamic allocation it may come only with the job."""
_MAX_LISTED: Final = 8


class Place(NamedTuple):
    """An executor: its host, and the process there that starts its Python workers."""

    host: str
    process: int

    def __str__(self) -> str:
        return f"{self.host} (process {self.process})"


class DriverComparison(NamedTuple):
    """The workers compared with the driver. ``summary``: a line without hosts. ``lines``: each difference, with the
    executors. ``failed``: whether a step failed on an executor that works on the driver.
    """

    summary: str
    lines: Sequence[str]
    failed: bool


@dataclass(frozen=True)
class WorkerFindings:
    """The findings of the workers. ``executors``: the number of executors; None if Spark does not say (Spark
    Connect)."""

    executors: int | None
    by_place: Mapping[Place, Sequence[Finding]]

    def compared(self, here: Sequence[Finding]) -> DriverComparison:
        """The differences to the driver's findings, once for all executors with the same differences."""
        places: dict[tuple[Finding, ...], list[Place]] = {}
        for place in sorted(self.by_place):
            places.setdefault(differences(here, self.by_place[place]), []).append(place)
        alike = len(places.pop((), ()))
        told = []
        for found, same in places.items():
            more = f" and {len(same) - _MAX_LISTED} more" if len(same) > _MAX_LISTED else ""
            told += [f"executor {', '.join(map(str, same[:_MAX_LISTED]))}{more}", *map(lines, found)]
        checked = len(self.by_place)
        missed = (self.executors or checked) - checked
        steps = ", ".join(dict.fromkeys(found[0].step for found in places))
        summary = f"{checked} {'executor' if checked == 1 else 'executors'}, "
        summary += (
            f"{checked - alike} differ from the driver, first at {steps}" if places else "none differs from the driver"
        )
        summary += f", {missed} got no task" if missed > 0 else ""
        return DriverComparison(
            summary, told, any(each.outcome is Outcome.FAILED for found in places for each in found)
        )


def differences(here: Iterable[Finding], there: Iterable[Finding]) -> tuple[Finding, ...]:
    """The worker's findings that the driver does not have, each with the driver's finding of the same step."""
    ours, theirs = _by_step(here), _by_step(there)
    ended_here, ended_there = (
        any(finding.outcome is Outcome.FAILED for finding in steps.values()) for steps in (ours, theirs)
    )
    found = []
    for step, finding in theirs.items():
        own = ours.get(step)
        if own is None and ended_here and finding.outcome is not Outcome.FAILED:
            continue  # a step after the step that failed here
        if own is not None and _comparable(finding) == _comparable(own):
            continue
        text = finding.text if finding.subject in finding.text else f"{finding.subject}: {finding.text}"
        if own is not None:
            text += f"\nhere: {'' if own.outcome is Outcome.OK else f'{own.outcome.value}, '}{own.text}"
        found.append(Finding(finding.subject, finding.step, finding.outcome, text))
    if not ended_there:
        found += [
            Finding(own.subject, own.step, Outcome.UNTESTED, f"{own.subject}: was not tried there")
            for step, own in ours.items()
            if step not in theirs
        ]
    return tuple(found)


def _by_step(findings: Iterable[Finding]) -> dict[tuple[str, str, int], Finding]:
    """The findings by subject, step and how often that came before."""
    counts: Counter[tuple[str, str]] = Counter()
    steps: dict[tuple[str, str, int], Finding] = {}
    for finding in findings:
        subject, step = finding.subject, finding.step
        steps[subject, step, counts[subject, step]] = finding
        counts[subject, step] += 1
    return steps


def _comparable(finding: Finding) -> tuple[str, str, Outcome, str]:
    """The finding without times, the order of addresses, the address that accepts, and the text of a failure that both
    have."""
    text = finding.text
    if finding.outcome is not Outcome.OK or finding.step == ConnectionStep.TCP.value:
        text = ""
    elif finding.step == ConnectionStep.DNS.value:
        text = ", ".join(sorted(text.split(", ")))
    return finding.subject, finding.step, finding.outcome, text


def check_on_workers(spark: SparkSession, request: CheckRequest) -> WorkerFindings:
    """Runs the check on the workers, in a task for each executor, or in 8 tasks with Spark Connect."""
    executors = None if is_remote() else _await_executors(spark)
    found: dict[Place, list[Finding]] = {}
    for _ in range(1 if executors is None else _ROUNDS):
        for text in _probed(spark, request, executors or _TASKS_OF_CONNECT):
            place, findings = _read(text)
            found.setdefault(place, findings)
        if executors is None or len(found) >= executors:
            break
    return WorkerFindings(executors, found)


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


def _probe(request: bytes, libraries: Sequence[str]) -> Callable[[int], str]:
    """The function that a task runs. It takes the task's number and returns JSON: host, process, findings as lists of
    their fields.

    A nested function, because Spark sends it as code: a worker without this package can run it and say that it is
    missing. For the same reason ``request``, a ``CheckRequest``, is read inside the function instead of with it.
    """

    def probe(number: int) -> str:
        import json
        import os
        import socket

        from pyspark.serializers import CloudPickleSerializer

        findings: list[Finding] = []
        try:
            from spark_kafka_sink.tools.findings import library_findings

            findings += library_findings(libraries)
            from spark_kafka_sink.common.clock import SystemClock
            from spark_kafka_sink.tools.connection_check import check

            sent = CloudPickleSerializer().loads(request)  # type: ignore[no-untyped-call]
            findings += check(sent, SystemClock())
            error = None
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
        texts = [[finding.subject, finding.step, finding.outcome.value, finding.text] for finding in findings]
        if error is not None:
            texts.append(["this machine", "import", "FAILED", error])
        return json.dumps([socket.gethostname(), os.getppid(), texts])

    return probe


def _read(text: str) -> tuple[Place, list[Finding]]:
    host, process, findings = json.loads(text)
    return Place(host, process), [Finding(subject, step, Outcome(end), said) for subject, step, end, said in findings]
