"""Writes the tables of options, metrics and errors into the documentation.

``python -m spark_kafka_sink.spark.document docs/*.md`` replaces each block of these pages that begins with
``<!-- options:NAME -->``, a name of ``TABLES``, and ends with ``<!-- options:end -->``.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink import errors
from spark_kafka_sink.common import markdown
from spark_kafka_sink.common.config.old_names import OLD_NAMES
from spark_kafka_sink.common.config.option import Option, OptionKind, Status
from spark_kafka_sink.common.config.table import PRODUCER_OPTIONS
from spark_kafka_sink.common.markdown import table
from spark_kafka_sink.common.metrics import metric_rows
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.exactly_once import errors as exactly_once_errors
from spark_kafka_sink.exactly_once.errors import ADVICE, Progress
from spark_kafka_sink.exactly_once.values import Repeat
from spark_kafka_sink.network.error_table import TRANSACTIONAL_PRODUCE, Action, action, advice, known_codes
from spark_kafka_sink.schemas.registry.registry_options import REGISTRY_OPTIONS
from spark_kafka_sink.spark.options import SINK_OPTIONS
from spark_kafka_sink.spark.receipts.exporter import EXPORTER_METRICS, METRICS, QUERY_LABELS

_COMMON: Final = (
    "topic", "timestampColumn", "deliveryGuarantee", "transactionalIdPrefix", "txnAppId", "txnVersion", "neverRepeated",
    "topicCreation", "valueFormat", "receiptsTopic", "receiptsPath", "deadLetterTopic", "saslTokenProvider",
    "unknownOptions",
)  # fmt: skip
"""The sink's options that the page of options begins with."""

_REFUSED_AND_IGNORED = {
    Status.NO_EFFECT: "Checked, then ignored.",
    Status.JVM_ONLY: "Java classes and their settings. The error names the alternative.",
    Status.NOT_YET: "No released broker supports them.",
}

_DONE: Final[Mapping[Action, str]] = MappingProxyType(
    {
        Action.SUCCEED: "counts as success",
        Action.RETRY: "retries",
        Action.RETRY_SOON: "retries",
        Action.REFRESH_RETRY: "refreshes metadata, retries",
        Action.SPLIT: "splits the batch",
        Action.BUMP_EPOCH: "retries in order, with a new epoch if needed",
        Action.ABORT: "fails; the transaction is aborted",
        Action.FAIL: "fails",
        Action.FENCED: "fails",
    }
)

_LASTS: Final = "If it lasts until delivery.timeout.ms: "
_CAUSES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "CORRUPT_MESSAGE": f"{_LASTS}the network corrupts data; see whether other clients have the error too.",
        "UNKNOWN_TOPIC_OR_PARTITION": f"{_LASTS}the topic was deleted, or the principal lacks DESCRIBE on it.",
        "LEADER_NOT_AVAILABLE": f"{_LASTS}the partition has no leader, because its brokers are down.",
        "NOT_LEADER_OR_FOLLOWER": "The leader of the partition has changed, as in a rolling restart. Nothing to do.",
        "REQUEST_TIMED_OUT": f"{_LASTS}replicas are slow. Look at the brokers' disks and network.",
        "BROKER_NOT_AVAILABLE": f"{_LASTS}brokers are down.",
        "REPLICA_NOT_AVAILABLE": f"{_LASTS}brokers are down.",
        "OFFSET_METADATA_TOO_LARGE": "The metadata of a consumer's offset exceeds offset.metadata.max.bytes.",
        "NETWORK_EXCEPTION": "A broker lost its connection to another broker. Nothing to do.",
        "COORDINATOR_LOAD_IN_PROGRESS": "The coordinator is starting. Nothing to do.",
        "COORDINATOR_NOT_AVAILABLE": "Not expected in a Produce response. Transactional calls retry it.",
        "NOT_COORDINATOR": "Not expected in a Produce response. Transactional calls retry it.",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND": f"{_LASTS}fewer replicas are in sync than min.insync.replicas.",
        "ILLEGAL_GENERATION": "The consumer whose offsets are committed has left its group: abort, and consume again.",
        "UNKNOWN_MEMBER_ID": "The consumer whose offsets are committed has left its group: abort, and consume again.",
        "FENCED_INSTANCE_ID": "Another consumer has the group.instance.id: stop one of them.",
        "STALE_MEMBER_EPOCH": "The consumer whose offsets are committed has left its group: abort, and consume again.",
        "INVALID_COMMIT_OFFSET_SIZE": "The metadata of a consumer's offset is too large.",
        "NOT_CONTROLLER": "Not expected in a Produce response. Transactional calls retry it.",
        "OUT_OF_ORDER_SEQUENCE_NUMBER": "A broker lost a batch, after an unclean leader election for example.",
        "DUPLICATE_SEQUENCE_NUMBER": "The batch is already in the log. Nothing to do.",
        "CONCURRENT_TRANSACTIONS": "The previous transaction is still being ended. Nothing to do.",
        "KAFKA_STORAGE_ERROR": f"{_LASTS}a broker's disk has failed.",
        "UNKNOWN_PRODUCER_ID": "Retention has deleted the producer's last batch. Nothing to do.",
        "FENCED_LEADER_EPOCH": "The leader of the partition has changed. Nothing to do.",
        "UNKNOWN_LEADER_EPOCH": "The leader of the partition has changed. Nothing to do.",
        "THROTTLING_QUOTA_EXCEEDED": f"{_LASTS}raise the quota of this user or client.id.",
        "UNKNOWN_TOPIC_ID": f"{_LASTS}the topic was deleted.",
        "INCONSISTENT_TOPIC_ID": f"{_LASTS}the topic was deleted and created again.",
        "TRANSACTION_ABORTABLE": "The broker requires an abort. Start the query again: it writes the batch again.",
    }
)
"""Remedies for codes whose error text has no advice."""

_REMEDIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ConfigError": "Each line of the message names an option and its valid values.",
        "KafkaTimeoutError": "The message ends with the brokers' last error. Run `spark-kafka-sink check`.",
        "BufferExhaustedError": "Brokers are slower than the task. Look at latency and throttling, then raise "
        "`kafka.buffer.memory` or `kafka.max.block.ms`.",
        "InvalidRecordError": "Correct the row whose number the message has.",
        "TopicCreationError": "The message names the topic and similar names, or the missing right.",
        "DeadLetterLimitError": "Look at the dead letters first. Then raise `deadLetterLimit`, or set it to `none`.",
        "DeadLetterPathError": "Set it to a directory that the executors can write to.",
        "SerializationError": "The cause is the serializer's own error; correct the row.",
        "RecordTooLargeError": "Raise `kafka.max.request.size` and the topic's `max.message.bytes`, or shrink the row.",
        "RegistryError": "The message has URL, subject and status: check rights, network, the schema's compatibility.",
        "FailedToSendError": "The attribute `errors` has the error of each record.",
        "CorruptRecordError": "Another program wrote the records, or the network corrupts data.",
        "NetworkError": "Run `spark-kafka-sink check`: it shows which step to which broker fails.",
        "WrongProtocolError": "Set the port and `kafka.security.protocol` of the same listener.",
        "BootstrapResolutionError": "Check the names in `kafka.bootstrap.servers` and the name servers.",
        "RebootstrapRequiredError": "None: the client starts again. If it repeats, check what the brokers' addresses "
        "in `advertised.listeners` lead to.",
        "AuthenticationError": "See [Security](security.md).",
        "DriverCheckError": "The message names the option. No row was written. `driverCheck=false` omits the check.",
        "SslAuthenticationError": "The message says what is wrong (issuer, host name, date …) and names the option.",
        "SaslAuthenticationError": "Check user and password in `kafka.sasl.jaas.config`, and the user on the brokers.",
        "LoginError": "Check the token endpoint or file that the message names.",
        "UnsupportedSaslMechanismError": "The message lists the mechanisms of the broker: set `kafka.sasl.mechanism`.",
        "IllegalSaslStateError": "A proxy, or a broker that uses another protocol. Run `spark-kafka-sink check`.",
        "UnsupportedVersionError": "The broker is too old, or is not Kafka. See [Versions](versions.md).",
        "RequestBuildError": "A defect, or a value that no request can carry: the message and the log have the cause.",
        "BrokerError": "Look up the code in the table above.",
        "OutOfOrderSequenceError": "Start the query again. At-least-once may write rows twice.",
        "ProducerFencedError": "Another run has the same transactional ids: stop it, or use a prefix per query. "
        "Or the transaction took longer than `kafka.transaction.timeout.ms`.",
        "ProducerClosedError": "The log has the reason. The task's next attempt opens a new producer.",
        "IllegalStateError": "An error in the program. The message names the call that must come first.",
        "TransactionAbortableError": "Its cause is the first error. The next attempt writes the rows again.",
        "TransactionAbortedError": "Look at the error before it.",
        "ExactlyOnceError": "The message says what to do. See "
        "[what is refused](exactly-once-operations.md#what-is-refused).",
        "PlanningError": "The message says what to do. No row of the batch was written.",
        "ReceiptsPathError": "Set `receiptsPath` to a directory that the driver can write to. No row was written.",
        "ReplayMismatchError": "The source returned other rows than before. Make it repeatable, or see "
        "[what is refused](exactly-once-operations.md#what-is-refused).",
        "LostRowsError": "Start the query again with the same checkpoint: it writes the missing rows.",
        "FencedRunError": "Stop the run that is not wanted, and start the other one again.",
        "NotDecidedError": "Start the query again: it writes the batch again.",
    }
)


def filled(page: str) -> str:
    """``page`` with every block replaced by its table."""
    return markdown.filled(page, TABLES)


def sink_options() -> str:
    """The sink's own options."""
    return _option_table(SINK_OPTIONS)


def common_options() -> str:
    """The sink's options that most jobs look up first: what each does, and its default."""
    by_name = {option.name: option for option in SINK_OPTIONS}
    rows = ((f"`{name}`", by_name[name].doc, _default(by_name[name])) for name in _COMMON)
    return table(("option", "what it does", "default"), rows)


def registry_options() -> str:
    """The options of a schema registry."""
    return _option_table(REGISTRY_OPTIONS)


def producer_options() -> str:
    """Kafka's producer options, a section per ``Status``."""
    sections = [_option_table(option for option in PRODUCER_OPTIONS if option.status is Status.SUPPORTED)]
    for status, text in _REFUSED_AND_IGNORED.items():
        rows = ((f"`{option.name}`", _refusal(option)) for option in PRODUCER_OPTIONS if option.status is status)
        title = status.value[0].upper() + status.value[1:]
        sections += [f"### {title}", text, table(("option", "what it is"), rows)]
    return "\n\n".join(sections)


def old_names() -> str:
    """Kafka 0.8's names of producer options."""
    return table(("old name", "option"), ((f"`{old}`", f"`{name}`") for old, name in OLD_NAMES.items()))


def metrics() -> str:
    """The producer's metrics."""
    return table(*metric_rows())


def exported() -> str:
    """The metrics of ``spark-kafka-sink exporter``."""
    rows = [
        (f"`{each.full_name}`", ", ".join(labels), each.doc)
        for metrics, query in ((METRICS, QUERY_LABELS), (EXPORTER_METRICS, ()))
        for each in metrics
        for labels in [(*query, *each.labels)]
    ]
    return table(("metric", "labels", "what it is"), rows)


def broker_code_table() -> str:
    """Each code of a Produce response, what the sink does, its cause and remedy."""
    rows = (
        (f"`{code.name.upper()}`", _DONE[action("produce", code)], _DONE[action(TRANSACTIONAL_PRODUCE, code)], text)
        for code, text in sorted(broker_codes())
    )
    return table(("code", "at-least-once", "exactly-once", "cause and remedy"), rows)


def broker_codes() -> Iterator[tuple[ErrorCode, str]]:
    for code in known_codes():
        text = advice(code)
        yield code, _CAUSES.get(code.name.upper(), "") if text is None else f"{_capitalized(text)}."


def error_classes() -> list[type[KafkaError]]:
    """The error classes of ``errors.py`` and ``exactly_once/errors.py``, without their base class."""
    found = [
        value
        for module in (errors, exactly_once_errors)
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, KafkaError) and value.__module__ == module.__name__
    ]
    return [each for each in found if each is not KafkaError]


def error_class_table() -> str:
    """The sink's exceptions."""
    return table(("error", "cause", "remedy"), error_class_rows())


def error_class_rows() -> list[tuple[str, ...]]:
    """Each class, its cause by the first line of its docstring, its remedy."""
    return [
        (f"`{each.__name__}`", (each.__doc__ or "").split("\n")[0].replace("``", "`"), _REMEDIES.get(each.__name__, ""))
        for each in error_classes()
    ]


def advice_table() -> str:
    """What the next run of a failed exactly-once write does, and what to do if no run of it may follow."""
    placeholders = {
        "commit": "spark-kafka-sink transactions commit --prefix NAME",
        "list": "spark-kafka-sink transactions list --prefix NAME",
        "timeout": "kafka.transaction.timeout.ms",
    }
    rows = [
        (
            progress.value,
            ADVICE[Repeat.STREAM, progress].format_map(placeholders).partition(": it ")[2],
            ADVICE[Repeat.NEVER, progress].format_map(placeholders),
        )
        for progress in Progress
    ]
    again = ", ".join(repeat.value for repeat in Repeat if repeat is not Repeat.NEVER)
    head = ("the error says that the write is", f"{again}: the next run", f"{Repeat.NEVER.value}: what to do")
    return table(head, rows)


def _option_table(options: Iterable[Option]) -> str:
    head = ("option", "default", "valid values", "what it does")
    rows = ((f"`{option.name}`", _default(option), _valid(option), option.doc) for option in options)
    return table(head, rows)


def _default(option: Option) -> str:
    if option.default in (None, ""):
        return ""
    return f"`{str(option.default).lower() if option.kind is OptionKind.BOOLEAN else option.default}`"


def _valid(option: Option) -> str:
    return option.allowed.removeprefix("one of ").removeprefix("a whole number ").removeprefix("of ")


def _capitalized(text: str) -> str:
    """An option's name keeps its spelling."""
    return text if "." in text.split(maxsplit=1)[0] else text[0].upper() + text[1:]


def _refusal(option: Option) -> str:
    return f"{option.doc} Instead: {option.instead}." if option.instead else option.doc


TABLES: Final = {
    "common": common_options,
    "sink": sink_options,
    "kafka": producer_options,
    "registry": registry_options,
    "old": old_names,
    "metrics": metrics,
    "exported": exported,
    "codes": broker_code_table,
    "errors": error_class_table,
    "advice": advice_table,
}


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        text = path.read_text()
        if (fresh := filled(text)) != text:
            path.write_text(fresh)
