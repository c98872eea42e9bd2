"""Spark's options → ``SinkOptions``, or one ``ConfigError`` with all faults, on the driver.

Spark passes option names in lower case. Kafka's producer options have the prefix ``kafka.``.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from spark_kafka_sink.config import ConfigWarning, ProducerConfig
from spark_kafka_sink.config.old_names import OLD_NAMES
from spark_kafka_sink.config.option import BadValueError, Kind, Matching, OneOf, Option, Range, Value, did_you_mean
from spark_kafka_sink.config.table import OPTIONS_BY_NAME, OWN_NAMES
from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.formats.format_options import FORMAT_OPTIONS, FormatOptions
from spark_kafka_sink.schema_registry.registry_options import REGISTRY_OPTIONS, is_registry_option
from spark_kafka_sink.spark.dead_letter_options import CONNECT_NAMES, DEAD_LETTER_OPTIONS, DeadLetters
from spark_kafka_sink.spark.topic_options import (
    TOPIC_OPTIONS,
    TopicCreation,
    topic_settings,
    without_auto_creation,
)

KAFKA_PREFIX = "kafka."

SINK_OPTIONS: tuple[Option, ...] = (
    Option("topic", Kind.STRING, None, "high",
           "Topic of every row; a column topic is then ignored. Required without that column."),
    Option("timestampColumn", Kind.STRING, None, "medium",
           "Column with the records' timestamps: timestamp, or bigint in epoch ms; null: the time of writing."),
    Option("includeHeaders", Kind.BOOLEAN, False, "low",
           "Accepted for compatibility with Spark's Kafka source, no effect: a column headers is always written."),
    Option("deliveryGuarantee", Kind.STRING, "at-least-once", "medium",
           "at-least-once: a task that Spark retries writes its rows again. exactly-once: readers with "
           "isolation.level=read_committed see each row once.", OneOf(("at-least-once", "exactly-once"))),
    Option("transactionalIdPrefix", Kind.STRING, None, "medium",
           "Prefix of the tasks' transactional ids. Must be stable across restarts and unique per query. Default: "
           "derived from the checkpoint location, or else the query name. A batch write appends its txnAppId, or a "
           "new id if it has none."),
    Option("commitLogTopic", Kind.STRING, "__pykafka_commits", "low",
           "Compacted topic that stores the decisions of exactly-once writes; created if missing."),
    Option("ledgerStart", Kind.STRING, "strict", "low",
           "If checkpoint and commitLogTopic disagree on batch N (or txnVersion N): strict: fail, and name the value "
           "to set. trust-checkpoint:N: write it even if the commitLogTopic lacks batch N-1 (the query was "
           "at-least-once, or the topic was lost). trust-ledger:N: accept it as committed even if its replay has "
           "different rows.", Matching(r"strict|trust-(checkpoint|ledger):\d{1,18}",
           "strict, trust-checkpoint:N or trust-ledger:N (N: the batch)")),
    Option("txnAppId", Kind.STRING, None, "medium",
           "With txnVersion: makes a batch write idempotent, also in foreachBatch (names as in Delta Lake). Use a "
           "different one per topic."),
    Option("txnVersion", Kind.LONG, None, "medium",
           "Number of this write for its txnAppId. Repeating the last committed one writes nothing; a smaller one is "
           "refused.", Range(0)),
    Option("saslTokenProvider", Kind.STRING, None, "medium",
           "Whose tokens kafka.sasl.mechanism=OAUTHBEARER logs in with: aws (Amazon MSK with IAM), gcp, azure, or the "
           "name of an entry point of the group spark_kafka_sink.sasl."),
    Option("receiptsTopic", Kind.STRING, None, "low",
           "Topic for receipts, a JSON record per task and partition with query, batch, offsets, count, bytes and "
           "times; with exactly-once in the same transaction as the rows."),
    Option("receiptsPath", Kind.STRING, None, "low",
           "Directory for receipts (a path, or a URI such as s3://): a file of JSON lines per batch."),
    *DEAD_LETTER_OPTIONS,
    *TOPIC_OPTIONS,
    Option("maxBytesPerSecondPerTask", Kind.LONG, None, "low",
           "Most bytes that a task writes in a second, as records before compression; receipts do not count. A task "
           "waits between its appends, so that no row waits for delivery.timeout.ms. Brokers' quotas limit all tasks "
           "together.", Range(1)),
    Option("maxRowsPerSecondPerTask", Kind.LONG, None, "low",
           "Most rows that a task writes in a second; also beside maxBytesPerSecondPerTask.", Range(1)),
    Option("logLevel", Kind.STRING, None, "low",
           "Level of the sink's log lines in workers and in the driver's Python processes. They go to stderr, or to "
           "the handlers of the process, as with spark.sql.pyspark.worker.logging.enabled. Default: INFO for the "
           "driver's line of each write, else WARNING.",
           OneOf(("DEBUG", "INFO", "WARN", "WARNING", "ERROR"), ignore_case=True)),
    *FORMAT_OPTIONS,
)  # fmt: skip
"""The sink's own options, without a prefix."""

ADDED_BY_SPARK = frozenset({"path", "checkpointlocation", "queryname"})
"""Options that Spark adds to a write."""

READ_SIDE = frozenset({
    "assign", "subscribe", "subscribePattern", "startingOffsets", "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy", "startingTimestamp", "endingOffsets", "endingOffsetsByTimestamp",
    "endingTimestamp", "failOnDataLoss", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions",
    "maxRecordsPerPartition", "groupIdPrefix", "kafka.group.id",
})  # fmt: skip
"""Options of Spark's Kafka source, accepted so that one set of options serves reading and writing."""

_EXACTLY_ONCE_ONLY = ("transactionalidprefix", "commitlogtopic", "ledgerstart", "txnappid", "txnversion")
LEDGER_TOPIC = "__pykafka_commits"
_TRANSACTION_TIMEOUT_MS = 900_000

_OWN = {option.name.lower(): option for option in SINK_OPTIONS}
_READ_SIDE = {name.lower(): name for name in READ_SIDE}
_SUGGESTIONS = (
    *(option.name for option in (*SINK_OPTIONS, *REGISTRY_OPTIONS)),
    *(KAFKA_PREFIX + name for name in OPTIONS_BY_NAME),
)

# The texts of Spark's KafkaSourceProvider.
_SERIALIZERS = {
    f"kafka.{side}.serializer": (
        f"Kafka option '{side}.serializer' is not supported as {side}s are serialized with ByteArraySerializer."
    )
    for side in ("key", "value")
}
_FENCING = (
    "kafka.transactional.id is refused: tasks with the same id would fence each other. Set deliveryGuarantee instead."
)
_INTERCEPTORS = (
    "kafka.interceptor.classes is refused: the sink writes columns, which no interceptor sees. Change the columns "
    "before the write."
)
_REFUSED = {
    **_SERIALIZERS,
    "kafka.key.serializer.class": _SERIALIZERS["kafka.key.serializer"],
    "kafka.serializer.class": _SERIALIZERS["kafka.value.serializer"],
    "kafka.transactional.id": _FENCING,
    "kafka.interceptor.classes": _INTERCEPTORS,
    **CONNECT_NAMES,
}


@dataclass(frozen=True, slots=True)
class ExactlyOnce:
    """The options of an exactly-once write.

    ``name`` and ``prefix``: as in ``CommitSettings``, None if no option names the write. ``version``: (txnAppId,
    txnVersion). ``never_replayed``: a batch job without a version; no later run has its name.
    """

    name: str | None
    prefix: str | None
    ledger_topic: str
    ledger_start: str
    version: tuple[str, int] | None
    never_replayed: bool = False


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a write, sent to every task.

    ``topic`` None: each row names its topic. ``timestamp_column`` None: the time of writing. ``topic_creation`` None:
    the brokers decide. ``bytes_per_s``, ``rows_per_s``: of each task, None for no limit. ``formats`` None: key and
    value are raw. ``dead_letters`` None: a row that cannot be written fails its task.
    """

    producer: ProducerConfig
    topic: str | None = None
    timestamp_column: str | None = None
    exactly_once: ExactlyOnce | None = None
    receipts_topic: str | None = None
    receipts_path: str | None = None
    topic_creation: TopicCreation | None = None
    bytes_per_s: int | None = None
    rows_per_s: int | None = None
    log_level: str | None = None
    formats: FormatOptions | None = None
    dead_letters: DeadLetters | None = None

    @property
    def wants_receipts(self) -> bool:
        return self.receipts_topic is not None or self.receipts_path is not None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SinkOptions:
        """Raises ``ConfigError`` with all faults, of Kafka's options and the sink's own."""
        faults: list[str] = []
        own: dict[str, Any] = {}
        kafka: dict[str, object] = {}
        read_side: list[str] = []
        settings = topic_settings(options)
        for key, value in options.items():
            name = key.lower()
            if name in _READ_SIDE:
                read_side.append(_READ_SIDE[name])
            elif name in _REFUSED:
                faults.append(_REFUSED[name])
            elif name.startswith(KAFKA_PREFIX):
                kafka[name.removeprefix(KAFKA_PREFIX)] = value
            elif name in _OWN:
                own[name] = _own_value(_OWN[name], value, faults)
            elif not (name in ADDED_BY_SPARK or name in settings or is_registry_option(name)):
                faults.append(_unknown(name))
        exactly_once = _exactly_once(own, options, faults)
        topic_creation = TopicCreation.of(own, settings, faults)
        kafka = without_auto_creation(kafka, own.get("topiccreation"), faults)
        kafka = _with_token_provider(_transactional(kafka, exactly_once), own)
        producer = None
        try:
            producer = ProducerConfig.parse(kafka, KAFKA_PREFIX)
        except ConfigError as error:
            faults += error.faults
        formats = FormatOptions.parse(own, options, faults, producer)
        dead_letters = DeadLetters.of(own, _given(options).get("queryname"), faults)
        if faults or producer is None:
            raise ConfigError(faults)
        if read_side:
            text = f"{', '.join(sorted(read_side))}: no effect on write; they belong to Spark's Kafka source."
            warnings.warn(text, ConfigWarning, stacklevel=2)
        return cls(
            producer,
            own.get("topic"),
            own.get("timestampcolumn"),
            exactly_once,
            own.get("receiptstopic"),
            own.get("receiptspath"),
            topic_creation,
            own.get("maxbytespersecondpertask"),
            own.get("maxrowspersecondpertask"),
            own.get("loglevel"),
            formats,
            dead_letters,
        )


def _exactly_once(own: Mapping[str, Any], options: Mapping[str, str], faults: list[str]) -> ExactlyOnce | None:
    """None for at-least-once, where the options of exactly-once are faults."""
    if own.get("deliveryguarantee") != "exactly-once":
        misplaced = [_OWN[name].name for name in _EXACTLY_ONCE_ONLY if name in own]
        if misplaced:
            faults.append(f"{', '.join(misplaced)}: only with deliveryGuarantee=exactly-once.")
        return None
    app, number, given = own.get("txnappid"), own.get("txnversion"), own.get("transactionalidprefix")
    if (app is None) != (number is None):
        faults.append("txnAppId and txnVersion belong together: give both or neither.")
    name = f"txn-{app}" if app is not None else given or _derived_name(options)
    prefix = f"{given}-{app}" if app is not None and given is not None else name
    if prefix is not None and not prefix.isprintable():
        faults.append(f"transactionalIdPrefix, txnAppId, query name: {prefix!a} must have printable characters only.")
    return ExactlyOnce(
        name=name,
        prefix=prefix,
        ledger_topic=own.get("commitlogtopic") or LEDGER_TOPIC,
        ledger_start=own.get("ledgerstart") or "strict",
        version=None if app is None or number is None else (app, number),
    )


def _transactional(kafka: dict[str, object], exactly_once: ExactlyOnce | None) -> dict[str, object]:
    """With a transactional.id, so that the producer's rules apply; each task replaces it by its own id."""
    if exactly_once is None:
        return kafka
    transactional = {"transactional.id": exactly_once.prefix or "unnamed"}
    return {"transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS, **kafka, **transactional}


def _with_token_provider(kafka: dict[str, object], own: Mapping[str, Any]) -> dict[str, object]:
    provider = own.get("sasltokenprovider")
    return kafka if provider is None else {**kafka, OWN_NAMES["saslTokenProvider"]: provider}


def _derived_name(options: Mapping[str, str]) -> str | None:
    """A name that is stable across runs: from the checkpoint location, else from the query name."""
    given = _given(options)
    if "checkpointlocation" in given:
        return f"spark-{sha256(given['checkpointlocation'].rstrip('/').encode()).hexdigest()[:16]}"
    return f"spark-{given['queryname']}" if "queryname" in given else None


def _given(options: Mapping[str, str]) -> dict[str, str]:
    """By names in lower case."""
    return {key.lower(): value for key, value in options.items()}


def _own_value(option: Option, value: str, faults: list[str]) -> Value:
    try:
        parsed = option.parse(value)
    except BadValueError as error:
        faults.append(f"{option.name} {error}")
        return None
    if parsed == "":
        faults.append(f"{option.name} is blank; give it a value or leave it out.")
    return parsed


def _unknown(name: str) -> str:
    if name in OPTIONS_BY_NAME:
        return f"{name} is an option of Kafka's producer; write it {KAFKA_PREFIX}{name}."
    if name in OLD_NAMES:
        return f"{name} is an old option of Kafka's producer; write it {KAFKA_PREFIX}{OLD_NAMES[name]}."
    hint = did_you_mean(name, _SUGGESTIONS) or f". Options of Kafka's producer are written {KAFKA_PREFIX}<name>."
    return f"{name} is not an option of pykafka{hint}"
