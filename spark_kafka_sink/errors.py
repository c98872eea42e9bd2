"""The exceptions of this package, named after the classes of ``org.apache.kafka.common.errors``.

Their texts quote peers. ``sanitize`` makes such text safe for logs and terminals, and ``clause`` lets a sentence
continue after it.
"""

from __future__ import annotations

import copy
import copyreg
import pickle
from collections.abc import Mapping, Sequence
from enum import Enum
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

_E = TypeVar("_E", bound=Exception)


class ConnectionStep(Enum):
    """The steps of a new connection, in their order."""

    DNS = "DNS"
    TCP = "TCP"
    TLS = "TLS"
    KAFKA = "ApiVersions"
    SASL = "SASL"


class FailedStep(NamedTuple):
    """The place where a connection attempt failed. ``server``: host:port, from bootstrap.servers or else from
    Metadata."""

    step: ConnectionStep
    server: str
    bootstrap: bool


class KafkaError(Exception):
    """Base of all errors. ``failed_step`` is the step of a connection attempt that failed with this error. ``row``
    is the number of the row that the error is about, if it is known.

    An error's text may quote peers and rows, so it is escaped and cut here, which also protects logs and terminals.
    """

    failed_step: FailedStep | None = None
    row: int | None = None
    escapes = True
    """False for texts with line ends of their own, such as the log of a child process."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(
            *(
                error_text(argument) if self.escapes and isinstance(argument, str) else argument
                for argument in arguments
            )
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Unpickling calls no ``__init__``, because its arguments differ from class to class."""
        return copyreg.__newobj__, (type(self),), {**self.__dict__, "args": self.args}  # type: ignore[attr-defined]


def own_copy(error: _E, trace: TracebackType | None = None) -> _E:
    """A copy of an error that several callers raise, one copy for each, because each raise adds its frames to the
    traceback.

    Class, arguments, attributes and cause are the same; the traceback begins after ``trace``. Errors of other packages
    may not survive a copy, so they are not copied; only the frames of earlier callers are dropped.
    """
    if not isinstance(error, KafkaError):
        return error.with_traceback(trace)
    copied = copy.copy(error)
    copied.__cause__, copied.__context__ = error.__cause__, error.__context__
    copied.__suppress_context__ = error.__suppress_context__
    return copied.with_traceback(trace)


def unexpected_error(error: Exception) -> KafkaError:
    """The error that records and calls get after an unexpected exception, whose trace is in the log."""
    wrapped = KafkaError(f"Unexpected error in the sender: {error!r}")
    wrapped.__cause__ = error
    return wrapped


class ConfigError(KafkaError, ValueError):
    """Invalid options (Java: ``ConfigException``). ``faults`` has a sentence per fault, with the option's name."""

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(sanitize(fault, MAX_ERROR_LENGTH) for fault in faults)
        super().__init__(error_list(faults))


class KafkaTimeoutError(KafkaError, TimeoutError):
    """An operation exceeded its timeout (Java: ``TimeoutException``).

    ``missing_topic``: the topic that it waited for in vain, because it does not exist. ``missing_partition``: a topic,
    and the partition that the topic does not have.
    """

    missing_topic: str | None = None
    missing_partition: tuple[str, int] | None = None


class BufferExhaustedError(KafkaTimeoutError):
    """``buffer.memory`` stayed full for ``max.block.ms`` (Java: ``BufferExhaustedException``)."""


class InvalidRecordError(KafkaError, ValueError):
    """A row is not a valid record: null topic, null header key, negative partition.

    ``row``: the row's index in the caller's columns, None if the error concerns all rows.
    """

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


class TopicCreationError(KafkaError, pickle.PickleError):
    """A topic does not exist, and ``topicCreation`` or a missing right keeps the sink from creating it.

    Spark passes a ``PickleError`` on unchanged while it pickles a writer.
    """


class DeadLetterLimitError(KafkaError):
    """More rows than ``deadLetterLimit`` became dead letters."""


class SerializationError(KafkaError, ValueError):
    """A serializer failed on a key or value (Java: ``SerializationException``)."""


class RecordTooLargeError(InvalidRecordError):
    """A record is larger than ``max.request.size`` or ``buffer.memory`` (Java: ``RecordTooLargeException``)."""


class RegistryError(KafkaError):
    """The schema registry refused a request or did not respond (Java: ``RestClientException``).

    ``status``: the HTTP status, 409 for an incompatible schema, None without a response. ``error_code``: the registry's
    own code, None without one.
    """

    def __init__(self, message: str, status: int | None = None, error_code: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.error_code = error_code


class FailedToSendError(KafkaError):
    """A synchronous ``send`` failed for some records (Kafka 0.8: ``FailedToSendMessageException``).

    ``errors``: the last error of each failed record, by its index in the call. ``delivered``: the metadata of the
    delivered records. Records in neither were not sent.
    """

    def __init__(self, message: str, errors: Mapping[int, Exception], delivered: Mapping[int, object]) -> None:
        super().__init__(message)
        self.errors = dict(errors)
        self.delivered = dict(delivered)


class CorruptRecordError(KafkaError, ValueError):
    """A record batch has a wrong CRC, length, magic or payload (Java: ``CorruptRecordException``)."""


class NetworkError(KafkaError):
    """No broker could be reached, or the peer is not a Kafka listener (Java: ``NetworkException``)."""


class WrongProtocolError(NetworkError):
    """The peer does not speak Kafka's protocol: a TLS port, an HTTP server, an invalid frame length."""


class AuthenticationError(KafkaError):
    """Authentication failed; a retry would fail too (Java: ``AuthenticationException``)."""


class SslAuthenticationError(AuthenticationError):
    """The TLS handshake failed, or a certificate was refused (Java: ``SslAuthenticationException``)."""


class SaslAuthenticationError(AuthenticationError):
    """The broker refused the credentials (Java: ``SaslAuthenticationException``)."""


class LoginError(SaslAuthenticationError):
    """The client has no token or ticket to log in with (Java: ``LoginException``)."""


class UnsupportedSaslMechanismError(AuthenticationError):
    """The broker does not offer ``sasl.mechanism`` (Java: ``UnsupportedSaslMechanismException``)."""


class IllegalSaslStateError(AuthenticationError):
    """A SASL message was not expected (Java: ``IllegalSaslStateException``)."""


class DriverCheckError(AuthenticationError, pickle.PickleError):
    """Before any task, a broker refused the driver, or the driver could reach none (``driverCheck``).
    ``__cause__`` is the reason.

    A ``PickleError``, as ``TopicCreationError``.
    """


class UnsupportedVersionError(KafkaError):
    """Broker and client share no version of an API (Java: ``UnsupportedVersionException``)."""


class RequestBuildError(KafkaError):
    """A request could not be built, so it was not sent. ``__cause__`` is the exception; the log has its trace."""


class BrokerError(KafkaError):
    """A broker responded with an error code. ``code``: Kafka's number; ``name``: its upper-case name.

    ``broker_message``: the broker's own words in the message.
    """

    broker_message = ""

    def __init__(self, code: int, name: str, message: str) -> None:
        self.code = code
        self.name = name
        super().__init__(message)


class OutOfOrderSequenceError(BrokerError):
    """A batch was lost: its records may or may not be in the log (Java: ``OutOfOrderSequenceException``)."""


class ProducerFencedError(BrokerError):
    """A newer producer fenced this one (Java: ``ProducerFencedException``)."""


class ProducerClosedError(KafkaError):
    """The producer was closed, its sender thread died, or a fork inherited it."""


class IllegalStateError(KafkaError):
    """The producer's state does not allow the call (Java: ``IllegalStateException``)."""


class TransactionAbortableError(KafkaError):
    """The open transaction failed and must be aborted (Java: ``TransactionAbortableException``).

    ``__cause__`` is the first error. The producer can be used after ``abort_transaction()``.
    """


class TransactionAbortedError(KafkaError):
    """Records were not sent: their transaction was aborted (Java: ``TransactionAbortedException``)."""


_MAX_LENGTH = 2000
MAX_ERROR_LENGTH = 20_000
_ITEM = "\n- "
_MAX_ITEMS = 50


def sanitize(text: str, longest: int = _MAX_LENGTH) -> str:
    """The text for people: at most ``longest`` characters, and a mark if some are left out, on one line.

    Characters that ``str.isprintable`` refuses are written as escapes. They include line ends, which could forge lines
    of a log, ESC, which controls a terminal, and marks that change the direction of writing.
    """
    begin = text[: longest + 1]
    if begin.isprintable():
        return begin if len(begin) <= longest else f"{begin[:longest]}…"
    escaped = ""
    for char in begin:
        piece = char if char.isprintable() else ascii(char)[1:-1]
        if len(escaped) + len(piece) > longest:
            return f"{escaped}…"
        escaped += piece
    return escaped


def error_text(text: str) -> str:
    """The text of an error, escaped, and cut with a mark after 20,000 characters. The text may be a list, and quote
    peers."""
    escaped = _ITEM.join(sanitize(each, MAX_ERROR_LENGTH) for each in text[: MAX_ERROR_LENGTH + 1].split(_ITEM))
    return escaped if len(escaped) <= MAX_ERROR_LENGTH else f"{escaped[:MAX_ERROR_LENGTH]}…"


def error_list(items: Sequence[str]) -> str:
    """The text of an error about these items: each on a line of its own, unless there is only one."""
    escaped = first_items(items)
    return escaped[0] if len(escaped) == 1 else "\n".join(f"- {item}" for item in escaped)


def first_items(items: Sequence[object], most: int = _MAX_ITEMS) -> list[str]:
    """The texts of the first items, and the number of the others."""
    texts = [sanitize(str(item), MAX_ERROR_LENGTH) for item in items[:most]]
    return [*texts, f"… and {len(items) - most:,} more"] if len(items) > most else texts


def listed(items: Sequence[object], longest: int = 200) -> str:
    """The items that fit into ``longest`` characters, separated by commas, and the number of the others."""
    text = ""
    for index, item in enumerate(items):
        each = sanitize(str(item), longest // 2)
        if text and len(text) + len(each) > longest:
            return f"{text} … and {len(items) - index:,} more"
        text += f", {each}" if text else each
    return text


def clause(error: object) -> str:
    """The text without its full stop, so that a sentence can continue after it."""
    return str(error).removesuffix(".")
