"""``deadLetterTopic`` and what belongs to it: which rows may become dead letters, how many, and where they go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from spark_kafka_sink.common.config.option import Matching, OneOf, Option, OptionKind, did_you_mean
from spark_kafka_sink.common.task_figures import counted


class Reason(Enum):
    """Why a row is a dead letter, by its name in ``deadLetterOn``."""

    RECORD_TOO_LARGE = "record-too-large"
    NULL_TOPIC = "null-topic"
    INVALID_TOPIC = "invalid-topic"
    INVALID_PARTITION = "invalid-partition"
    INVALID_TIMESTAMP = "invalid-timestamp"
    INVALID_HEADER = "invalid-header"
    ENCODE = "encode"
    UNKNOWN_TOPIC = "unknown-topic"


NO_TOPIC: Final = frozenset({Reason.NULL_TOPIC, Reason.INVALID_TOPIC})
"""Reasons of rows that have no topic, and so no schema either."""

_DEFAULT: Final = frozenset(Reason) - {Reason.UNKNOWN_TOPIC}
_DEFAULT_LIMIT: Final = 1000

DEAD_LETTER_OPTIONS: Final = (
    Option("deadLetterTopic", OptionKind.STRING, None, "medium",
           "Topic for rows that cannot be written (dead letters), with the headers of Kafka Connect's dead letter "
           "queues. With exactly-once, they are in the same transaction as the other rows. No other option may name "
           "the same topic. Default: such a row fails its task."),
    Option("deadLetterOn", OptionKind.LIST, None, "low",
           "Kinds of rows that become dead letters: record-too-large, null-topic, invalid-topic, "
           "invalid-partition, invalid-timestamp, invalid-header, encode, unknown-topic. Default: all but "
           "unknown-topic, which cannot be set together with the option topic or topicCreation=create."),
    Option("deadLetterLimit", OptionKind.STRING, str(_DEFAULT_LIMIT), "low",
           "Number of dead letters that a micro-batch or batch job may have; with more, it fails. none: no limit. "
           "With at-least-once, rows that were already sent stay in Kafka.",
           Matching(r"(?i:none)|\d{1,18}", "a number of rows, or none")),
    Option("deadLetterHeaders", OptionKind.STRING, "connect", "low",
           "connect: dead letters have the headers __connect.errors.*. none: only the row's own headers.",
           OneOf(("connect", "none"))),
)  # fmt: skip

_INSTEAD: Final = {
    "errors.tolerance": "deadLetterTopic (and deadLetterLimit)",
    "errors.deadletterqueue.topic.name": "deadLetterTopic",
    "errors.deadletterqueue.topic.replication.factor": "topicCreation, or create the topic",
    "errors.deadletterqueue.context.headers.enable": "deadLetterHeaders",
    "errors.log.enable": "deadLetterTopic",
    "errors.log.include.messages": "deadLetterTopic",
    "errors.retry.timeout": "kafka.delivery.timeout.ms",
    "errors.retry.delay.max.ms": "kafka.retry.backoff.max.ms",
}

CONNECT_NAMES: Final[Mapping[str, str]] = {
    name: f"{name} is an option of Kafka Connect. Use {instead}." for name, instead in _INSTEAD.items()
}
"""Option → the text of its refusal."""


@dataclass(frozen=True, slots=True)
class DeadLetterOptions:
    """``limit`` None: none. ``connect_headers``: ``__connect.errors.*``. ``connector``: name of the query, None if it
    has none.
    """

    topic: str
    reasons: frozenset[Reason] = _DEFAULT
    limit: int | None = _DEFAULT_LIMIT
    connect_headers: bool = True
    connector: str | None = None

    @classmethod
    def of(cls, own: Mapping[str, Any], connector: str | None, faults: list[str]) -> DeadLetterOptions | None:
        """Parses the options; None without deadLetterTopic. ``own``: the sink's options, by names in lower case."""
        given = [option.name for option in DEAD_LETTER_OPTIONS if option.name.lower() in own]
        if "deadlettertopic" not in own:
            if given:
                faults.append(f"{', '.join(given)}: only with deadLetterTopic.")
            return None
        reasons = _DEFAULT if own.get("deadletteron") is None else _reasons(own["deadletteron"], faults)
        if Reason.UNKNOWN_TOPIC in reasons and own.get("topic") is not None:
            faults.append(
                "deadLetterOn=unknown-topic is refused with the option topic: every row would become a dead letter. "
                "Set topicCreation=never to find a missing topic before the first row."
            )
        if Reason.UNKNOWN_TOPIC in reasons and own.get("topiccreation") == "create":
            faults.append(
                "deadLetterOn=unknown-topic is refused with topicCreation=create: a missing topic is created, or its "
                "rows become dead letters. Leave out one of them."
            )
        limit = own.get("deadletterlimit") or str(_DEFAULT_LIMIT)
        most = None if limit.lower() == "none" else int(limit)
        return cls(own["deadlettertopic"], reasons, most, own.get("deadletterheaders") != "none", connector)

    @property
    def judges_topics(self) -> bool:
        """A missing topic makes dead letters, and is not an error of ``topicCreation``."""
        return Reason.UNKNOWN_TOPIC in self.reasons

    def over_limit(self, rows: int) -> str | None:
        """The text of a ``DeadLetterLimitError``, if ``rows`` are too many."""
        if self.limit is None or rows <= self.limit:
            return None
        return (
            f"{counted(rows, 'row')} became dead letters, more than deadLetterLimit={self.limit}. "
            f"Look at deadLetterTopic {self.topic}; raise deadLetterLimit, or set it to none, to go on."
        )


def _reasons(names: Sequence[str], faults: list[str]) -> frozenset[Reason]:
    known = {reason.value: reason for reason in Reason}
    for name in names:
        if name.lower() not in known:
            hint = did_you_mean(name, known)
            faults.append(f"deadLetterOn: {name!r} is not one of {', '.join(known)}{hint}")
    if not names:
        faults.append("deadLetterOn is blank; give it a value or leave it out.")
    return frozenset(known[name.lower()] for name in names if name.lower() in known)
