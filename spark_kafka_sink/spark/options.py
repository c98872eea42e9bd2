"""Spark's options → ``SinkOptions``, or every fault of them in one ConfigError on the driver.

Spark hands option names over in lower case, Kafka's own under ``kafka.``.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from spark_kafka_sink.config import ConfigWarning, ProducerConfig
from spark_kafka_sink.config.option import BadValueError, Kind, Matching, OneOf, Option, Range, Value, did_you_mean
from spark_kafka_sink.config.table import OPTIONS_BY_NAME
from spark_kafka_sink.errors import ConfigError

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
           "isolation.level=read_committed see each row once.",
           OneOf(("at-least-once", "exactly-once"))),
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
           "different rows.",
           Matching(r"strict|trust-(checkpoint|ledger):\d{1,18}",
                    "strict, trust-checkpoint:N or trust-ledger:N (N: the batch)")),
    Option("txnAppId", Kind.STRING, None, "medium",
           "With txnVersion: makes a batch write idempotent, also in foreachBatch (names as in Delta Lake). Use a "
           "different one per topic."),
    Option("txnVersion", Kind.LONG, None, "medium",
           "Number of this write for its txnAppId. Repeating the last committed one writes nothing; a smaller one is "
           "refused.",
           Range(0)),
    Option("receiptsTopic", Kind.STRING, None, "low",
           "Topic for receipts, a JSON record per task and partition with query, batch, offsets, count, bytes and "
           "times; with exactly-once in the same transaction as the rows."),
    Option("receiptsPath", Kind.STRING, None, "low",
           "Directory for receipts (a path, or a URI such as s3://): a file of JSON lines per batch."),
)  # fmt: skip
"""This sink's own options, written without a prefix."""

ADDED_BY_SPARK = frozenset({"path", "checkpointlocation", "queryname"})
"""What Spark itself puts among the options of a write."""

READ_SIDE = frozenset({
    "assign", "subscribe", "subscribePattern", "startingOffsets", "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy", "startingTimestamp", "endingOffsets", "endingOffsetsByTimestamp",
    "endingTimestamp", "failOnDataLoss", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions",
    "maxRecordsPerPartition", "groupIdPrefix", "kafka.group.id",
})  # fmt: skip
"""Options of Spark's Kafka source: they come along when one set of options serves reading and writing."""

_EXACTLY_ONCE_ONLY = ("transactionalidprefix", "commitlogtopic", "ledgerstart", "txnappid", "txnversion")
_LEDGER_TOPIC = "__pykafka_commits"
_TRANSACTION_TIMEOUT_MS = 900_000

_OWN = {option.name.lower(): option for option in SINK_OPTIONS}
_READ_SIDE = {name.lower(): name for name in READ_SIDE}
_SUGGESTIONS = (*(option.name for option in SINK_OPTIONS), *(KAFKA_PREFIX + name for name in OPTIONS_BY_NAME))

# The texts of Spark's KafkaSourceProvider.
_SERIALIZERS = {
    f"kafka.{side}.serializer": (
        f"Kafka option '{side}.serializer' is not supported as {side}s are serialized with ByteArraySerializer."
    )
    for side in ("key", "value")
}
_FENCING = (
    "kafka.transactional.id is refused: every task would write under the same id and fence the others; "
    "what a reader may count on is chosen by deliveryGuarantee."
)
_REFUSED = {**_SERIALIZERS, "kafka.transactional.id": _FENCING}


@dataclass(frozen=True, slots=True)
class ExactlyOnce:
    """How exactly-once was asked for. ``name`` and ``prefix`` (as in ``CommitSettings``) None: nothing names the write.

    ``version`` is (txnAppId, txnVersion). ``nobody_replays``: a batch job without one, whose name is its own.
    """

    name: str | None
    prefix: str | None
    ledger_topic: str
    ledger_start: str
    version: tuple[str, int] | None
    nobody_replays: bool = False


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What a write was asked to do: goes to every task, so a plain value.

    ``topic`` None: each row names its own. ``timestamp_column`` None: records get the time of writing.
    """

    producer: ProducerConfig
    topic: str | None = None
    timestamp_column: str | None = None
    exactly_once: ExactlyOnce | None = None
    receipts_topic: str | None = None
    receipts_path: str | None = None

    @property
    def wants_receipts(self) -> bool:
        return self.receipts_topic is not None or self.receipts_path is not None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SinkOptions:
        """Raises ConfigError with all faults in one message, Kafka's options and the sink's own alike."""
        faults: list[str] = []
        own: dict[str, Value] = {}
        kafka: dict[str, object] = {}
        read_side: list[str] = []
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
            elif name not in ADDED_BY_SPARK:
                faults.append(_unknown(name))
        exactly_once = _exactly_once(own, options, faults)
        kafka = _transactional(kafka, exactly_once)
        try:
            producer = ProducerConfig.parse(kafka, KAFKA_PREFIX)
        except ConfigError as error:
            raise ConfigError([*faults, *error.faults]) from None
        if faults:
            raise ConfigError(faults)
        if read_side:
            text = f"{', '.join(sorted(read_side))}: without effect on write; they belong to Spark's Kafka source."
            warnings.warn(text, ConfigWarning, stacklevel=2)
        return cls(
            producer,
            _text(own.get("topic")),
            _text(own.get("timestampcolumn")),
            exactly_once,
            _text(own.get("receiptstopic")),
            _text(own.get("receiptspath")),
        )


def _exactly_once(own: Mapping[str, Value], options: Mapping[str, str], faults: list[str]) -> ExactlyOnce | None:
    """None for at-least-once, which then may have no option of the other."""
    if own.get("deliveryguarantee") != "exactly-once":
        alien = [_OWN[name].name for name in _EXACTLY_ONCE_ONLY if name in own]
        if alien:
            faults.append(f"{', '.join(alien)}: only with deliveryGuarantee=exactly-once.")
        return None
    app, number = _text(own.get("txnappid")), own.get("txnversion")
    if (app is None) != (number is None):
        faults.append("txnAppId and txnVersion belong together: give both or neither.")
    version = (app, number) if app is not None and isinstance(number, int) else None
    given = _text(own.get("transactionalidprefix"))
    name = f"txn-{app}" if app is not None else given or _derived_name(options)
    prefix = f"{given}-{app}" if app is not None and given is not None else name
    if prefix is not None and not prefix.isprintable():
        faults.append(f"transactionalIdPrefix, txnAppId, query name: {prefix!a} must have printable characters only.")
    return ExactlyOnce(
        name=name,
        prefix=prefix,
        ledger_topic=_text(own.get("commitlogtopic")) or _LEDGER_TOPIC,
        ledger_start=_text(own.get("ledgerstart")) or "strict",
        version=version,
    )


def _transactional(kafka: dict[str, object], exactly_once: ExactlyOnce | None) -> dict[str, object]:
    """With a transactional.id, so that the producer's own rules apply; every task writes under an id of its own."""
    if exactly_once is None:
        return kafka
    transactional = {"transactional.id": exactly_once.prefix or "unnamed"}
    return {"transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS, **kafka, **transactional}


def _derived_name(options: Mapping[str, str]) -> str | None:
    """The same in every run of a write: from its checkpoint, which no two queries share, else from its name."""
    given = {key.lower(): value for key, value in options.items()}
    if "checkpointlocation" in given:
        return f"spark-{sha256(given['checkpointlocation'].rstrip('/').encode()).hexdigest()[:16]}"
    return f"spark-{given['queryname']}" if "queryname" in given else None


def _own_value(option: Option, value: str, faults: list[str]) -> Value:
    try:
        parsed = option.parse(value)
    except BadValueError as error:
        faults.append(f"{option.name} {error}")
        return None
    if parsed == "":
        faults.append(f"{option.name} is blank; give it a value or leave it out.")
    return parsed


def _text(value: Value) -> str | None:
    return value if isinstance(value, str) else None


def _unknown(name: str) -> str:
    if name in OPTIONS_BY_NAME:
        return f"{name} is an option of Kafka's producer; write it {KAFKA_PREFIX}{name}."
    hint = did_you_mean(name, _SUGGESTIONS) or f". Options of Kafka's producer are written {KAFKA_PREFIX}<name>."
    return f"{name} is not an option of pykafka{hint}"
