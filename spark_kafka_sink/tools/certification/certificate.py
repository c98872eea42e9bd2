"""The verdict of a run, as text to paste into an issue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import spark_kafka_sink
from spark_kafka_sink.tools.certification.plan import KINDS
from spark_kafka_sink.tools.connection_check.findings import Finding, Outcome
from spark_kafka_sink.tools.connection_check.lines import conclusion

_LABEL: Final = 11
_OUTCOME: Final = 9


@dataclass(frozen=True, repr=False)
class Certificate:
    """The verdict of ``certify``. ``text`` is what to paste into an issue, as is ``str()`` of the certificate.

    ``worked`` is True if no step failed, and the rows of each write were read back. ``facts`` maps the labels of the
    text to what was found out.

    Passwords, users and host names are replaced in the text. Those in the options are recognised, and others by what
    they look like. Names of topics and paths stay, so read the text before you post it.
    """

    findings: Sequence[Finding]
    facts: Mapping[str, str]
    epoch_ms: int

    @property
    def worked(self) -> bool:
        worked = {(each.subject, each.step) for each in self.findings if each.outcome is Outcome.OK}
        return all((kind.guarantee, f"read {kind.way}") in worked for kind in KINDS) and all(
            each.outcome is not Outcome.FAILED for each in self.findings
        )

    @property
    def text(self) -> str:
        at = datetime.fromtimestamp(self.epoch_ms / 1000, UTC)
        head = f"spark-kafka-sink {spark_kafka_sink.__version__}: {self._verdict()} ({at:%Y-%m-%d %H:%M} UTC)"
        facts = [f"{label:{_LABEL}}{text}" for label, text in self.facts.items() if text]
        steps = [f"{each.outcome.value:{_OUTCOME}}{each.subject}, {each.step}: {each.text}" for each in self.findings]
        return "\n".join(["```text", head, "", *facts, "", *steps, "```"])

    def _verdict(self) -> str:
        return f"{'certified' if self.worked else 'NOT certified'}, {conclusion(self.findings)}"

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<Certificate: {self._verdict()}>"
