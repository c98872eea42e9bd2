"""Spark's options → ``SinkOptions``, or one ``ConfigError`` with all faults, on the driver.

Spark passes option names in lower case. Kafka's producer options have the prefix ``kafka.``.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_kafka_sink.common.config import ConfigWarning, ProducerConfig
from spark_kafka_sink.common.config.option import BadValueError, Matching, OneOf, Option, OptionKind, Range, Value
from spark_kafka_sink.common.config.producer_config import unknown_option
from spark_kafka_sink.common.config.python_class import PYTHON_CLASS, imported
from spark_kafka_sink.common.config.table import OPTIONS_BY_NAME, OWN_NAMES
from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.schemas.formats.format_options import FORMAT_OPTIONS, FormatOptions
from spark_kafka_sink.schemas.registry.registry_options import (
    REGISTRY_OPTIONS,
    is_registry_option,
    unknown_registry_option,
)
from spark_kafka_sink.spark import checkpoint
from spark_kafka_sink.spark.dead_letters.options import DEAD_LETTER_OPTIONS, DeadLetters
from spark_kafka_sink.spark.option_names import (
    ADDED_BY_SPARK,
    KAFKA_PREFIX,
    read_side,
    unknown_name,
    unsupported_option,
)
from spark_kafka_sink.spark.topic_options import (
    TOPIC_OPTIONS,
    TopicCreation,
    topic_name_fault,
    topic_settings,
    without_auto_creation,
)

SINK_OPTIONS: tuple[Option, ...] = (
    Option("topic", OptionKind.STRING, None, "high",
           "Topic for all rows; a column topic is then ignored. Required if there is no such column."),
    Option("timestampColumn", OptionKind.STRING, None, "medium",
           "Column with the timestamps of the records: type timestamp, or bigint in epoch milliseconds. null: the "
           "time of writing."),
    Option("includeHeaders", OptionKind.BOOLEAN, False, "low",
           "Accepted for compatibility with Spark's Kafka source, no effect: a column headers is always written."),
    Option("deliveryGuarantee", OptionKind.STRING, "at-least-once", "medium",
           "at-least-once: a task that Spark retries writes its rows again. exactly-once: readers with "
           "isolation.level=read_committed see each row once.", OneOf(("at-least-once", "exactly-once"))),
    Option("transactionalIdPrefix", OptionKind.STRING, None, "medium",
           "Prefix of the transactional ids. Must be stable across restarts and unique per query. Default: derived "
           "from the query's id, which is in its checkpoint; from the location of a checkpoint that is not in the "
           "driver's file system; without the option checkpointLocation, from the query's name. A batch write "
           "appends its txnAppId, or a new id if it has none."),
    Option("commitLogTopic", OptionKind.STRING, "__pykafka_commits", "low",
           "Compacted topic that records which batches of exactly-once writes are committed. Created if missing."),
    Option("ledgerStart", OptionKind.STRING, "strict", "low",
           "What to do if checkpoint and commitLogTopic disagree about batch N (or txnVersion N). strict: fail; the "
           "error names the value to set. trust-checkpoint:N: write batch N even if commitLogTopic lacks batch N-1 "
           "(the query was at-least-once, or the topic was lost). trust-ledger:N: accept batch N as committed even "
           "if its replay has different rows, or a topic was created again since.",
           Matching(r"(?i:strict|trust-(checkpoint|ledger):\d{1,18})",
                    "strict, trust-checkpoint:N or trust-ledger:N (N: the batch)")),
    Option("txnAppId", OptionKind.STRING, None, "medium",
           "Together with txnVersion, makes a batch write idempotent, also in foreachBatch (the names are those of "
           "Delta Lake). Use a different one per topic."),
    Option("txnVersion", OptionKind.LONG, None, "medium",
           "Number of this write for its txnAppId, such as the batch id in foreachBatch. Repeating the last "
           "committed number writes nothing; a smaller one is refused.", Range(0)),
    Option("neverRepeated", OptionKind.BOOLEAN, False, "medium",
           "true: an exactly-once batch write without txnAppId, which nothing runs a second time: neither a scheduler "
           "after an error nor foreachBatch. A second run would write all rows again."),
    Option("saslTokenProvider", OptionKind.STRING, None, "medium",
           "Source of the tokens for kafka.sasl.mechanism=OAUTHBEARER: aws (Amazon MSK with IAM), gcp, azure, or "
           "the name of an entry point of the group spark_kafka_sink.sasl."),
    Option("receiptsTopic", OptionKind.STRING, None, "low",
           "Topic for receipts: a JSON record per task and partition with query, batch, offsets, count, bytes and "
           "times. With exactly-once, in the same transaction as the rows."),
    Option("receiptsPath", OptionKind.STRING, None, "low",
           "Directory for receipts, a path or a URI such as s3://. One file of JSON lines per batch."),
    *DEAD_LETTER_OPTIONS,
    *TOPIC_OPTIONS,
    Option("maxBytesPerSecondPerTask", OptionKind.LONG, None, "low",
           "Bytes per second that a task may write, counted as records before compression, without receipts. A task "
           "waits before it appends rows, so the wait does not count towards delivery.timeout.ms. To limit all "
           "tasks together, use the brokers' quotas.", Range(1)),
    Option("maxRowsPerSecondPerTask", OptionKind.LONG, None, "low",
           "Rows per second that a task may write. May be set together with maxBytesPerSecondPerTask.", Range(1)),
    Option("logLevel", OptionKind.STRING, None, "low",
           "Level of the sink's log lines in Python workers and in the driver's Python processes. They go to "
           "stderr, or to the handlers of the process, as with spark.sql.pyspark.worker.logging.enabled. Default: "
           "WARNING, but INFO for the driver's line about each write.",
           OneOf(("DEBUG", "INFO", "WARN", "WARNING", "ERROR"))),
    Option("unknownOptions", OptionKind.STRING, "refuse", "low",
           "Options, also kafka.<name>, that neither the sink nor Kafka's producer has, such as those of a vendor's "
           "client. refuse: an error. warn: ignored with one warning, which also has the suggestions.",
           OneOf(("refuse", "warn"))),
    *FORMAT_OPTIONS,
)  # fmt: skip
"""The sink's own options, without a prefix."""

_EXACTLY_ONCE_ONLY = (
    "transactionalidprefix",
    "commitlogtopic",
    "ledgerstart",
    "txnappid",
    "txnversion",
    "neverrepeated",
)
_TOPIC_NAMES = ("topic", "commitlogtopic", "receiptstopic", "deadlettertopic")
LEDGER_TOPIC = "__pykafka_commits"
_TRANSACTION_TIMEOUT_MS = 900_000

_OWN = {option.name.lower(): option for option in SINK_OPTIONS}
_REGISTRY_NAMES = {option.name for option in REGISTRY_OPTIONS}
_SUGGESTIONS = (
    *(option.name for option in (*SINK_OPTIONS, *REGISTRY_OPTIONS)),
    *(KAFKA_PREFIX + name for name in OPTIONS_BY_NAME),
)


@dataclass(frozen=True, slots=True)
class ExactlyOnce:
    """The options of an exactly-once write.

    ``name`` and ``prefix``: as in ``CommitSettings``, None if no option names the write. ``version``: (txnAppId,
    txnVersion). ``never_replayed``: neverRepeated, a batch job without a version; no later run has its name. ``query``:
    the id of the stream that is named by it, else None.
    """

    name: str | None
    prefix: str | None
    ledger_topic: str
    ledger_start: str
    version: tuple[str, int] | None
    never_replayed: bool = False
    query: str | None = None


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
        options, ignored = _taken(options)
        settings = topic_settings(options)
        for key, value in options.items():
            name = key.lower()
            if (refused := unsupported_option(name) or _misnamed(name)) is not None:
                faults.append(refused)
            elif name.startswith(KAFKA_PREFIX):
                kafka[name.removeprefix(KAFKA_PREFIX)] = value
            elif name in _OWN:
                own[name] = _own_value(_OWN[name], value, faults)
            elif not is_registry_option(name) and (unknown := _unknown(name)) is not None:
                faults.append(unknown)
        exactly_once = _exactly_once(own, options, faults)
        topic_creation = TopicCreation.of(own, settings, faults)
        faults += filter(None, (topic_name_fault(_OWN[name].name, own.get(name)) for name in _TOPIC_NAMES))
        kafka = without_auto_creation(kafka, own.get("topiccreation"), faults)
        kafka = _with_token_provider(_transactional(kafka, exactly_once), own)
        producer = None
        try:
            producer = ProducerConfig.parse(kafka, KAFKA_PREFIX)
            _check_partitioner(producer)
        except ConfigError as error:
            faults += error.faults
        formats = FormatOptions.parse(own, options, faults, producer)
        dead_letters = DeadLetters.of(own, _given(options).get("queryname"), faults)
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
            receipts_path=own.get("receiptspath"),
            topic_creation=topic_creation,
            bytes_per_s=own.get("maxbytespersecondpertask"),
            rows_per_s=own.get("maxrowspersecondpertask"),
            log_level=own.get("loglevel"),
            formats=formats,
            dead_letters=dead_letters,
        )


def _taken(options: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The options without those that are ignored, and a warning for each kind of these."""
    names = {key: key.lower() for key in options}
    reading = {key: spelt for key, name in names.items() if (spelt := read_side(name)) is not None}
    lenient = any(
        name == "unknownoptions" and options[key].strip().lower() == "warn" for key, name in names.items()
    )  # fmt: skip
    unknown = {
        key: fault
        for key, name in names.items()
        if lenient and key not in reading and unsupported_option(name) is None and (fault := _unknown(name)) is not None
    }
    ignored = []
    if reading:
        shown = ", ".join(sorted(reading.values()))
        ignored.append(f"{shown}: no effect on write; they belong to Spark's Kafka source.")
    if unknown:
        ignored.append(
            "\n".join(["Ignored, as unknownOptions is warn:", *(f"- {fault}" for fault in unknown.values())])
        )
    return {key: value for key, value in options.items() if key not in reading and key not in unknown}, ignored


def _misnamed(name: str) -> str | None:
    """The fault of a registry's option after ``kafka.``."""
    plain = name.removeprefix(KAFKA_PREFIX)
    is_registrys = plain != name and plain in _REGISTRY_NAMES
    return f"{name}: write {plain}, without {KAFKA_PREFIX}" if is_registrys else None


def _unknown(name: str) -> str | None:
    """The fault of a name in lower case that no table has; None if one has it."""
    if name.startswith(KAFKA_PREFIX):
        return unknown_option(name.removeprefix(KAFKA_PREFIX), KAFKA_PREFIX)
    if is_registry_option(name):
        return unknown_registry_option(name)
    known = name in _OWN or name in ADDED_BY_SPARK or bool(topic_settings({name: ""}))
    return None if known else unknown_name(name, _SUGGESTIONS)


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
    if (app is None) != (number is None):
        faults.append("txnAppId and txnVersion belong together: give both or neither.")
    never_replayed = bool(own.get("neverrepeated"))
    if never_replayed and app is not None:
        faults.append("neverRepeated and txnAppId contradict each other: leave out one of them.")
    name, query = (f"txn-{app}" if app is not None else given), None
    if not name:
        name, query = _derived_name(options)
    prefix = f"{given}-{app}" if app is not None and given is not None else name
    if prefix is not None and not prefix.isprintable():
        faults.append(f"transactionalIdPrefix, txnAppId, query name: {prefix!a} must have printable characters only.")
    return ExactlyOnce(
        name=name,
        prefix=prefix,
        ledger_topic=own.get("commitlogtopic") or LEDGER_TOPIC,
        ledger_start=(own.get("ledgerstart") or "strict").lower(),
        version=None if app is None or number is None else (app, number),
        never_replayed=never_replayed,
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


def _with_token_provider(kafka: dict[str, object], own: Mapping[str, Any]) -> dict[str, object]:
    provider = own.get("sasltokenprovider")
    return kafka if provider is None else {**kafka, OWN_NAMES["saslTokenProvider"]: provider}


def _derived_name(options: Mapping[str, str]) -> tuple[str | None, str | None]:
    """A name that is stable across runs, and the query's id if the checkpoint has it."""
    given = _given(options)
    location = given.get("checkpointlocation")
    if location is not None:
        query = checkpoint.query_id(location)
        return checkpoint.name_of(location, query), query
    return (f"spark-{given['queryname']}" if "queryname" in given else None), None


def _given(options: Mapping[str, str]) -> dict[str, str]:
    """The options by their names in lower case."""
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
