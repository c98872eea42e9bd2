"""``Finding``, the result of one step of a check, as a value and as a line on standard output, and the findings about a
process's libraries. This file imports none of these libraries, because a worker that lacks some must still report
which.
"""

from __future__ import annotations

import platform
import re
import ssl
import textwrap
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from importlib import metadata
from typing import Final

import spark_kafka_sink

_PACKAGE: Final = "spark-kafka-sink"
_LIBRARIES: Final = "libraries"
_NAME: Final = re.compile(r"[\w.-]+")


class Outcome(Enum):
    """The outcome of a step."""

    OK = "ok"
    FAILED = "FAILED"
    UNTESTED = "untested"


@dataclass(frozen=True, slots=True)
class Finding:
    """A step and its outcome, without secrets. A value, because processes exchange and compare findings. ``subject``: a
    broker's address, a topic, … ``elapsed_ms``: None for a step without a request of its own.
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
    names = [_NAME.match(requirement) for requirement in required if "extra ==" not in requirement]
    return tuple(sorted(name[0] for name in names if name))


def library_findings(names: Sequence[str]) -> Iterator[Finding]:
    """The Python and the libraries of this process, because a worker may have others than the driver."""
    yield Finding(_LIBRARIES, "Python", Outcome.OK, platform.python_version())
    yield Finding(_LIBRARIES, "OpenSSL", Outcome.OK, ssl.OPENSSL_VERSION)
    yield Finding(_LIBRARIES, _PACKAGE, Outcome.OK, spark_kafka_sink.__version__)
    for name in names:
        try:
            yield Finding(_LIBRARIES, name, Outcome.OK, metadata.version(name))
        except metadata.PackageNotFoundError:
            yield Finding(_LIBRARIES, name, Outcome.FAILED, "is not installed")


_WIDTH: Final = 110
_INDENT: Final = 2
_OUTCOME: Final = 9
_STEP: Final = 12
_TIME: Final = 10


def printed(findings: Generator[Finding, None, None]) -> Iterator[Finding]:
    """Prints each finding as it comes, with a heading before each subject, and yields it. Closes ``findings`` even
    after Ctrl-C, so that it cleans up.
    """
    subject = ""
    with closing(findings):
        for finding in findings:
            if finding.subject != subject:
                subject = finding.subject
                print(subject)
            print(lines(finding), flush=True)
            yield finding


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
    failed = [finding for finding in findings if finding.outcome is Outcome.FAILED]
    untested = sum(finding.outcome is Outcome.UNTESTED for finding in findings)
    told = "no step failed"
    if failed:
        told = f"{len(failed)} of {len(findings)} steps failed, first {failed[0].step} of {failed[0].subject}"
    return told + (f", {untested} could not be tested" if untested else "")
