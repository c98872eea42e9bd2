"""Rules over several options. ``RULES`` has all of them in the order in which they apply to a draft."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from spark_kafka_sink.common.config.draft import Draft
from spark_kafka_sink.common.config.python_class import (
    JAVA_PARTITIONERS,
    JAVA_SERIALIZERS,
    PYTHON_CLASS,
    of_java_name,
    serializes_for_a_registry,
)
from spark_kafka_sink.common.config.sasl_rules import PROTOCOLS, clear_text_login, sasl
from spark_kafka_sink.common.config.table import (
    LOGIN_OPTION_NAMES,
    PARTITIONERS,
    RACK_AWARE_PARTITIONERS,
    SMALLEST_RECORD,
)
from spark_kafka_sink.common.config.tls_rules import (
    STORES,
    tls_cipher_suites,
    tls_stores,
    tls_versions,
    tls_without_effect,
)
from spark_kafka_sink.common.protocol_values import LARGEST_INT32, text_fault
from spark_kafka_sink.common.removed_names import removed_name

_MAX_IN_FLIGHT_WITH_IDEMPOTENCE: Final = 5
_BATCHES_IN_MEMORY: Final = 16
"""The default of batch.size leaves room for this many batches in buffer.memory."""
_UNACKNOWLEDGED_BATCH: Final = 16384
"""The default of batch.size for acks=0, Kafka's own. Without responses, a topic with a lower limit drops all."""
_LARGEST_PORT = 65535
_WITHOUT_EFFECT: Final = frozenset({
    "bootstrap.resolve.timeout.ms", "buffer.memory.allocation.strategy", "metadata.cluster.check.enable",
})  # fmt: skip
# As Java's pattern, this takes a protocol in front and an IPv6 address without brackets.
_ADDRESS = re.compile(r"(?:(?P<protocol>[0-9A-Za-z\-%._]*)://)?\[?(?P<host>[0-9A-Za-z\-%._:]+?)\]?:(?P<port>[0-9]+)")


def servers(draft: Draft) -> None:
    """Each server is host:port and counts once; one is required (Java: ``ClientUtils``, before 4.1 for empty ones)."""
    name = "bootstrap.servers"
    entries = [*filter(None, draft.values[name] or ())]
    if not entries:
        draft.fault(name, "is required: host:port of one or more brokers, separated by commas.")
        return
    addresses: dict[tuple[str, int], None] = {}
    for entry in entries:
        try:
            address = _parse_address(entry, draft.values["security.protocol"])
        except ValueError as error:
            draft.fault(name, f"{error}.")
            continue
        if address in addresses:
            draft.warn(name, f"lists {entry} more than once; it is used once.")
        addresses[address] = None
    draft.values[name] = tuple(addresses)


def _parse_address(text: str, security_protocol: str) -> tuple[str, int]:
    """Host and port of ``host:port`` or ``[ipv6]:port``. Raises ``ValueError`` with the reason.

    As in Java, the name of a listener may stand in front (``CLIENTS://``). If it is a protocol, it must be the one in
    use.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None:
        user, at, address = text.rpartition("@")  # a password may stand before it
        shown = f"…@{address}" if user else at + address
        raise ValueError(f"entry {shown!r} is not host:port (an IPv6 address is written [::1]:9092)")
    protocol = (match["protocol"] or security_protocol).upper()
    if protocol in PROTOCOLS and protocol != security_protocol:
        raise ValueError(f"entry {text!r} asks for {protocol}, but security.protocol is {security_protocol}")
    port = int(match["port"])
    if not 1 <= port <= _LARGEST_PORT:
        raise ValueError(f"entry {text!r} has port {port}; ports go from 1 to {_LARGEST_PORT}")
    return match["host"], port


def partitioner(draft: Draft) -> None:
    """A partitioner is one of ``PARTITIONERS``, Kafka's class for one of them, or a Python class."""
    name = of_java_name(draft.values["partitioner.class"] or PARTITIONERS[0], JAVA_PARTITIONERS)
    name = name.lower() if name.lower() in PARTITIONERS else name
    if (removed := removed_name(name.lower(), name)) is not None:
        draft.fault("partitioner.class", f"is {name!r}; {removed}")
    elif name not in PARTITIONERS and not PYTHON_CLASS.fullmatch(name):
        draft.fault(
            "partitioner.class",
            f"is {name!r}; JVM classes cannot be loaded. Use {', '.join(PARTITIONERS)} (default is Kafka's own), a "
            "Python class as package.module:Class, or give each row its partition in a column named partition.",
        )
    draft.values["partitioner.class"] = name


def rack(draft: Draft) -> None:
    """partitioner.rack.aware needs client.rack (Java: ``RecordAccumulator.PartitionerConfig``).

    Warns if the partitioner ignores it.
    """
    values, name = draft.values, "partitioner.rack.aware"
    if not values[name]:
        return
    if not values["client.rack"].strip():
        draft.fault("client.rack", f"must be provided if {draft.prefix}{name} is enabled: the zone of this client.")
    elif values["partitioner.class"] not in RACK_AWARE_PARTITIONERS:
        draft.warn(name, f"has no effect with {draft.prefix}partitioner.class={values['partitioner.class']}.")


def serializers(draft: Draft) -> None:
    """Serializers are Python classes, or Java's names of those that exist in both."""
    for option in SERIALIZERS:
        name = draft.values[option]
        if not name:
            draft.values[option] = None
            continue
        draft.values[option] = name = of_java_name(name, JAVA_SERIALIZERS)
        if serializes_for_a_registry(name):
            draft.fault(
                option,
                f"is {name!r}; this producer has no serializer that uses a schema registry. The Spark sink writes the "
                f"format with the option {option.removesuffix('.serializer')}Format; for records of send, call the "
                "serializer of confluent-kafka and send the bytes.",
            )
        elif not PYTHON_CLASS.fullmatch(name):
            draft.fault(
                option,
                f"is {name!r}; JVM classes cannot be loaded, but for Java's serializers of String, ByteArray, "
                "Integer, Long, Double and Void. Use a Python class as package.module:Class.",
            )
    key, value = SERIALIZERS
    if value in draft.names and key not in draft.given:  # in Kafka 0.8, key.serializer.class is serializer.class
        draft.values[key] = draft.values[value]


def interceptors(draft: Draft) -> None:
    """Interceptors are Python classes."""
    for name in draft.values["interceptor.classes"]:
        if not PYTHON_CLASS.fullmatch(name):
            draft.fault(
                "interceptor.classes",
                f"has {name!r}; JVM classes cannot be loaded. Use Python classes as package.module:Class, with the "
                "methods of ProducerInterceptor.",
            )


def idempotence(draft: Draft) -> None:
    """Idempotence needs some settings (Java: ``postProcessAndValidateIdempotenceConfigs``). Warns where Java logs."""
    values = draft.values
    values["acks"] = -1 if values["acks"] == "all" else int(values["acks"])
    if not values["enable.idempotence"]:
        return
    in_flight = values["max.in.flight.requests.per.connection"]
    if in_flight > _MAX_IN_FLIGHT_WITH_IDEMPOTENCE:
        draft.fault(
            "max.in.flight.requests.per.connection",
            f"must be at most {_MAX_IN_FLIGHT_WITH_IDEMPOTENCE} to use the idempotent producer, but is {in_flight}; "
            f"lower it or set {draft.prefix}enable.idempotence=false.",
        )
    conflicts = {
        "acks": (values["acks"] != -1, f"is {values['acks']}", "all"),
        "retries": (values["retries"] == 0, "is 0", "1 or more"),
    }
    for name, (conflicting, state, needed) in conflicts.items():
        if not conflicting:
            continue
        if "enable.idempotence" in draft.given:
            draft.fault(name, f"{state}, but {draft.prefix}enable.idempotence=true needs {needed}; change one of them.")
        else:
            values["enable.idempotence"] = False
            draft.warn(name, f"{state}, so idempotence, on by default, is off: retries may write records twice.")


def texts(draft: Draft) -> None:
    """Texts that requests carry must fit into a string of the protocol."""
    for name in _ON_THE_WIRE:
        value = draft.values[name]
        if value is not None and (fault := text_fault(value)) is not None:
            draft.fault(name, f"{fault}.")


def transactions(draft: Draft) -> None:
    """A transactional producer must be idempotent, and its id must not be empty, as in Java."""
    values, name = draft.values, "transactional.id"
    if values[name] is None:
        return
    if not values[name]:
        draft.fault(name, "must not be empty; leave it out to write without transactions.")
    elif not values["enable.idempotence"]:
        wrong = {
            "enable.idempotence=true": "enable.idempotence" in draft.given,
            "acks=all": values["acks"] != -1,
            "retries=1 or more": values["retries"] == 0,
        }
        needed = [f"{draft.prefix}{setting}" for setting, is_wrong in wrong.items() if is_wrong]
        draft.fault(name, f"needs idempotence: set {', '.join(needed)}.")


def delivery_timeout(draft: Draft) -> None:
    """delivery.timeout.ms must be at least linger.ms + request.timeout.ms; its default is raised to that (Java:
    ``configureDeliveryTimeout``).
    """
    values, name = draft.values, "delivery.timeout.ms"
    least = min(values["linger.ms"] + values["request.timeout.ms"], LARGEST_INT32)
    if values[name] >= least:
        return
    if name in draft.given:
        draft.fault(
            name,
            f"is {values[name]}; it must be at least linger.ms + request.timeout.ms "
            f"({values['linger.ms']} + {values['request.timeout.ms']}).",
        )
    values[name] = least


def memory(draft: Draft) -> None:
    """A given buffer.memory must hold a record, and a batch of a given batch.size. (Java accepts less and fails each
    record.) The default of batch.size shrinks with buffer.memory and max.request.size, and with acks=0.
    """
    values, name = draft.values, "buffer.memory"
    if "batch.size" not in draft.given:
        most = min(values[name] // _BATCHES_IN_MEMORY, values["max.request.size"])
        values["batch.size"] = min(_UNACKNOWLEDGED_BATCH if values["acks"] == 0 else values["batch.size"], most)
    elif name in draft.given and values[name] < values["batch.size"]:
        least = max(values["batch.size"], SMALLEST_RECORD)
        draft.fault(
            name, f"is {values[name]}; it must hold a batch of {draft.prefix}batch.size: at least {least} bytes."
        )
        return
    if name in draft.given and values[name] < SMALLEST_RECORD:
        draft.fault(name, f"is {values[name]}; it must hold a record: at least {SMALLEST_RECORD} bytes.")


def backoffs(draft: Draft) -> None:
    """A backoff is at most its maximum. If only reconnect.backoff.ms is given, it does not grow."""
    values, given = draft.values, draft.given
    if "reconnect.backoff.ms" in given and "reconnect.backoff.max.ms" not in given:
        values["reconnect.backoff.max.ms"] = values["reconnect.backoff.ms"]
    for first, longest in _BACKOFFS.items():
        if values[first] > values[longest]:
            draft.warn(
                first,
                f"({values[first]}) is above {draft.prefix}{longest} ({values[longest]}), "
                f"so it is always {values[longest]}.",
            )
            values[first] = values[longest]


_ON_THE_WIRE = ("client.id", "transactional.id")

SERIALIZERS = ("key.serializer", "value.serializer")

_BACKOFFS: Mapping[str, str] = {
    "retry.backoff.ms": "retry.backoff.max.ms",
    "reconnect.backoff.ms": "reconnect.backoff.max.ms",
    "socket.connection.setup.timeout.ms": "socket.connection.setup.timeout.max.ms",
}


def without_effect(draft: Draft) -> None:
    """Options whose absence could be noticed, unlike that of others without effect."""
    for name in sorted(_WITHOUT_EFFECT & draft.given):
        draft.warn(name, "has no effect here; leave it out.")


RULES: tuple[tuple[frozenset[str], Callable[[Draft], None]], ...] = (
    (frozenset({"bootstrap.servers", "security.protocol"}), servers),
    (
        frozenset(
            {"security.protocol", "sasl.mechanism", "sasl.jaas.config", "sasl.token.provider", *LOGIN_OPTION_NAMES}
        ),
        sasl,
    ),
    (frozenset({"bootstrap.servers", "security.protocol", "sasl.mechanism"}), clear_text_login),
    (frozenset({"security.protocol"}), tls_without_effect),
    (frozenset(STORES), tls_stores),
    (frozenset({"ssl.enabled.protocols", "ssl.protocol"}), tls_versions),
    (frozenset({"ssl.enabled.protocols", "ssl.protocol", "ssl.cipher.suites"}), tls_cipher_suites),
    (frozenset({"partitioner.class"}), partitioner),
    (frozenset({"partitioner.class", "partitioner.rack.aware", "client.rack"}), rack),
    (frozenset(SERIALIZERS), serializers),
    (frozenset({"interceptor.classes"}), interceptors),
    (frozenset(_ON_THE_WIRE), texts),
    (frozenset({"acks", "retries", "enable.idempotence", "max.in.flight.requests.per.connection"}), idempotence),
    (frozenset({"transactional.id", "acks", "retries", "enable.idempotence"}), transactions),
    (frozenset({"delivery.timeout.ms", "linger.ms", "request.timeout.ms"}), delivery_timeout),
    (frozenset({"buffer.memory", "batch.size", "max.request.size", "acks"}), memory),
    (frozenset({*_BACKOFFS.keys(), *_BACKOFFS.values()}), backoffs),
    (_WITHOUT_EFFECT, without_effect),
)
"""Each rule with the options it reads. A rule is skipped if one of them is faulty."""
