"""Spark's options → ``SinkOptions``, or one ``ConfigError`` with all faults, on the driver.

Spark passes option names in lower case. Kafka's producer options have the prefix ``kafka.``.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

from spark_kafka_sink.common.config import ConfigWarning, ProducerConfig
from spark_kafka_sink.common.config.option import (
    BadValueError,
    Matching,
    OneOf,
    Option,
    OptionKind,
    Range,
    Value,
    did_you_mean,
)
from spark_kafka_sink.common.config.producer_config import CONSUMER_OPTIONS, OPTIONS_BY_NAME, OWN_NAMES, unknown_option
from spark_kafka_sink.common.config.rules import OLD_NAMES, PYTHON_CLASS, imported
from spark_kafka_sink.common.model import TOPIC_RULE, is_topic_name
from spark_kafka_sink.common.removed_names import removed_name
from spark_kafka_sink.errors import BrokerError, ConfigError, shown
from spark_kafka_sink.schemas.formats.format_options import FORMAT_OPTIONS, FormatOptions
from spark_kafka_sink.schemas.registry.registry_options import (
    REGISTRY_OPTIONS,
    is_registry_option,
    unknown_registry_option,
)
from spark_kafka_sink.spark.checkpoint import name_of, query_id
from spark_kafka_sink.spark.dead_letter_options import CONNECT_NAMES, DEAD_LETTER_OPTIONS, DeadLetterOptions

KAFKA_PREFIX: Final = "kafka."

_TOPIC_OPTIONS: Final = (
    Option("topicCreation", OptionKind.STRING, "broker", "medium",
           "What happens if a topic does not exist. broker: the brokers decide (auto.create.topics.enable), as with "
           "Spark's own sink. never: an error before the first row. create: the sink creates it. With never and "
           "create, the driver looks up the topic in the option topic, and tasks look up the topics of their rows. "
           "Each process does so once, and again after kafka.metadata.max.age.ms or a failed task. Existing topics are "
           "not changed. Does not apply to receiptsTopic and ledgerTopic.",
           OneOf(("broker", "never", "create"))),
    Option("topic.creation.default.partitions", OptionKind.INT, -1, "low",
           "Number of partitions of a topic that topicCreation=create creates. -1: the brokers' num.partitions.",
           Range(1, besides=-1)),
    Option("topic.creation.default.replication.factor", OptionKind.SHORT, -1, "low",
           "Replication factor of a topic that topicCreation=create creates. -1: the brokers' "
           "default.replication.factor. Other topic settings are written the same way: "
           "topic.creation.default.cleanup.policy, topic.creation.default.retention.ms.",
           Range(1, besides=-1)),
)  # fmt: skip
"""``topicCreation`` and the settings of new topics, under the names of Kafka Connect (KIP-158)."""

SINK_OPTIONS: tuple[Option, ...] = (
    Option("topic", OptionKind.STRING, None, "high",
           "Topic for all rows; a column topic is then ignored. Required if there is no such column."),
    Option("timestampColumn", OptionKind.STRING, None, "medium",
           "Column with the timestamps of the records: type timestamp, or bigint in epoch milliseconds. null "
           "and -1 ms, Kafka's \"no timestamp\": the current time."),
    Option("driverCheck", OptionKind.BOOLEAN, True, "medium",
           "true: before the tasks start, the driver connects to a broker, once per process and set of options. A "
           "refused login or certificate, or a wrong port, is then an error before any task. A broker that does not "
           "respond, or a file that only executors have, is only a warning. The check takes 5 s at most. Exactly-once "
           "and topicCreation connect on the driver in any case."),
    Option("asyncProgressTrackingEnabled", OptionKind.STRING, "false", "low",
           "An option of Spark's queries, which Spark allows to be true only for its own sinks.",
           Matching("(?i:false)", "false, because with true, Spark notes only some micro-batches in the checkpoint, "
                    "and a restarted query writes the rows of several again")),
    Option("deliveryGuarantee", OptionKind.STRING, "at-least-once", "medium",
           "at-least-once: a task that Spark retries writes its rows again. exactly-once: readers with "
           "isolation.level=read_committed see each row once.", OneOf(("at-least-once", "exactly-once"))),
    Option("transactionalIdPrefix", OptionKind.STRING, None, "medium",
           "Prefix of the transactional ids. Must be stable across restarts and unique per query. Default: derived "
           "from the query's id, which is in its checkpoint, or from the checkpoint's location if that is not in the "
           "driver's file system; without the option checkpointLocation, from the query's name. A batch write "
           "appends its txnAppId."),
    Option("ledgerTopic", OptionKind.STRING, "__pykafka_ledger", "low",
           "Compacted topic that records which batches of exactly-once writes are committed. Created if missing."),
    Option("ledgerStart", OptionKind.STRING, "strict", "low",
           "What to do if the checkpoint and ledgerTopic disagree about batch N (or txnVersion N). strict: fail "
           "with an error that names the value to set. trust-checkpoint:N: write batch N even if ledgerTopic lacks "
           "batch N-1 (the query was at-least-once, or the topic was lost). trust-ledger:N: accept batch N as "
           "committed even if its replay has different rows, rows of it are lost, or a topic was created again since.",
           Matching(r"(?i:strict|trust-(checkpoint|ledger):\d{1,18})",
                    "strict, trust-checkpoint:N or trust-ledger:N (N: the batch)")),
    Option("txnAppId", OptionKind.STRING, None, "medium",
           "Together with txnVersion, makes a batch write idempotent, also in foreachBatch (the names are those of "
           "Delta Lake). Use a different txnAppId for each topic."),
    Option("txnVersion", OptionKind.LONG, None, "medium",
           "Number of this write for its txnAppId, such as the batch id in foreachBatch. Repeating the last "
           "committed number writes nothing, unless it had no rows; a smaller one is refused.", Range(0)),
    Option("saslTokenProvider", OptionKind.STRING, None, "medium",
           "Source of the tokens for kafka.sasl.mechanism=OAUTHBEARER: aws (Amazon MSK with IAM), gcp, azure, or "
           "the name of an entry point of the group spark_kafka_sink.sasl."),
    Option("receiptsTopic", OptionKind.STRING, None, "low",
           "Topic for receipts: a JSON record per task and partition with query, batch, offsets, count, bytes and "
           "times. With exactly-once, they are written in the same transaction as the rows. No other option may name "
           "the same topic."),
    *DEAD_LETTER_OPTIONS,
    *_TOPIC_OPTIONS,
    Option("maxBytesPerSecondPerTask", OptionKind.LONG, None, "low",
           "Bytes per second that a task may write, counted as records before compression, without receipts. A task "
           "waits before it appends rows, so the wait does not count towards kafka.delivery.timeout.ms. To limit all "
           "tasks together, use the brokers' quotas.", Range(1)),
    Option("maxRowsPerSecondPerTask", OptionKind.LONG, None, "low",
           "Rows per second that a task may write. May be set together with maxBytesPerSecondPerTask.", Range(1)),
    Option("logLevel", OptionKind.STRING, None, "low",
           "Level of the sink's log lines in Python workers and in the driver's Python processes. They go to "
           "stderr, or to the handlers of the process, as with spark.sql.pyspark.worker.logging.enabled. Default: "
           "WARNING, but INFO for the driver's line about each write. In the process that calls write_kafka, the "
           "default is the process's own logging.",
           OneOf(("DEBUG", "INFO", "WARN", "WARNING", "ERROR"))),
    Option("unknownOptions", OptionKind.STRING, "refuse", "low",
           "What happens with options that neither the sink nor Kafka's producer has (kafka.<name>), such as those of "
           "a vendor's client. refuse: they are an error. warn: they are ignored with one warning, which also "
           "suggests names.",
           OneOf(("refuse", "warn"))),
    *FORMAT_OPTIONS,
)  # fmt: skip
"""The sink's own options, without a prefix."""

_EXACTLY_ONCE_ONLY = ("transactionalidprefix", "ledgertopic", "ledgerstart", "txnappid", "txnversion")
_TOPIC_NAMES = ("topic", "ledgertopic", "receiptstopic", "deadlettertopic")
LEDGER_TOPIC = "__pykafka_ledger"
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
"""Options that Spark's own writers read and pass on to the sink, and one that its own sink takes without effect."""

_BARE: Final = {name.lower(): name for name in (
    *(option.name for option in (*SINK_OPTIONS, *REGISTRY_OPTIONS)), *_OF_SPARK,
)}  # fmt: skip
"""Options that are written without ``kafka.``, by their names in lower case."""

_READ_SIDE: Final = {name.lower(): name for name in (
    "assign", "subscribe", "subscribePattern", "startingOffsets", "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy", "startingTimestamp", "endingOffsets", "endingOffsetsByTimestamp",
    "endingTimestamp", "failOnDataLoss", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions",
    "maxRecordsPerPartition", "maxFilesPerTrigger", "maxBytesPerTrigger", "groupIdPrefix",
    *(KAFKA_PREFIX + name for name in CONSUMER_OPTIONS),
)}  # fmt: skip
"""Options of Spark's sources and Kafka's consumer: accepted, so one set of options serves reading and writing."""

# The texts of Spark's KafkaSourceProvider.
_SERIALIZERS: Final = {
    f"{side}.serializer": (
        f"Kafka option '{side}.serializer' is not supported as {side}s are serialized with ByteArraySerializer."
    )
    for side in ("key", "value")
}
_SUGGESTIONS: Final = (*_BARE.values(), *(KAFKA_PREFIX + name for name in OPTIONS_BY_NAME), *_READ_SIDE.values())

_REFUSED_OPTIONS: Final = {
    **_SERIALIZERS,
    "key.serializer.class": _SERIALIZERS["key.serializer"],
    "serializer.class": _SERIALIZERS["value.serializer"],
    "transactional.id": "kafka.transactional.id is refused: tasks with the same id would fence each other. Set "
    "deliveryGuarantee instead.",
    "interceptor.classes": "kafka.interceptor.classes is refused: the sink writes columns, which no interceptor sees. "
    "Change the columns before the write.",
    **CONNECT_NAMES,
}  # fmt: skip

_OTHERS: Final = f". Options of Kafka's producer are written {KAFKA_PREFIX}<name>."
_TOPIC_PREFIX: Final = "topic.creation."
_TOPIC_DEFAULT: Final = "topic.creation.default."
_AUTO: Final = "allow.auto.create.topics"
_OF_GROUPS: Final = ("include", "exclude")


@dataclass(frozen=True, slots=True)
class TopicCreation:
    """``topicCreation`` never or create (``create``). ``settings``: of a new topic, by Kafka's names."""

    create: bool
    partitions: int = -1
    replication_factor: int = -1
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def policy(self) -> str:
        return "create" if self.create else "never"

    @classmethod
    def of(cls, own: Mapping[str, Any], settings: Mapping[str, str], faults: list[str]) -> TopicCreation | None:
        """None for ``broker``. ``own``: the values of ``_TOPIC_OPTIONS`` that are given, by names in lower case.
        ``settings``: those of ``_topic_settings``."""
        create = own.get("topiccreation") == "create"
        given = [name for name in own if name.startswith(_TOPIC_PREFIX)]
        for name in settings:
            if (fault := _topic_setting_fault(name)) is not None:
                faults.append(fault)
            else:
                given.append(name)
        if given and not create:
            faults.append(f"{', '.join(sorted(given))}: only with topicCreation=create.")
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

    ``name`` and ``prefix``: as in ``CommitSettings``, None if no option names the write. ``version``: (txnAppId,
    txnVersion). ``query``: the id of the stream that is named by it, else None.
    """

    name: str | None
    prefix: str | None
    ledger_topic: str
    ledger_start: str
    version: tuple[str, int] | None
    query: str | None = None


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a write, sent to every task.

    ``topic`` None: each row names its topic. ``timestamp_column`` None: the time of writing. ``topic_creation`` None:
    the brokers decide. ``bytes_per_s``, ``rows_per_s``: of each task, None for no limit. ``formats`` None: key and
    value are raw. ``dead_letters`` None: a row that cannot be written fails its task. ``query_name``: of a streaming
    query that has one.
    """

    producer: ProducerConfig
    topic: str | None = None
    timestamp_column: str | None = None
    exactly_once: ExactlyOnce | None = None
    receipts_topic: str | None = None
    topic_creation: TopicCreation | None = None
    bytes_per_s: int | None = None
    rows_per_s: int | None = None
    log_level: str | None = None
    formats: FormatOptions | None = None
    dead_letters: DeadLetterOptions | None = None
    driver_check: bool = True
    query_name: str | None = None

    @property
    def plans_topics(self) -> bool:
        """Whether planning looks up topics, because of topicCreation."""
        letters = None if self.dead_letters is None else self.dead_letters.topic
        named = (self.topic, self.receipts_topic, letters)
        return self.topic_creation is not None and any(name is not None for name in named)

    @classmethod
    def parse(cls, options: Mapping[str, str], faults: list[str] | None = None, of_batch: bool = False) -> SinkOptions:
        """Raises ``ConfigError`` with all faults, of Kafka's options and the sink's own, after ``faults`` that the
        caller has found. ``of_batch``: a batch write, whose repeated run must be recognized if it is exactly-once.
        """
        faults = [] if faults is None else faults
        options = {shown(name): value for name, value in options.items()}  # faults name it
        own: dict[str, Any] = {}
        kafka: dict[str, object] = {}
        options, ignored = _taken(options)
        settings = _topic_settings(options)
        for key, value in options.items():
            name = key.lower()
            if (refused := _unsupported_option(name) or _misnamed(name)) is not None:
                faults.append(refused)
            elif name.startswith(KAFKA_PREFIX):
                kafka[name.removeprefix(KAFKA_PREFIX)] = value
            elif name in _OWN:
                own[name] = _own_value(_OWN[name], value, faults)
            elif not is_registry_option(name) and (unknown := _unknown(name)) is not None:
                faults.append(unknown)
        exactly_once = _exactly_once(own, options, faults)
        if of_batch and exactly_once is not None and not {"txnappid", "txnversion"} & own.keys():
            faults.append(_UNNUMBERED)
        topic_creation = TopicCreation.of(own, settings, faults)
        faults += filter(None, (_topic_name_fault(_OWN[name].name, own.get(name)) for name in _TOPIC_NAMES))
        faults += _shared_topics(own)
        kafka = _without_auto_creation(kafka, own.get("topiccreation"), faults)
        kafka = _with_token_provider(_transactional(kafka, exactly_once), own)
        producer = None
        try:
            producer = ProducerConfig.parse(kafka, KAFKA_PREFIX)
            _check_partitioner(producer)
        except ConfigError as error:
            faults += (_in_sparks_words(fault) for fault in error.faults)
        formats = FormatOptions.parse(own, options, faults, producer)
        query_name = _given(options).get("queryname")
        dead_letters = DeadLetterOptions.of(own, query_name, faults)
        if faults or producer is None:
            raise ConfigError(faults)
        for text in ignored:
            warnings.warn(text, ConfigWarning, stacklevel=2)
        return cls(
            producer=producer,
            topic=own.get("topic"),
            timestamp_column=own.get("timestampcolumn"),
            exactly_once=exactly_once,
            receipts_topic=own.get("receiptstopic"),
            topic_creation=topic_creation,
            bytes_per_s=own.get("maxbytespersecondpertask"),
            rows_per_s=own.get("maxrowspersecondpertask"),
            log_level=own.get("loglevel"),
            formats=formats,
            dead_letters=dead_letters,
            driver_check=own.get("drivercheck") is not False,
            query_name=query_name,
        )


def _taken(options: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The options without those that are ignored, and a warning for each kind of these."""
    names = {key: key.lower() for key in options}
    reading = {key: spelt for key, name in names.items() if (spelt := _READ_SIDE.get(name)) is not None}
    lenient = _given(options).get("unknownoptions", "").strip().lower() == "warn"
    unknown = {
        key: fault
        for key, name in names.items()
        if lenient
        and key not in reading
        and _unsupported_option(name) is None
        and (fault := _unknown(name)) is not None
    }
    ignored = []
    if reading:
        shown = ", ".join(sorted(reading.values()))
        ignored.append(f"{shown}: no effect on write; they belong to Spark's sources.")
    if "path" in names.values():
        ignored.append("path (the argument of save or start) has no effect: rows go to topics.")
    if unknown:
        ignored.append(
            "\n".join(["Ignored, as unknownOptions is warn:", *(f"- {fault}" for fault in unknown.values())])
        )
    return {key: value for key, value in options.items() if key not in reading and key not in unknown}, ignored


def _misnamed(name: str) -> str | None:
    """The fault of an option after ``kafka.`` that is written without it."""
    plain = _BARE.get(name.removeprefix(KAFKA_PREFIX))
    return f"{name}: write {plain}, without {KAFKA_PREFIX}" if name.startswith(KAFKA_PREFIX) and plain else None


def _unknown(name: str) -> str | None:
    """The fault of a name in lower case that no table has; None if one has it."""
    if name.startswith(KAFKA_PREFIX):
        return _misnamed(name) or unknown_option(name.removeprefix(KAFKA_PREFIX), KAFKA_PREFIX)
    if is_registry_option(name):
        return unknown_registry_option(name)
    return None if name in _BARE or _topic_settings({name: ""}) else _unknown_name(name)


def _check_partitioner(producer: ProducerConfig) -> None:
    """Raises ``ConfigError`` for a Python class that cannot be imported on the driver; does not call it."""
    if PYTHON_CLASS.fullmatch(producer.partitioner_class):
        imported(f"{KAFKA_PREFIX}partitioner.class", producer.partitioner_class)


def _exactly_once(own: Mapping[str, Any], options: Mapping[str, str], faults: list[str]) -> ExactlyOnce | None:
    """None for at-least-once, where the options of exactly-once are faults."""
    if own.get("deliveryguarantee") != "exactly-once":
        misplaced = [_OWN[name].name for name in _EXACTLY_ONCE_ONLY if name in own]
        if misplaced:
            faults.append(f"{', '.join(misplaced)}: only with deliveryGuarantee=exactly-once.")
        return None
    app, number, given = own.get("txnappid"), own.get("txnversion"), own.get("transactionalidprefix")
    if ("txnappid" in own) != ("txnversion" in own):
        faults.append("txnAppId and txnVersion belong together: a batch write needs both, a query neither.")
    name, query = (f"txn-{app}" if app is not None else given), None
    if not name:
        name, query = _derived_name(options)
    prefix = f"{given}-{app}" if app is not None and given is not None else name
    named = {"transactionalIdPrefix": given, "txnAppId": app} if given or app else {"The query's name": name}
    for option, text in named.items():
        if text is not None and not text.isprintable():
            faults.append(f"{option} {text!a} must have printable characters only.")
    return ExactlyOnce(
        name=name,
        prefix=prefix,
        ledger_topic=own.get("ledgertopic") or LEDGER_TOPIC,
        ledger_start=(own.get("ledgerstart") or "strict").lower(),
        version=None if app is None or number is None else (app, number),
        query=query,
    )


def _transactional(kafka: dict[str, object], exactly_once: ExactlyOnce | None) -> dict[str, object]:
    """The options with a transactional.id, so that the producer's rules apply; each task sets its own id."""
    if exactly_once is None:
        return kafka
    prefix = exactly_once.prefix
    # A prefix that is not printable has its fault already, which names the options that users know.
    transactional = {"transactional.id": prefix if prefix and prefix.isprintable() else "unnamed"}
    return {"transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS, **kafka, **transactional}


def _in_sparks_words(fault: str) -> str:
    """A fault of the id that ``_transactional`` has set names the option that asked for it."""
    id_needs = f"{KAFKA_PREFIX}transactional.id needs"
    return fault.replace(id_needs, "deliveryGuarantee=exactly-once needs") if fault.startswith(id_needs) else fault


def _with_token_provider(kafka: dict[str, object], own: Mapping[str, Any]) -> dict[str, object]:
    provider = own.get("sasltokenprovider")
    return kafka if provider is None else {**kafka, OWN_NAMES["saslTokenProvider"]: provider}


def _derived_name(options: Mapping[str, str]) -> tuple[str | None, str | None]:
    """A name that is stable across runs, and the query's id if the checkpoint has it."""
    given = _given(options)
    location = given.get("checkpointlocation")
    if location is not None:
        query = query_id(location)
        return name_of(location, query), query
    return (f"spark-{given['queryname']}" if "queryname" in given else None), None


def _given(options: Mapping[str, str]) -> dict[str, str]:
    """The options by their names in lower case."""
    return {key.lower(): value for key, value in options.items()}


def _own_value(option: Option, value: str, faults: list[str]) -> Value:
    try:
        parsed = option.parse(value)
    except BadValueError as error:
        hint = " Write a date as 20250131." if option.name == "txnVersion" else ""
        faults.append(f"{option.name} {error}{hint}")
        return None
    if parsed == "":
        faults.append(f"{option.name} is blank; give it a value or leave it out.")
    return parsed


def _unsupported_option(name: str) -> str | None:
    """The fault of a producer option that the sink does not take, with or without ``kafka.``."""
    return _REFUSED_OPTIONS.get(name.removeprefix(KAFKA_PREFIX))


def _unknown_name(name: str) -> str:
    """The fault of a name without ``kafka.`` that is not an option of the sink."""
    if name in OPTIONS_BY_NAME:
        return f"{name} is an option of Kafka's producer; write it {KAFKA_PREFIX}{name}."
    if name in OLD_NAMES:
        return f"{name} is an old option of Kafka's producer; write it {KAFKA_PREFIX}{OLD_NAMES[name]}."
    if (fault := removed_name(name, name, KAFKA_PREFIX)) is not None:
        return fault
    if name in CONSUMER_OPTIONS:
        return f"{name} is an option of Kafka's consumer, not of its producer; leave it out here."
    hint = did_you_mean(name, _SUGGESTIONS) or did_you_mean(name, OPTIONS_BY_NAME, KAFKA_PREFIX)
    return f"{name} is not an option of pykafka{hint or _OTHERS}"


def _topic_settings(options: Mapping[str, str]) -> dict[str, str]:
    """The options, by names in lower case, that begin with ``topic.creation.`` and are not in ``_TOPIC_OPTIONS``."""
    named = {option.name.lower() for option in _TOPIC_OPTIONS}
    return {
        name: value for name, value in _given(options).items() if name.startswith(_TOPIC_PREFIX) and name not in named
    }


def _without_auto_creation(kafka: dict[str, object], policy: str | None, faults: list[str]) -> dict[str, object]:
    """The producer's options with the allow.auto.create.topics that ``topicCreation`` means; ``policy`` None: not
    given."""
    if policy is None:
        return kafka
    meant = "true" if policy == "broker" else "false"
    given = str(kafka.get(_AUTO, meant)).strip().lower()
    if given in ("true", "false") and given != meant:
        faults.append(
            f"kafka.{_AUTO}={given} and topicCreation={policy} contradict each other: leave out kafka.{_AUTO}."
        )
    return {**kafka, _AUTO: meant}


def _shared_topics(own: Mapping[str, Any]) -> Iterator[str]:
    """A fault for each two options that name the same topic. At-least-once must not name the ledger either: it could be
    created without the ledger's settings."""
    topics = {_OWN[name].name: own.get(name) for name in _TOPIC_NAMES}
    topics["ledgerTopic"] = topics["ledgerTopic"] or LEDGER_TOPIC
    for one, other in combinations(topics, 2):
        if topics[one] is not None and topics[one] == topics[other]:
            yield f"{one} and {other} are both {topics[one]}: each needs a topic of its own."


def _topic_name_fault(option: str, name: str | None) -> str | None:
    """The fault of a topic's name; None for a valid name, or without a name."""
    if not name or is_topic_name(name):
        return None
    return f"{option} {name!a} is not a valid topic name: {TOPIC_RULE}."


def _topic_setting_fault(name: str) -> str | None:
    """Connect's options that are not the settings of a topic."""
    if not name.startswith(_TOPIC_DEFAULT):
        return f"{name} is refused: there is one group of settings, {_TOPIC_DEFAULT}<setting>, for every topic."
    setting = name.removeprefix(_TOPIC_DEFAULT)
    if setting in _OF_GROUPS:
        return f"{name} is refused: the settings are for every topic that is created."
    if not setting:
        return f"{name} lacks the name of a topic's setting."
    near = did_you_mean(setting, ("partitions", "replication.factor"), _TOPIC_DEFAULT)
    return f"{name} is not a setting of a topic{near}" if near else None


# Names of one word are left out, because sentences have acks and retries, too. Topics have settings of the same names.
_PRODUCERS_OPTION: Final = re.compile(
    rf"(?<![\w.])(?<!topic's )(?:{'|'.join(re.escape(name) for name in OPTIONS_BY_NAME if '.' in name)})(?!\.?\w)"
)


def with_prefix(text: str, *errors: object) -> str:
    """``linger.ms`` becomes ``kafka.linger.ms``, except in the words of a broker that one of ``errors`` or its causes
    has.
    """
    words = "|".join(re.escape(said) for error in errors for said in _said_by_brokers(error))
    parts = re.split(f"({words})", text) if words else [text]
    parts[::2] = [_PRODUCERS_OPTION.sub(r"kafka.\g<0>", part) for part in parts[::2]]
    return "".join(parts)


def _said_by_brokers(error: object) -> Iterator[str]:
    while isinstance(error, BaseException):
        if isinstance(error, BrokerError) and error.said:
            yield error.said
        error = error.__cause__
