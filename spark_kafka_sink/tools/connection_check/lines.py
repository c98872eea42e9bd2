"""Findings as lines on standard output."""

from __future__ import annotations

import textwrap
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import Final

from spark_kafka_sink.tools.connection_check.findings import Finding, Outcome

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
