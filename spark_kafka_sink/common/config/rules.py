"""Rules over several options, the options' old names, and the classes that options name.

``RULES`` has all rules in the order in which they apply to a draft. A class is ``package.module:Class``, or one of
Kafka's Java classes that is built in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from spark_kafka_sink.common.config.option import ConfigBuilder, Rule, rule
from spark_kafka_sink.common.config.providers import class_fault
from spark_kafka_sink.common.config.security_rules import (
    PROTOCOLS,
    clear_text_login,
    sasl,
    tls_cipher_suites,
    tls_stores,
    tls_versions,
    tls_without_effect,
)
from spark_kafka_sink.common.model import LARGEST_INT32, text_fault
from spark_kafka_sink.errors import ConfigError

SMALLEST_RECORD = 85
"""Java's estimate of a record without key, value and headers, bytes. A lower limit would refuse every record."""
_MAX_IN_FLIGHT_WITH_IDEMPOTENCE: Final = 5
_BATCHES_IN_MEMORY: Final = 16
"""The number of batches for which the default of batch.size leaves room in buffer.memory."""
_UNACKNOWLEDGED_BATCH: Final = 16384
"""The default of batch.size for acks=0, which is Kafka's own. Without responses, a topic with a lower limit would drop
everything unnoticed."""
_LARGEST_PORT = 65535
# As Java's pattern, this takes a protocol in front and an IPv6 address without brackets.
_ADDRESS = re.compile(r"(?:(?P<protocol>[0-9A-Za-z\-%._]*)://)?\[?(?P<host>[0-9A-Za-z\-%._:]+?)\]?:(?P<port>[0-9]+)")

_ON_THE_WIRE = ("client.id", "transactional.id")

SERIALIZERS = ("key.serializer", "value.serializer")

_BACKOFFS: Mapping[str, str] = {
    "retry.backoff.ms": "retry.backoff.max.ms",
    "reconnect.backoff.ms": "reconnect.backoff.max.ms",
    "socket.connection.setup.timeout.ms": "socket.connection.setup.timeout.max.ms",
}


class NamedPartitioner(NamedTuple):
    """A partitioner with a name. ``doc``: its sentence in the text of the option. ``rack_aware``: whether
    ``partitioner.rack.aware`` applies to it. ``java``: Java's class below ``org.apache.kafka.clients.producer``, which
    may be given instead.
    """

    doc: str
    rack_aware: bool = False
    java: str = ""


PARTITIONERS: Final[Mapping[str, NamedPartitioner]] = MappingProxyType({
    "default": NamedPartitioner("murmur2 of the key, sticky without a key, as in Kafka", rack_aware=True),
    "crc32": NamedPartitioner("the same with librdkafka's hash (consistent_random)", rack_aware=True),
    "round_robin": NamedPartitioner("the next partition for each row; ignores keys", java="RoundRobinPartitioner"),
    "uniform_sticky": NamedPartitioner("a partition for each batch; ignores keys", java="UniformStickyPartitioner"),
    "sticky": NamedPartitioner("uniform_sticky without a key, murmur2 with one", java="internals.DefaultPartitioner"),
})  # fmt: skip
"""The values of ``partitioner.class`` besides Python classes; ``producer/kafka_partitioners.py`` makes them."""

RACK_AWARE_PARTITIONERS: Final = tuple(name for name, each in PARTITIONERS.items() if each.rack_aware)
PARTITIONERS_TEXT: Final = " ".join((
    *(f"{name} (or Java's {each.java.rpartition('.')[2]}): {each.doc}." if each.java else f"{name}: {each.doc}."
      for name, each in PARTITIONERS.items()),
    "Or a Python class, package.module:Class, that is a Partitioner over columns or a RecordPartitioner.",
    f"Rack aware: {', '.join(RACK_AWARE_PARTITIONERS)}.",
))  # fmt: skip


@rule("bootstrap.servers", "security.protocol")
def servers(draft: ConfigBuilder) -> None:
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

    As in Java, the name of a listener may stand in front (``CLIENTS://``). If it is a protocol, it must be the protocol
    in use.
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


@rule("partitioner.class")
def partitioner(draft: ConfigBuilder) -> None:
    """A partitioner is one of ``PARTITIONERS``, Kafka's class for one of them, or a Python class."""
    name = _of_java_name(draft.values["partitioner.class"] or "default", _JAVA_PARTITIONERS)
    name = name.lower() if name.lower() in PARTITIONERS else name
    if name not in PARTITIONERS and not PYTHON_CLASS.fullmatch(name):
        draft.fault(
            "partitioner.class",
            f"is {name!r}; JVM classes cannot be loaded. Use {', '.join(PARTITIONERS)} (default is Kafka's own), a "
            "Python class as package.module:Class, or give each row its partition in a column named partition.",
        )
    draft.values["partitioner.class"] = name


@rule("partitioner.class", "partitioner.rack.aware", "client.rack")
def rack(draft: ConfigBuilder) -> None:
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


@rule(*SERIALIZERS)
def serializers(draft: ConfigBuilder) -> None:
    """Serializers are Python classes, or Java's names of serializers that exist here, too."""
    for option in SERIALIZERS:
        name = draft.values[option]
        if not name:
            draft.values[option] = None
            continue
        draft.values[option] = name = _of_java_name(name, _JAVA_SERIALIZERS)
        if _REGISTRY_SERIALIZERS.fullmatch(name):
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


@rule("interceptor.classes")
def interceptors(draft: ConfigBuilder) -> None:
    """Interceptors are Python classes."""
    for name in draft.values["interceptor.classes"]:
        if not PYTHON_CLASS.fullmatch(name):
            draft.fault(
                "interceptor.classes",
                f"has {name!r}; JVM classes cannot be loaded. Use Python classes as package.module:Class, with the "
                "methods of ProducerInterceptor.",
            )


@rule("acks", "retries", "enable.idempotence", "max.in.flight.requests.per.connection")
def idempotence(draft: ConfigBuilder) -> None:
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


@rule(*_ON_THE_WIRE)
def texts(draft: ConfigBuilder) -> None:
    """Texts that requests carry must fit into a string of the protocol."""
    for name in _ON_THE_WIRE:
        value = draft.values[name]
        if value is not None and (fault := text_fault(value)) is not None:
            draft.fault(name, f"{fault}.")


@rule("transactional.id", "acks", "retries", "enable.idempotence")
def transactions(draft: ConfigBuilder) -> None:
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


@rule("delivery.timeout.ms", "linger.ms", "request.timeout.ms")
def delivery_timeout(draft: ConfigBuilder) -> None:
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


@rule("buffer.memory", "batch.size", "max.request.size", "acks")
def memory(draft: ConfigBuilder) -> None:
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


@rule(*_BACKOFFS.keys(), *_BACKOFFS.values())
def backoffs(draft: ConfigBuilder) -> None:
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


_WITHOUT_EFFECT = ("buffer.memory.allocation.strategy", "metadata.cluster.check.enable")


@rule()
def without_effect(draft: ConfigBuilder) -> None:
    """Warns of options without effect whose effect users could miss."""
    for name in _WITHOUT_EFFECT:
        if name in draft.given:
            draft.warn(name, "has no effect here; leave it out.")


RULES: tuple[Rule, ...] = (
    servers, sasl, clear_text_login, tls_without_effect, tls_stores, tls_versions, tls_cipher_suites, partitioner, rack,
    serializers, interceptors, texts, idempotence, transactions, delivery_timeout, memory, backoffs, without_effect,
)  # fmt: skip

OLD_NAMES: Mapping[str, str] = MappingProxyType({
    "metadata.broker.list": "bootstrap.servers",
    "request.required.acks": "acks",
    "compression.codec": "compression.type",
    "message.send.max.retries": "retries",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    "serializer.class": "value.serializer",
    "key.serializer.class": "key.serializer",
})  # fmt: skip

"""Kafka 0.8's names of options. ``kafka08/`` translates them; everything else refuses them and names the current
ones."""

PRODUCER_TYPE = "producer.type"


def old_name(name: str, prefix: str) -> str | None:
    """The error text for a name of Kafka 0.8; None for any other name."""
    if name == PRODUCER_TYPE:
        instead = "the producer is always asynchronous here" if prefix else "or use open_producer"
        return f"{prefix}{name} is an option of Kafka 0.8; leave it out, {instead}."
    if name not in OLD_NAMES:
        return None
    instead = "use that" if prefix else "use that, or open_producer"
    return f"{prefix}{name} is the old name of {prefix}{OLD_NAMES[name]}; {instead}."


PYTHON_CLASS = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")

_JAVA_PARTITIONERS = {f"org.apache.kafka.clients.producer.{p.java}": name for name, p in PARTITIONERS.items() if p.java}
_SERIALIZATION = "org.apache.kafka.common.serialization"

_JAVA_SERIALIZERS: Mapping[str, str] = MappingProxyType({
    f"{_SERIALIZATION}.StringSerializer": "spark_kafka_sink.producer.serializers:StringSerializer",
    f"{_SERIALIZATION}.ByteArraySerializer": "spark_kafka_sink.producer.serializers:BytesSerializer",
    f"{_SERIALIZATION}.IntegerSerializer": "spark_kafka_sink.producer.serializers:IntegerSerializer",
    f"{_SERIALIZATION}.LongSerializer": "spark_kafka_sink.producer.serializers:LongSerializer",
    f"{_SERIALIZATION}.DoubleSerializer": "spark_kafka_sink.producer.serializers:DoubleSerializer",
    f"{_SERIALIZATION}.VoidSerializer": "spark_kafka_sink.producer.serializers:NullSerializer",
    "kafka.serializer.StringEncoder": "spark_kafka_sink.producer.serializers:StringSerializer",
    "kafka.serializer.DefaultEncoder": "spark_kafka_sink.producer.serializers:BytesSerializer",
})  # fmt: skip

_REGISTRY_SERIALIZERS = re.compile(
    r"io\.confluent\.kafka\.serializers\..*|((spark_kafka_sink[\w.]*[.:])?(AvroSerializer|ProtobufSerializer))"
    r"|Kafka(Avro|Protobuf|JsonSchema)Serializer"
)
"""Confluent's Java serializers, with or without their package, and their counterparts in Python."""


def _of_java_name(name: str, classes: Mapping[str, str]) -> str:
    """The entry of ``classes`` for a Java name, which may lack its package. Other names are returned as they are."""
    for java_name, ours in classes.items():
        if name in (java_name, java_name.rpartition(".")[2]):
            return ours
    return name


def import_class(option: str, name: str) -> type[Any]:
    """The class ``package.module:Class``, not called. Raises ``ConfigError``, which names ``option``."""
    if name not in _JAVA_SERIALIZERS.values() and (fault := class_fault(name)) is not None:
        raise ConfigError([f"{option} {fault}."])
    module, _, path = name.partition(":")
    try:
        found = getattr(import_module(module), path)
    except (Exception, SystemExit) as error:  # the user's module may raise anything
        raise ConfigError([f"{option} {name} cannot be loaded: {error!r}."]) from error
    if not isinstance(found, type):
        raise ConfigError([f"{option} {name} is not a class but a {type(found).__name__}."])
    return found


def instance(option: str, name: str, methods: tuple[str, ...], base: str) -> Any:
    """An instance of ``package.module:Class``, made without arguments.

    Raises ``ConfigError``, which names ``option``. For a class that lacks one of ``methods``, it says to inherit from
    ``base``.
    """
    cls = import_class(option, name)
    _require_methods(f"{option} {name}", cls, methods, base)
    try:
        return cls()
    except (Exception, SystemExit) as error:  # the user's constructor may raise anything
        raise ConfigError([f"{option} {name} cannot be loaded: {error!r}."]) from error


def check_given(argument: str, given: object, methods: tuple[str, ...], base: str) -> None:
    """Raises ``ConfigError``, as ``instance`` does, unless an argument of a producer is an object with ``methods``."""
    name = given.__name__ if isinstance(given, type) else type(given).__name__
    _require_methods(f"{argument}: {name}", given, methods, base)
    if isinstance(given, type):
        raise ConfigError([f"{argument} is the class {name}: give an instance of it, such as {name}()."])


def _require_methods(what: str, plugin: object, methods: tuple[str, ...], base: str) -> None:
    missing = [method for method in methods if not callable(getattr(plugin, method, None))]
    if missing:
        raise ConfigError([f"{what} has no method {', '.join(missing)}; inherit from {base}."])
