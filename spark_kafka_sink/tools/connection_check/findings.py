"""What a check finds, step by step, as values and as lines on standard output, the findings about a process's
libraries, and how workers differ from the driver.

This file imports none of the libraries, because a worker may lack some and must still say which.
"""

from __future__ import annotations

import platform
import re
import ssl
import textwrap
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from importlib import metadata
from typing import Final, NamedTuple, TypeAlias

import spark_kafka_sink
from spark_kafka_sink.errors import ConnectionStep

_Key: TypeAlias = tuple[str, str, int]
"""Subject, step, and how many findings of both came before."""

_PACKAGE: Final = "spark-kafka-sink"
_LIBRARIES: Final = "libraries"
_NAME: Final = re.compile(r"[\w.-]+")


class Outcome(Enum):
    """How a step ended. ADVICE is no step: something to know, which is neither right nor wrong."""

    OK = "ok"
    FAILED = "FAILED"
    UNTESTED = "untested"
    ADVICE = "advice"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was tested and how it ended; no secrets. A value: processes may exchange and compare findings.

    ``subject``: a broker's address, a topic, … ``elapsed_ms``: None for a step that took no request of its own.
    """

    subject: str
    step: str
    outcome: Outcome
    text: str
    elapsed_ms: float | None = None


def required_libraries() -> tuple[str, ...]:
    """The libraries that the package requires, without extras; empty if its files were copied instead of installed."""
    try:
        required = metadata.requires(_PACKAGE) or []
    except metadata.PackageNotFoundError:
        return ()
    names = [_NAME.match(each) for each in required if "extra ==" not in each]
    return tuple(sorted(name[0] for name in names if name))


def library_findings(names: Sequence[str]) -> Iterator[Finding]:
    """Which Python and which libraries this process has: a worker may have others than the driver."""
    yield Finding(_LIBRARIES, "Python", Outcome.OK, platform.python_version())
    yield Finding(_LIBRARIES, "OpenSSL", Outcome.OK, ssl.OPENSSL_VERSION)
    yield Finding(_LIBRARIES, _PACKAGE, Outcome.OK, spark_kafka_sink.__version__)
    for name in names:
        try:
            yield Finding(_LIBRARIES, name, Outcome.OK, metadata.version(name))
        except metadata.PackageNotFoundError:
            yield Finding(_LIBRARIES, name, Outcome.FAILED, "is not installed")


class Place(NamedTuple):
    """An executor: its host, and the process there that starts its Python workers."""

    host: str
    process: int

    def __str__(self) -> str:
        return f"{self.host} (process {self.process})"


@dataclass(frozen=True, slots=True)
class Difference:
    """A step that ended differently on a worker; ``here``: on the driver, None if the driver's check ended before."""

    there: Finding
    here: Finding | None


def differences(here: Sequence[Finding], there: Sequence[Finding]) -> tuple[Difference, ...]:
    """How the worker's findings differ from the driver's, ``here``, in the order of the worker's.

    A step that one of them did not reach, because an earlier one failed, is not a difference; nor are times, the order
    of addresses, and how a step failed that failed on both.
    """
    ours, theirs = _by_key(here), _by_key(there)
    found = [
        Difference(each, ours.get(key))
        for key, each in theirs.items()
        if (not _has_failed(here) or each.outcome is Outcome.FAILED if key not in ours else _differ(ours[key], each))
    ]
    if not _has_failed(there):
        missing = (each for key, each in ours.items() if key not in theirs)
        found += [
            Difference(Finding(each.subject, each.step, Outcome.UNTESTED, "was not tried there"), each)
            for each in missing
        ]
    return tuple(found)


def by_differences(
    here: Sequence[Finding], workers: Mapping[Place, Sequence[Finding]]
) -> dict[tuple[Difference, ...], list[Place]]:
    """The places that have the same differences from the driver, in their order."""
    grouped: dict[tuple[Difference, ...], list[Place]] = {}
    for place in sorted(workers):
        grouped.setdefault(_without_times(differences(here, workers[place])), []).append(place)
    return grouped


def _by_key(findings: Iterable[Finding]) -> dict[_Key, Finding]:
    seen: Counter[tuple[str, str]] = Counter()
    by_key = {}
    for each in findings:
        by_key[each.subject, each.step, seen[each.subject, each.step]] = each
        seen[each.subject, each.step] += 1
    return by_key


def _has_failed(findings: Sequence[Finding]) -> bool:
    return any(each.outcome is Outcome.FAILED for each in findings)


def _differ(ours: Finding, theirs: Finding) -> bool:
    if ours.outcome is not theirs.outcome:
        return True
    if ours.outcome is not Outcome.OK or ours.step == ConnectionStep.TCP.value:  # to any of the addresses
        return False
    if ours.step == ConnectionStep.DNS.value:
        return set(ours.text.split(", ")) != set(theirs.text.split(", "))
    return ours.text != theirs.text


def _without_times(some: Iterable[Difference]) -> tuple[Difference, ...]:
    """The differences without times, so that equal ones compare equal."""
    return tuple(Difference(_untimed(each.there), each.here) for each in some)


def _untimed(finding: Finding) -> Finding:
    return Finding(finding.subject, finding.step, finding.outcome, finding.text)


_WIDTH: Final = 110
_INDENT: Final = 2
_OUTCOME: Final = 9
_STEP: Final = 12
_TIME: Final = 10


class Printer:
    """Prints findings, with a heading before those of another subject."""

    def __init__(self) -> None:
        self._subject = ""

    def all(self, findings: Generator[Finding, None, None]) -> Iterator[Finding]:
        """Each finding, printed as it comes. Closes ``findings`` also after Ctrl-C, so that it cleans up."""
        with closing(findings):
            for each in findings:
                self.finding(each)
                yield each

    def finding(self, finding: Finding) -> None:
        if finding.subject != self._subject:
            self._subject = finding.subject
            print(finding.subject)
        print(lines(finding), flush=True)


def lines(finding: Finding) -> str:
    """A finding as a terminal shows it: outcome, step, time and text in columns."""
    took = "" if finding.elapsed_ms is None else f"{finding.elapsed_ms:.1f} ms"
    head = f"{'':{_INDENT}}{finding.outcome.value:{_OUTCOME}}{finding.step:{_STEP}}{took:>{_TIME}}  "
    texts = [
        line
        for text in finding.text.splitlines()
        for line in textwrap.wrap(text, _WIDTH - len(head), break_long_words=False, break_on_hyphens=False)
    ]
    return f"\n{'':{len(head)}}".join([head + (texts[0] if texts else ""), *texts[1:]])


def conclusion(findings: Sequence[Finding]) -> str:
    """One line about all steps."""
    steps = [each for each in findings if each.outcome is not Outcome.ADVICE]
    failed = [each for each in steps if each.outcome is Outcome.FAILED]
    untested = sum(each.outcome is Outcome.UNTESTED for each in findings)
    told = "no step failed"
    if failed:
        told = f"{len(failed)} of {len(steps)} steps failed, first {failed[0].step} of {failed[0].subject}"
    return told + (f", {untested} could not be tested" if untested else "")
