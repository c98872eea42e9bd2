"""What options mean together. ``RULES`` is applied in its order to a draft of converted values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from spark_kafka_sink.config.bootstrap import parse_addresses
from spark_kafka_sink.config.option import Status
from spark_kafka_sink.config.security_table import SECURITY_OPTIONS
from spark_kafka_sink.config.table import PARTITIONERS, SMALLEST_RECORD

MAX_IN_FLIGHT_WITH_IDEMPOTENCE: Final = 5
_LARGEST_INT = 2**31 - 1
_PYTHON_CLASS = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


@dataclass
class Draft:
    """A configuration in the making: ``values`` of all options, which of them were ``given``, which are ``faulty``."""

    prefix: str
    values: dict[str, Any] = field(default_factory=dict)
    given: set[str] = field(default_factory=set)
    faulty: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def fault(self, name: str, sentence: str) -> None:
        self.faulty.add(name)
        self.faults.append(f"{self.prefix}{name} {sentence}")


def servers(draft: Draft) -> None:
    """Required; every entry is host:port. An entry given twice counts once, as in Java."""
    name = "bootstrap.servers"
    entries = draft.values[name]
    if not entries:
        draft.fault(name, "is required: host:port of one or more brokers, separated by commas.")
        return
    draft.values[name], wrong, repeated = parse_addresses(entries)
    for what in wrong:
        draft.fault(name, f"{what}.")
    for entry in repeated:
        draft.warnings.append(f"{draft.prefix}{name} lists {entry} more than once; it is used once.")


def security(draft: Draft) -> None:
    """One sentence for all of TLS and SASL: such options come in bunches, each refused for the same reason."""
    refused = [draft.prefix + name for name in UNBUILT_SECURITY if name in draft.given]
    protocol = draft.values["security.protocol"]
    if protocol != "PLAINTEXT":
        refused.insert(0, f"{draft.prefix}security.protocol={protocol}")
    if refused:
        draft.faults.append(
            f"{', '.join(refused)}: TLS and SASL are not built yet; this version speaks PLAINTEXT only."
        )


def partitioner(draft: Draft) -> None:
    """A name of ours, or a Python class as ``package.module:Class``; it is imported when a producer is made."""
    name = draft.values["partitioner.class"] or PARTITIONERS[0]
    if name not in PARTITIONERS and not _PYTHON_CLASS.fullmatch(name):
        draft.fault(
            "partitioner.class",
            f"is {name!r}; a JVM class cannot be loaded here. Say {', '.join(PARTITIONERS)} or package.module:Class "
            "of your own in Python (default is Kafka's own choice), or give each row its partition in a column named "
            "partition.",
        )
    draft.values["partitioner.class"] = name


def idempotence(draft: Draft) -> None:
    """As Java's ``postProcessAndValidateIdempotenceConfigs``, but what it only logs is a warning."""
    values = draft.values
    values["acks"] = -1 if values["acks"] == "all" else int(values["acks"])
    if not values["enable.idempotence"]:
        return
    in_flight = values["max.in.flight.requests.per.connection"]
    if in_flight > MAX_IN_FLIGHT_WITH_IDEMPOTENCE:
        draft.fault(
            "max.in.flight.requests.per.connection",
            f"must be at most {MAX_IN_FLIGHT_WITH_IDEMPOTENCE} to use the idempotent producer, but is {in_flight}; "
            f"lower it or set {draft.prefix}enable.idempotence=false.",
        )
    against = {
        "acks": (values["acks"] != -1, f"is {values['acks']}", "all"),
        "retries": (values["retries"] == 0, "is 0", "1 or more"),
    }
    for name, (at_odds, state, needed) in against.items():
        if not at_odds:
            continue
        if "enable.idempotence" in draft.given:
            draft.fault(name, f"{state}, but {draft.prefix}enable.idempotence=true needs {needed}; change one of them.")
        else:
            values["enable.idempotence"] = False
            draft.warnings.append(
                f"{draft.prefix}{name} {state}, so idempotence, on by default, is off: retries may write records twice."
            )


def transactions(draft: Draft) -> None:
    """As Java: a transactional producer is idempotent, and its id is not empty."""
    values, name = draft.values, "transactional.id"
    if values[name] is None:
        return
    if not values[name]:
        draft.fault(name, "must not be empty; leave it out to write without transactions.")
    elif not values["enable.idempotence"]:
        draft.fault(name, "needs idempotence: set enable.idempotence=true, acks=all, and retries of 1 or more.")


def delivery_timeout(draft: Draft) -> None:
    """At least linger.ms + request.timeout.ms: raised unless it was given (Java: ``configureDeliveryTimeout``)."""
    values = draft.values
    least = min(values["linger.ms"] + values["request.timeout.ms"], _LARGEST_INT)
    if values["delivery.timeout.ms"] >= least:
        return
    if "delivery.timeout.ms" in draft.given:
        draft.fault(
            "delivery.timeout.ms",
            f"is {values['delivery.timeout.ms']}; it must be at least linger.ms + request.timeout.ms "
            f"({values['linger.ms']} + {values['request.timeout.ms']}).",
        )
    values["delivery.timeout.ms"] = least


def memory(draft: Draft) -> None:
    """Java fails each record when buffer.memory holds no batch; here a default never does."""
    values, name = draft.values, "buffer.memory"
    least = max(values["batch.size"], SMALLEST_RECORD)
    if name in draft.given and values[name] < least:
        draft.fault(
            name, f"is {values[name]}; it must hold a batch of {draft.prefix}batch.size: at least {least} bytes."
        )


def backoffs(draft: Draft) -> None:
    """A first wait above the longest one is the longest one, always; a lone reconnect.backoff.ms does not grow."""
    values, given = draft.values, draft.given
    if "reconnect.backoff.ms" in given and "reconnect.backoff.max.ms" not in given:
        values["reconnect.backoff.max.ms"] = values["reconnect.backoff.ms"]
    for first, longest in BACKOFFS.items():
        if values[first] > values[longest]:
            draft.warnings.append(
                f"{draft.prefix}{first} ({values[first]}) is above {draft.prefix}{longest} ({values[longest]}), "
                f"so it is always {values[longest]}."
            )
            values[first] = values[longest]


UNBUILT_SECURITY = tuple(option.name for option in SECURITY_OPTIONS if option.status is Status.NOT_YET)

BACKOFFS: Mapping[str, str] = {
    "retry.backoff.ms": "retry.backoff.max.ms",
    "reconnect.backoff.ms": "reconnect.backoff.max.ms",
    "socket.connection.setup.timeout.ms": "socket.connection.setup.timeout.max.ms",
}

RULES: tuple[tuple[frozenset[str], Callable[[Draft], None]], ...] = (
    (frozenset({"bootstrap.servers"}), servers),
    (frozenset({"security.protocol"}), security),
    (frozenset({"partitioner.class"}), partitioner),
    (frozenset({"acks", "retries", "enable.idempotence", "max.in.flight.requests.per.connection"}), idempotence),
    (frozenset({"transactional.id", "acks", "retries", "enable.idempotence"}), transactions),
    (frozenset({"delivery.timeout.ms", "linger.ms", "request.timeout.ms"}), delivery_timeout),
    (frozenset({"buffer.memory", "batch.size"}), memory),
    (frozenset({*BACKOFFS.keys(), *BACKOFFS.values()}), backoffs),
)
"""Each rule with the options it reads; it is left out when one of these is already at fault."""
