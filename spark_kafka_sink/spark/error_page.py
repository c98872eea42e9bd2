"""The errors of docs/operations.md: what the sink does with each code of a broker, and what to do about each class.

Codes and what follows from them are the table of ``network/error_table.py``.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink import errors
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.exactly_once import errors as exactly_once_errors
from spark_kafka_sink.network.error_table import TRANSACTIONAL_PRODUCE, Action, action, advice, known_codes

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
        "AuthenticationError": "See [security.md](security.md).",
        "SslAuthenticationError": "The message says what is wrong (issuer, host name, date …) and names the option.",
        "SaslAuthenticationError": "Check user and password in `kafka.sasl.jaas.config`, and the user on the brokers.",
        "LoginError": "Check the token endpoint or file that the message names.",
        "UnsupportedSaslMechanismError": "The message lists the mechanisms of the broker: set `kafka.sasl.mechanism`.",
        "IllegalSaslStateError": "A proxy, or a broker that uses another protocol. Run `spark-kafka-sink check`.",
        "UnsupportedVersionError": "The broker is too old, or is not Kafka. See [versions.md](versions.md).",
        "RequestBuildError": "A defect, or a value that no request can carry: the message and the log have the cause.",
        "BrokerError": "Look up the code in the table above.",
        "OutOfOrderSequenceError": "Start the query again. At-least-once may write rows twice.",
        "ProducerFencedError": "Another run has the same transactional ids: stop it, or use a prefix per query. "
        "Or the transaction took longer than `kafka.transaction.timeout.ms`.",
        "ProducerClosedError": "The log has the reason. The task's next attempt opens a new producer.",
        "IllegalStateError": "An error in the program. The message names the call that must come first.",
        "TransactionAbortableError": "Its cause is the first error. The next attempt writes the rows again.",
        "TransactionAbortedError": "Look at the error before it.",
        "ExactlyOnceError": "The message says what to do. See [exactly-once.md](exactly-once.md).",
        "PlanningError": "The message says what to do. No row of the batch was written.",
        "ReceiptsPathError": "Set `receiptsPath` to a directory that the driver can write to. No row was written.",
        "ReplayMismatchError": "The source returned other rows than before. Make it repeatable, or see "
        "[exactly-once.md](exactly-once.md).",
        "LostRowsError": "Start the query again with the same checkpoint: it writes the missing rows.",
        "NotDecidedError": "Start the query again: it writes the batch again.",
    }
)


def broker_code_rows() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Head and rows: each code of a Produce response, what the sink does, its cause and remedy."""
    rows: list[tuple[str, ...]] = [
        (f"`{code.name.upper()}`", _DONE[action("produce", code)], _DONE[action(TRANSACTIONAL_PRODUCE, code)], text)
        for code, text in sorted(broker_codes())
    ]
    return ("code", "at-least-once", "exactly-once", "cause and remedy"), rows


def broker_codes() -> Iterator[tuple[ErrorCode, str]]:
    for code in known_codes():
        text = advice(code)
        yield code, _CAUSES.get(code.name.upper(), "") if text is None else f"{_capitalized(text)}."


def _capitalized(text: str) -> str:
    """An option's name keeps its spelling."""
    return text if "." in text.split(maxsplit=1)[0] else text[0].upper() + text[1:]


def error_classes() -> list[type[KafkaError]]:
    """The error classes of ``errors.py`` and ``exactly_once/errors.py``, without their base class."""
    found = [
        value
        for module in (errors, exactly_once_errors)
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, KafkaError) and value.__module__ == module.__name__
    ]
    return [each for each in found if each is not KafkaError]


def error_class_rows() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Head and rows: each class, its cause by the first line of its docstring, its remedy."""
    rows: list[tuple[str, ...]] = [
        (f"`{each.__name__}`", (each.__doc__ or "").split("\n")[0].replace("``", "`"), _REMEDIES.get(each.__name__, ""))
        for each in error_classes()
    ]
    return ("error", "cause", "remedy"), rows
