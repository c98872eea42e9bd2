"""Spark's options → ``SinkOptions``, or one ``ConfigError`` with all faults, on the driver.

An option with a value of its own is declared as a field of ``SinkOptions``. Several options that make one value are
declared in a table next to the class of this value. Spark passes option names in lower case. Kafka's producer options
begin with ``kafka.``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import combinations
from typing import Any, Final

from spark_kafka_sink.common.config import ProducerConfig, warn_of_options
from spark_kafka_sink.common.config.option import (
    BOOLEAN,
    INT,
    LIST,
    LONG,
    SHORT,
    STRING,
    BadValueError,
    Matching,
    OneOf,
    Option,
    Range,
    Value,
    declared_options,
    did_you_mean,
    needing,
    option,
)
from spark_kafka_sink.common.config.other_clients import CONSUMER_OPTIONS, in_javas_words
from spark_kafka_sink.common.config.producer_config import OPTIONS_BY_NAME, OWN_NAMES, unknown_option
from spark_kafka_sink.common.config.rules import OLD_NAMES, PYTHON_CLASS, import_class
from spark_kafka_sink.common.model import TOPIC_RULE, is_topic_name
from spark_kafka_sink.common.task_figures import count_noun
from spark_kafka_sink.errors import BrokerError, ConfigError, sanitize
from spark_kafka_sink.schemas.formats.format_options import FORMAT_OPTIONS, REGISTRIES, FormatOptions, registry_kind
from spark_kafka_sink.schemas.registry.glue import GLUE_OPTIONS
from spark_kafka_sink.schemas.registry.registry import RegistryOptions
from spark_kafka_sink.schemas.registry.registry_options import REGISTRY_OPTIONS
from spark_kafka_sink.spark.checkpoint import name_of, query_id

KAFKA_PREFIX: Final = "kafka."
LEDGER_TOPIC: Final = "__pykafka_ledger"


class Reason(Enum):
    """The reasons why a row is a dead letter, by their names in ``deadLetterOn``."""

    RECORD_TOO_LARGE = "record-too-large"
    NULL_TOPIC = "null-topic"
    INVALID_TOPIC = "invalid-topic"
    INVALID_PARTITION = "invalid-partition"
    INVALID_TIMESTAMP = "invalid-timestamp"
    INVALID_HEADER = "invalid-header"
    ENCODE = "encode"
    UNKNOWN_TOPIC = "unknown-topic"
    REFUSED_BY_BROKER = "refused-by-broker"


NO_TOPIC: Final = frozenset({Reason.NULL_TOPIC, Reason.INVALID_TOPIC})
"""The reasons of rows that have no topic, and so no schema either."""


def letter_option(reasons: Collection[Reason], reason: Reason) -> str:
    """The change of an option that also makes rows with ``reason`` dead letters. ``reasons``: the reasons that the
    options have now; empty without dead letters."""
    return f"add {reason.value} to deadLetterOn" if reasons else "set deadLetterTopic"


_DEFAULT: Final = frozenset(Reason) - {Reason.UNKNOWN_TOPIC, Reason.REFUSED_BY_BROKER}
_DEFAULT_LIMIT: Final = 1000

DEAD_LETTER_OPTIONS: Final = (
    Option("deadLetterTopic", STRING, None, "medium",
           "Topic for rows that cannot be written (dead letters). No other option may name it. Default: such a row "
           "fails its task."),
    Option("deadLetterOn", LIST, None, "low",
           f"Kinds of dead letters: {', '.join(reason.value for reason in Reason)}. Default: all but unknown-topic, "
           "which excludes the option topic and topicCreation=create, and refused-by-broker, for at-least-once only."),
    Option("deadLetterLimit", STRING, str(_DEFAULT_LIMIT), "low",
           "Number of dead letters that a micro-batch or batch job may have; with more, it fails.",
           Matching(r"(?i:none)|\d{1,18}", "a number of rows, or none")),
    Option("deadLetterHeaders", STRING, "connect", "low",
           "connect: dead letters have the headers __connect.errors.*. none: only the row's own.",
           OneOf(("connect", "none"))),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DeadLetterOptions:
    topic: str
    reasons: frozenset[Reason]
    limit: int | None
    """The most dead letters of a write; None: no limit."""
    connect_headers: bool
    """Whether dead letters have the headers ``__connect.errors.*``."""
    connector: str | None
    """The query's name, if it has one."""

    @classmethod
    def of(cls, own: Mapping[str, Any], connector: str | None, faults: list[str]) -> DeadLetterOptions | None:
        """The parsed options; None without deadLetterTopic. ``own``: the sink's options, by names in lower case."""
        if "deadlettertopic" not in own:
            if misplaced := [option.name for option in DEAD_LETTER_OPTIONS if option.name.lower() in own]:
                faults.append(needing(misplaced, "deadLetterTopic"))
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
        if Reason.REFUSED_BY_BROKER in reasons and own.get("deliveryguarantee") == "exactly-once":
            faults.append(
                "deadLetterOn=refused-by-broker is refused with deliveryGuarantee=exactly-once: a record that a broker "
                "refuses ends its transaction. Leave it out, or write at least once."
            )
        limit = own.get("deadletterlimit") or str(_DEFAULT_LIMIT)
        most = None if limit.lower() == "none" else int(limit)
        return cls(own["deadlettertopic"], reasons, most, own.get("deadletterheaders") != "none", connector)

    def over_limit(self, rows: int) -> str | None:
        """The text of a ``DeadLetterLimitError``, if ``rows`` are too many."""
        if self.limit is None or rows <= self.limit:
            return None
        return (
            f"{count_noun(rows, 'row became a dead letter', 'rows became dead letters')}, more than "
            f"deadLetterLimit={self.limit}. Topic {self.topic} may not have all of them. Correct the rows, raise "
            "deadLetterLimit, or set it to none."
        )


def _reasons(names: Sequence[str], faults: list[str]) -> frozenset[Reason]:
    known = {reason.value: reason for reason in Reason}
    for name in names:
        if name.lower() not in known:
            hint = did_you_mean(name, known)
            faults.append(f"deadLetterOn has {name!r}, which is not one of {', '.join(known)}{hint}")
    if not names:
        faults.append("deadLetterOn is blank; give it a value or leave it out.")
    return frozenset(known[name.lower()] for name in names if name.lower() in known)


_TOPIC_OPTIONS: Final = (
    Option("topicCreation", STRING, "broker", "medium",
           "What happens if a topic does not exist. broker: the brokers decide (auto.create.topics.enable). never: an "
           "error. create: the sink creates it. Not for receiptsTopic and ledgerTopic.",
           OneOf(("broker", "never", "create"))),
    Option("topic.creation.default.partitions", INT, -1, "low",
           "Partitions of a topic that the sink creates. -1: the brokers' num.partitions.",
           Range(1, besides=-1)),
    Option("topic.creation.default.replication.factor", SHORT, -1, "low",
           "Its replication factor. -1: the brokers' default.replication.factor. Other topic settings are written the "
           "same way: topic.creation.default.retention.ms.",
           Range(1, besides=-1)),
)  # fmt: skip
"""``topicCreation`` and the settings of new topics, under the names of Kafka Connect (KIP-158)."""


@dataclass(frozen=True, slots=True)
class TopicCreation:
    """The option ``topicCreation`` if it is never or create. ``create``: whether it is create. ``settings``: the
    settings of a new topic, by Kafka's names."""

    create: bool
    partitions: int = -1
    replication_factor: int = -1
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def policy(self) -> str:
        return "create" if self.create else "never"

    @classmethod
    def of(cls, own: Mapping[str, Any], options: Mapping[str, str], faults: list[str]) -> TopicCreation | None:
        """The parsed options; None for ``broker``. ``own``: the sink's options, and ``options``: all options, by names
        in lower case."""
        create = own.get("topiccreation") == "create"
        named = {name: value for name, value in options.items() if name.startswith(_TOPIC_PREFIX)}
        settings = {name: value for name, value in named.items() if name not in _OWN}
        refused = {name: fault for name in settings if (fault := _refuse_topic_setting(name)) is not None}
        faults += refused.values()
        if not create and (misplaced := sorted(named.keys() - refused.keys())):
            faults.append(needing(misplaced, "topicCreation=create"))
        if own.get("topiccreation") not in ("never", "create"):
            return None
        return cls(
            create,
            own.get("topic.creation.default.partitions") or -1,
            own.get("topic.creation.default.replication.factor") or -1,
            tuple(sorted((name.removeprefix(_TOPIC_DEFAULT), value.strip()) for name, value in settings.items())),
        )


@dataclass(frozen=True, slots=True)
class ExactlyOnce:
    """The options of an exactly-once write.

    ``name``: the name in ``CommitSettings``, None if no option names the write. ``version``: (txnAppId, txnVersion).
    ``query``: the stream's id, None if the driver doesn't find its checkpoint. ``place``: the checkpoint's location, or
    else the query's name, which only one running query of an application has; "" if no option says it.
    """

    name: str | None
    ledger_topic: str
    ledger_start: str
    version: tuple[str, int] | None
    query: str | None = None
    place: str = ""

    @property
    def is_named_by_query(self) -> bool:
        """Whether the name is made from the query's id, so that no other query can have it."""
        return self.query is not None and self.name == name_of("", self.query)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a write, sent to every task."""

    producer: ProducerConfig
    exactly_once: ExactlyOnce | None
    """The options of exactly-once; None: at least once."""
    topic_creation: TopicCreation | None
    """The options of topic creation; None: the brokers decide."""
    formats: FormatOptions | None
    """The formats; None: key and value are raw."""
    dead_letters: DeadLetterOptions | None
    """The options of dead letters; None: a row that cannot be written fails its task."""
    query_name: str | None
    """The name of the streaming query, if it has one."""
    # fmt: off
    topic: str | None = option("topic", STRING, None, "high",
           "Topic for all rows; required if there is no column topic, which it overrides.")
    timestamp_column: str | None = option("timestampColumn", STRING, None, "medium",
           "Column with the records' timestamps: type timestamp, or bigint in epoch ms. null and -1 ms: the current "
           "time.")
    receipts_topic: str | None = option("receiptsTopic", STRING, None, "low",
           "Topic for receipts: a JSON record per task and partition with query, batch, offsets, count, bytes and "
           "times. No other option may name it.")
    driver_check: bool = option("driverCheck", BOOLEAN, True, "medium",
           "Before the tasks of the first write, the driver logs in to a broker, so that wrong credentials, "
           "certificates, hosts or ports are one error before any task. It waits for a broker up to "
           "kafka.max.block.ms.")
    bytes_per_s: int | None = option("maxBytesPerSecondPerTask", LONG, None, "low",
           "Bytes per second that a task may write, before compression, without receipts.", Range(1))
    rows_per_s: int | None = option("maxRowsPerSecondPerTask", LONG, None, "low",
           "Rows per second that a task may write. Both limits may be set.", Range(1))
    log_level: str | None = option("logLevel", STRING, None, "low",
           "Level of the sink's log lines in Python workers and in the driver's Python processes. Default: WARNING, "
           "but INFO for the driver's line about each write; with write_kafka, the calling process's own logging.",
           OneOf(("DEBUG", "INFO", "WARN", "WARNING", "ERROR")))
    # fmt: on

    @property
    def managed_topics(self) -> list[str]:
        """The topic and deadLetterTopic if they are given; empty if topicCreation is left to the brokers."""
        letters = None if self.dead_letters is None else self.dead_letters.topic
        topics = () if self.topic_creation is None else (self.topic, letters)
        return [topic for topic in topics if topic is not None]

    @property
    def own_topics(self) -> list[str]:
        """receiptsTopic and deadLetterTopic if they are given, except for topics that topicCreation covers."""
        letters = None if self.dead_letters is None or self.topic_creation is not None else self.dead_letters.topic
        return [topic for topic in (self.receipts_topic, letters) if topic is not None]

    @classmethod
    def parse(cls, options: Mapping[str, str], faults: list[str] | None = None, is_batch: bool = False) -> SinkOptions:
        """The options of a write. Raises ``ConfigError`` with all faults, of Kafka's options and the sink's own, after
        the ``faults`` that the caller has found. ``is_batch``: whether it is a batch write, whose repeated run must be
        recognized if it is exactly-once.
        """
        faults = [] if faults is None else faults
        own: dict[str, Any] = {}
        kafka: dict[str, object] = {}
        lower_case = {sanitize(name).lower(): value for name, value in options.items()}  # faults name it
        registry = registry_kind(lower_case)
        options, ignored = _split_ignored(lower_case, registry)
        for name, value in options.items():
            if (refused := _refuse_name(name, registry)) is not None:
                faults.append(refused)
            elif name.startswith(KAFKA_PREFIX):
                kafka[name.removeprefix(KAFKA_PREFIX)] = value
            elif name in _OWN:
                own[name] = _parse_own(_OWN[name], value, faults)
        exactly_once = _exactly_once(own, options, faults, is_batch)
        if is_batch and exactly_once is not None and not {"txnappid", "txnversion"} & own.keys():
            faults.append(_UNNUMBERED)
        topic_creation = TopicCreation.of(own, options, faults)
        faults += _topic_faults(own)
        producer = _parse_producer(kafka, own, exactly_once, faults)
        formats = FormatOptions.parse(own, options, faults, producer)
        query_name = options.get("queryname")
        dead_letters = DeadLetterOptions.of(own, query_name, faults)
        if faults or producer is None:
            raise ConfigError(faults)
        warn_of_options(ignored)
        values: dict[str, Any] = {
            field: own.get(each.name.lower(), each.default) for field, each in declared_options(cls).items()
        }
        return cls(producer, exactly_once, topic_creation, formats, dead_letters, query_name, **values)


SINK_OPTIONS: tuple[Option, ...] = (
    *declared_options(SinkOptions).values(),
    Option("deliveryGuarantee", STRING, "at-least-once", "medium",
           "at-least-once: a task that Spark retries writes its rows again. exactly-once: readers with "
           "isolation.level=read_committed see each row once.", OneOf(("at-least-once", "exactly-once"))),
    Option("transactionalIdPrefix", STRING, None, "medium",
           "Prefix of a query's transactional ids, and its name in the ledger: stable across restarts and unique per "
           "query. Default: derived from the query's id in its checkpoint, or from the checkpoint's location if that "
           "is not in the driver's file system; without the option checkpointLocation, from the query's name. Not for "
           "a batch write, where the txnAppId is the prefix."),
    Option("ledgerTopic", STRING, "__pykafka_ledger", "low",
           "Compacted topic that records which batches of exactly-once writes are committed. Created if missing."),
    Option("ledgerStart", STRING, "strict", "low",
           "If the checkpoint and ledgerTopic disagree about batch N (or txnVersion N). strict: fail with an error "
           "that names the value to set. trust-checkpoint:N: write batch N even if ledgerTopic lacks batch N-1. "
           "trust-ledger:N: accept batch N as committed even if its replay has different rows, rows of it are lost, or "
           "a topic was created again since. replaces:QUERY: this query takes the place of the one with this id, to "
           "which transactionalIdPrefix belongs until now.",
           Matching(r"(?i:strict|trust-(checkpoint|ledger):\d{1,19}|replaces:[^\s:]+(:\d{1,9})?)",
                    "strict, trust-checkpoint:N or trust-ledger:N (N: the batch), or replaces:QUERY (its id)")),
    Option("txnAppId", STRING, None, "medium",
           "Name of a batch write (including one in foreachBatch), with which its transactional ids begin. Use a "
           "different one for each topic."),
    Option("txnVersion", LONG, None, "medium",
           "Number of the write, such as the batch id in foreachBatch. Repeating the last committed number writes "
           "nothing, unless it had no rows; a smaller one is refused.", Range(0)),
    *DEAD_LETTER_OPTIONS,
    *_TOPIC_OPTIONS,
    Option("saslTokenProvider", STRING, None, "medium",
           "Source of tokens for kafka.sasl.mechanism=OAUTHBEARER: aws (Amazon MSK with IAM), gcp, azure, or the name "
           "of an entry point of the group spark_kafka_sink.sasl."),
    Option("unknownOptions", STRING, "refuse", "low",
           "Options that neither the sink nor Kafka's producer has (kafka.<name>), such as those of a vendor's client, "
           "are an error, or with warn ignored with one warning.",
           OneOf(("refuse", "warn"))),
    Option("asyncProgressTrackingEnabled", STRING, "false", "low",
           "An option of Spark's queries, which Spark allows to be true only for its own sinks.",
           Matching("(?i:false)", "false, because with true, Spark notes only some micro-batches in the checkpoint, "
                    "and a restarted query writes the rows of several again")),
    *FORMAT_OPTIONS,
)  # fmt: skip
"""The sink's own options, without a prefix."""

_EXACTLY_ONCE_ONLY = ("transactionalidprefix", "ledgertopic", "ledgerstart", "txnappid", "txnversion")
_TOPIC_NAMES = ("topic", "ledgertopic", "receiptstopic", "deadlettertopic")
_UNNUMBERED: Final = (
    "An exactly-once batch write needs txnAppId, a name that this write keeps when it is run again (one for each "
    "topic), and txnVersion, a number that grows from run to run and is the same when a run is repeated: in "
    "foreachBatch the batch id, in a nightly job the date, such as 20250131, and for a one-off any unique name with "
    'version 0, such as .option("txnAppId", "copy-of-orders-1").option("txnVersion", 0).'
)

_TRANSACTION_TIMEOUT_MS = 900_000

_OWN = {option.name.lower(): option for option in SINK_OPTIONS}
_OF_SPARK: Final = (
    "path", "checkpointLocation", "queryName", "includeHeaders", "asyncProgressTrackingCheckpointIntervalMs",
)  # fmt: skip
"""Options that Spark's own writers read and pass on to the sink, and an option that Spark's sink takes without
effect."""

_BARE: Final = {name.lower(): name for name in (
    *(option.name for option in (*SINK_OPTIONS, *REGISTRY_OPTIONS)), *_OF_SPARK,
)}  # fmt: skip
"""The options that are written without ``kafka.``, by their names in lower case."""

_READ_SIDE: Final = {name.lower(): name for name in (
    "assign", "subscribe", "subscribePattern", "startingOffsets", "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy", "startingTimestamp", "endingOffsets", "endingOffsetsByTimestamp",
    "endingTimestamp", "failOnDataLoss", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions",
    "maxRecordsPerPartition", "maxFilesPerTrigger", "maxBytesPerTrigger", "groupIdPrefix",
    *(KAFKA_PREFIX + name for name in CONSUMER_OPTIONS),
)}  # fmt: skip
"""Options of Spark's sources and Kafka's consumer. They are accepted, so that one set of options serves reading and
writing."""

# The texts of Spark's KafkaSourceProvider.
_SERIALIZERS: Final = {
    f"{side}.serializer": (
        f"Kafka option '{side}.serializer' is not supported as {side}s are serialized with ByteArraySerializer."
    )
    for side in ("key", "value")
}
_SUGGESTIONS: Final = (
    *_BARE.values(), *(option.name for option in GLUE_OPTIONS), *(KAFKA_PREFIX + name for name in OPTIONS_BY_NAME),
    *_READ_SIDE.values(),
)  # fmt: skip

_OF_CONNECT: Final = {
    "errors.tolerance": "deadLetterTopic (and deadLetterLimit)",
    "errors.deadletterqueue.topic.name": "deadLetterTopic",
    "errors.deadletterqueue.topic.replication.factor": "topicCreation, or create the topic",
    "errors.deadletterqueue.context.headers.enable": "deadLetterHeaders",
    "errors.log.enable": "deadLetterTopic",
    "errors.log.include.messages": "deadLetterTopic",
    "errors.retry.timeout": "kafka.delivery.timeout.ms",
    "errors.retry.delay.max.ms": "kafka.retry.backoff.max.ms",
}
"""Options of Kafka Connect's dead letters, and what to use instead."""

_REFUSED_OPTIONS: Final = {
    **_SERIALIZERS,
    "key.serializer.class": _SERIALIZERS["key.serializer"],
    "serializer.class": _SERIALIZERS["value.serializer"],
    "transactional.id": "kafka.transactional.id is refused: tasks with the same id would fence each other. Set "
    "deliveryGuarantee instead.",
    "interceptor.classes": "kafka.interceptor.classes is refused: the sink writes columns, which no interceptor sees. "
    "Change the columns before the write.",
    **{name: f"{name} is an option of Kafka Connect. Use {instead}." for name, instead in _OF_CONNECT.items()},
}  # fmt: skip

_OTHERS: Final = f". Options of Kafka's producer are written {KAFKA_PREFIX}<name>."
_TOPIC_PREFIX: Final = "topic.creation."
_TOPIC_DEFAULT: Final = "topic.creation.default."
_AUTO: Final = "allow.auto.create.topics"
_OF_GROUPS: Final = ("include", "exclude")


def _split_ignored(options: Mapping[str, str], registry: type[RegistryOptions]) -> tuple[dict[str, str], list[str]]:
    """The options that are not ignored, and a warning for each kind of ignored ones."""
    reading = sorted(_READ_SIDE[name] for name in options if name in _READ_SIDE)
    unknown: dict[str, str] = {}
    if options.get("unknownoptions", "").strip().lower() == "warn":
        for name in sorted(options.keys() - _READ_SIDE.keys()):
            if (fault := _find_unknown(name, registry)) is not None:
                unknown[name] = fault
    ignored = []
    if reading:
        have = "has" if len(reading) == 1 else "have"
        ignored.append(f"{', '.join(reading)} {have} no effect on a write: only sources read such options.")
    if "path" in options:
        ignored.append("path (the argument of save or start) has no effect: rows go to topics.")
    if unknown:
        ignored.append("\n- ".join(["Ignored because of unknownOptions=warn:", *unknown.values()]))
    taken = {name: value for name, value in options.items() if name not in _READ_SIDE and name not in unknown}
    return taken, ignored


def _refuse_name(name: str, registry: type[RegistryOptions]) -> str | None:
    """The error text for a name that the sink refuses, or that must be spelled differently; None if it is fine. Names
    of the producer and of a registry are left to them.
    """
    plain = name.removeprefix(KAFKA_PREFIX)
    if plain in _REFUSED_OPTIONS:
        return _REFUSED_OPTIONS[plain]
    if plain != name:
        own = _BARE.get(plain)
        return None if own is None else f"{name} is an option of the sink: write {own}, without {KAFKA_PREFIX}"
    is_own = name in _BARE and not any(each.owns(name) for each in REGISTRIES.values())
    if is_own or registry.owns(name) or name.startswith(_TOPIC_PREFIX):
        return None
    return _unknown_name(name)


def _find_unknown(name: str, registry: type[RegistryOptions]) -> str | None:
    """The error text for an unknown option name; None if it is known."""
    plain = name.removeprefix(KAFKA_PREFIX)
    if plain in _REFUSED_OPTIONS:
        return None
    if plain != name and plain not in _BARE:
        return unknown_option(plain, KAFKA_PREFIX)
    return _refuse_name(name, registry)


def _exactly_once(
    own: Mapping[str, Any], options: Mapping[str, str], faults: list[str], is_batch: bool
) -> ExactlyOnce | None:
    """The options of exactly-once. None for at-least-once, for which these options are faults."""
    if own.get("deliveryguarantee") != "exactly-once":
        misplaced = [_OWN[name].name for name in _EXACTLY_ONCE_ONLY if name in own]
        if misplaced:
            faults.append(needing(misplaced, "deliveryGuarantee=exactly-once"))
        return None
    app, number, given = own.get("txnappid"), own.get("txnversion"), own.get("transactionalidprefix")
    if ("txnappid" in own) != ("txnversion" in own):
        faults.append("txnAppId and txnVersion belong together: a batch write needs both, a query neither.")
    if app is not None and given is not None and is_batch:
        faults.append(
            "transactionalIdPrefix and txnAppId exclude each other: leave transactionalIdPrefix out, because the "
            "txnAppId is the prefix of a batch write's transactional ids. If your rights are for another prefix, "
            "begin the txnAppId with that prefix."
        )
    location = options.get("checkpointlocation") if app is None else None
    query = None if location is None else query_id(location)
    name = (given if app is None else app) or _derived_name(options, query)
    ledger_start = own.get("ledgerstart") or "strict"
    if app is not None and ledger_start.lower().startswith("replaces"):
        faults.append("ledgerStart=replaces is for a query: leave it out of a batch write.")
    named = {"transactionalIdPrefix": given, "txnAppId": app} if given or app else {"The query's name": name}
    for named_by, text in named.items():
        if text is not None and not text.isprintable():
            faults.append(f"{named_by} {text!a} must have printable characters only.")
    return ExactlyOnce(
        name=name,
        ledger_topic=own.get("ledgertopic") or LEDGER_TOPIC,
        ledger_start=ledger_start,
        version=None if app is None or number is None else (app, number),
        query=query,
        place=options.get("checkpointlocation") or options.get("queryname", ""),
    )


def _parse_producer(
    kafka: dict[str, object], own: Mapping[str, Any], exactly_once: ExactlyOnce | None, faults: list[str]
) -> ProducerConfig | None:
    """The producer's options, with what the sink's own options set. The user's partitioner is imported, so that a fault
    is found on the driver, but not called.
    """
    if (policy := own.get("topiccreation")) is not None:
        meant = "true" if policy == "broker" else "false"
        given = str(kafka.get(_AUTO, meant)).strip().lower()
        if given in ("true", "false") and given != meant:
            faults.append(
                f"kafka.{_AUTO}={given} and topicCreation={policy} contradict each other: leave out kafka.{_AUTO}."
            )
        kafka = {**kafka, _AUTO: meant}
    if exactly_once is not None:
        # With an id, so that the producer's rules apply; each task sets its own. A name that is not printable has its
        # fault already, which names the options that users know.
        name = exactly_once.name
        transactional_id = name if name and name.isprintable() else "unnamed"
        kafka = {"transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS, **kafka, "transactional.id": transactional_id}
    if (provider := own.get("sasltokenprovider")) is not None:
        kafka = {**kafka, OWN_NAMES["saslTokenProvider"]: provider}
    try:
        producer = ProducerConfig.parse(kafka, KAFKA_PREFIX)
        if PYTHON_CLASS.fullmatch(producer.partitioner_class):
            import_class(f"{KAFKA_PREFIX}partitioner.class", producer.partitioner_class)
    except ConfigError as error:
        id_needs = f"{KAFKA_PREFIX}transactional.id needs"
        faults += (fault.replace(id_needs, "deliveryGuarantee=exactly-once needs", 1) for fault in error.faults)
        return None
    return producer


def _derived_name(options: Mapping[str, str], query: str | None) -> str | None:
    """A name for the write that is stable across runs."""
    if (location := options.get("checkpointlocation")) is not None:
        return name_of(location, query)
    return f"spark-{options['queryname']}" if "queryname" in options else None


def _parse_own(option: Option, value: str, faults: list[str]) -> Value:
    try:
        parsed = option.parse(value)
    except BadValueError as error:
        hint = " Write a date as 20250131." if option.name == "txnVersion" else ""
        faults.append(f"{option.name} {error}{hint}")
        return None
    if parsed == "":
        faults.append(f"{option.name} is blank; give it a value or leave it out.")
    return parsed


def _unknown_name(name: str) -> str:
    """The error text for a name without ``kafka.`` that is not an option of the sink."""
    if name in OPTIONS_BY_NAME:
        return f"{name} is an option of Kafka's producer: write {KAFKA_PREFIX}{name}."
    if name in OLD_NAMES:
        return f"{name} is an old option of Kafka's producer: write {KAFKA_PREFIX}{OLD_NAMES[name]}."
    if (fault := in_javas_words(name, name, KAFKA_PREFIX)) is not None:
        return fault
    if name in CONSUMER_OPTIONS:
        return f"{name} is an option of Kafka's consumer, not of its producer: leave it out here."
    for kind, registry in REGISTRIES.items():
        if registry.owns(name):
            hint = did_you_mean(name, OPTIONS_BY_NAME, KAFKA_PREFIX) or "."
            return needing([name], f"schemaRegistry={kind}").removesuffix(".") + hint
    hint = did_you_mean(name, _SUGGESTIONS) or did_you_mean(name, OPTIONS_BY_NAME, KAFKA_PREFIX)
    return f"{name} is not an option of pykafka{hint or _OTHERS}"


def _topic_faults(own: Mapping[str, Any]) -> Iterator[str]:
    """A fault for each invalid name of a topic, and for each two options that name the same topic. At-least-once must
    not name the ledger either, because it could create the topic without the ledger's settings."""
    topics = {_OWN[name].name: own.get(name) for name in _TOPIC_NAMES}
    for option_name, topic in topics.items():
        if topic and not is_topic_name(topic):
            yield f"{option_name} {topic!a} is not a valid topic name: {TOPIC_RULE}."
    topics["ledgerTopic"] = topics["ledgerTopic"] or LEDGER_TOPIC
    for one, other in combinations(topics, 2):
        if topics[one] is not None and topics[one] == topics[other]:
            yield f"{one} and {other} are both {topics[one]}: each needs a topic of its own."


def _refuse_topic_setting(name: str) -> str | None:
    """Faults for Connect's options that are not the settings of a topic."""
    if not name.startswith(_TOPIC_DEFAULT):
        return f"{name} is refused: the settings {_TOPIC_DEFAULT}<setting> are for every topic that is created."
    setting = name.removeprefix(_TOPIC_DEFAULT)
    if setting in _OF_GROUPS:
        return f"{name} is refused: the settings are for every topic that is created."
    if not setting:
        return f"{name} lacks the name of a topic's setting."
    near = did_you_mean(setting, ("partitions", "replication.factor"), _TOPIC_DEFAULT)
    return f"{name} is not a setting of a topic{near}" if near else None


# Names of one word are left out, because sentences have acks and retries, too. Topics have settings of the same names.
# Not compiled here, which takes 3 ms in each of Spark's Python processes: few have a text to change.
_PRODUCERS_OPTION: Final = (
    rf"(?<![\w.])(?<!topic's )(?:{'|'.join(re.escape(name) for name in OPTIONS_BY_NAME if '.' in name)})(?!\.?\w)"
)


def with_prefix(text: str, *errors: object) -> str:
    """The text with ``kafka.linger.ms`` instead of ``linger.ms``, except in a broker's own words, which one of
    ``errors`` or its causes quotes.
    """
    words = "|".join(re.escape(said) for error in errors for said in _broker_faults(error))
    parts = re.split(f"({words})", text) if words else [text]
    parts[::2] = [re.sub(_PRODUCERS_OPTION, r"kafka.\g<0>", part) for part in parts[::2]]
    return "".join(parts)


def _broker_faults(error: object) -> Iterator[str]:
    while isinstance(error, BaseException):
        if isinstance(error, BrokerError) and error.broker_message:
            yield error.broker_message
        error = error.__cause__
