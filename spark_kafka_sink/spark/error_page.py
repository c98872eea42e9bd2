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
        Action.REFRESH_RETRY: "finds the leader again, retries",
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
        "CORRUPT_MESSAGE": f"{_LASTS}the network changes bytes, look for other clients with it.",
        "UNKNOWN_TOPIC_OR_PARTITION": f"{_LASTS}the topic was deleted, or the principal lacks DESCRIBE on it.",
        "LEADER_NOT_AVAILABLE": f"{_LASTS}the partition has no leader: its brokers are down.",
        "NOT_LEADER_OR_FOLLOWER": "Leaders move, as in a rolling restart. Nothing to do.",
        "REQUEST_TIMED_OUT": f"{_LASTS}replicas are slow: look at the brokers' disks and network.",
        "BROKER_NOT_AVAILABLE": f"{_LASTS}brokers are down.",
        "REPLICA_NOT_AVAILABLE": f"{_LASTS}brokers are down.",
        "OFFSET_METADATA_TOO_LARGE": "The metadata of a consumer's offset exceeds offset.metadata.max.bytes.",
        "NETWORK_EXCEPTION": "A broker lost its connection to another one. Nothing to do.",
        "COORDINATOR_LOAD_IN_PROGRESS": "A coordinator starts. Nothing to do.",
        "COORDINATOR_NOT_AVAILABLE": f"{_LASTS}__transaction_state has no leader: its brokers are down.",
        "NOT_COORDINATOR": "Coordinators move. Nothing to do.",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND": f"{_LASTS}fewer replicas are in sync than min.insync.replicas.",
        "ILLEGAL_GENERATION": "The consumer whose offsets are sent has left its group: abort, read again.",
        "UNKNOWN_MEMBER_ID": "The consumer whose offsets are sent has left its group: abort, read again.",
        "FENCED_INSTANCE_ID": "Another consumer has the group.instance.id: stop one of them.",
        "STALE_MEMBER_EPOCH": "The consumer whose offsets are sent has left its group: abort, read again.",
        "INVALID_COMMIT_OFFSET_SIZE": "The metadata of a consumer's offset is too large.",
        "OUT_OF_ORDER_SEQUENCE_NUMBER": "A broker lost a batch, after an unclean leader election for example.",
        "DUPLICATE_SEQUENCE_NUMBER": "The batch is in the log already. Nothing to do.",
        "CONCURRENT_TRANSACTIONS": "The transaction before is being ended. Nothing to do.",
        "KAFKA_STORAGE_ERROR": f"{_LASTS}a broker's disk has failed.",
        "UNKNOWN_PRODUCER_ID": "Retention has removed the producer's last batch. Nothing to do.",
        "FENCED_LEADER_EPOCH": "Leaders move. Nothing to do.",
        "UNKNOWN_LEADER_EPOCH": "Leaders move. Nothing to do.",
        "THROTTLING_QUOTA_EXCEEDED": f"{_LASTS}raise the quota of this user or client.id.",
        "UNKNOWN_TOPIC_ID": f"{_LASTS}the topic was deleted.",
        "INCONSISTENT_TOPIC_ID": f"{_LASTS}the topic was deleted and made again.",
        "TRANSACTION_ABORTABLE": "A broker asks for an abort. Start the query again: it writes the batch anew.",
    }
)
"""Of codes without advice in their error's text."""

_REMEDIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ConfigError": "Each line of the text names an option and its valid values.",
        "KafkaTimeoutError": "The text ends with the last error of the brokers: see it here; `spark-kafka-sink check`.",
        "BufferExhaustedError": "Brokers are slower than the task: look at latency and throttling, then raise "
        "`kafka.buffer.memory` or `kafka.max.block.ms`.",
        "InvalidRecordError": "Correct the row that the text numbers.",
        "TopicCreationError": "The text names the policy, the topic and names like it, or the missing right.",
        "DeadLetterLimitError": "Look at the dead letters first; then raise `deadLetterLimit`, or set it to `none`.",
        "DeadLetterPathError": "Set it to a folder that the executors may write to.",
        "SerializationError": "The cause is the serializer's own error; correct the row.",
        "RecordTooLargeError": "Raise `kafka.max.request.size` and the topic's `max.message.bytes`, or shrink the row.",
        "RegistryError": "The text names URL, subject and status: rights, network, or a schema that does not fit.",
        "FailedToSendError": "`errors` has the error of each record.",
        "CorruptRecordError": "Another program wrote what was read, or the network changes bytes.",
        "NetworkError": "`spark-kafka-sink check` shows which step to which broker fails.",
        "WrongProtocolError": "Port and `kafka.security.protocol` do not match.",
        "AuthenticationError": "[security.md](security.md).",
        "SslAuthenticationError": "The text names the option: truststore, keystore, host name or date.",
        "SaslAuthenticationError": "User and password in `kafka.sasl.jaas.config`; the user must exist on the brokers.",
        "LoginError": "The text names the token endpoint or file that gave no token.",
        "UnsupportedSaslMechanismError": "The text lists the mechanisms of the broker: set `kafka.sasl.mechanism`.",
        "IllegalSaslStateError": "A proxy or a broker that speaks another protocol: `spark-kafka-sink check`.",
        "UnsupportedVersionError": "The broker is older than Kafka 2.8 (exactly-once: 3.5), or is no Kafka.",
        "BrokerError": "By the code in its text: the table above.",
        "OutOfOrderSequenceError": "Start the query again. At-least-once may write rows twice.",
        "ProducerFencedError": "Another run has the same transactional ids: stop it, or give each query a prefix. "
        "A transaction may also have outlived `kafka.transaction.timeout.ms`.",
        "ProducerClosedError": "The log has the reason before it; the task's next attempt opens a new producer.",
        "IllegalStateError": "A program's error: the text names the call that must come before.",
        "TransactionAbortableError": "Its cause is the first error; the next attempt writes the rows anew.",
        "TransactionAbortedError": "Look at the error before it.",
        "ExactlyOnceError": "The text says what to do; [exactly-once.md](exactly-once.md).",
        "PlanningError": "The text says what to do. Nothing of the batch is written.",
        "ReceiptsPathError": "Nothing is written: set `receiptsPath` to a folder that the driver may write to.",
        "ReplayMismatchError": "The source gave other rows than before: make it repeatable, or see "
        "[exactly-once.md](exactly-once.md).",
        "LostRowsError": "Start the query again with the same checkpoint: it writes the missing rows.",
        "NotDecidedError": "Start the query again: it writes the batch anew.",
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
        yield code, _CAUSES.get(code.name.upper(), "") if text is None else f"{text[0].upper()}{text[1:]}."


def error_classes() -> list[type[KafkaError]]:
    """Of ``errors.py`` and ``exactly_once/errors.py``, but their base."""
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
