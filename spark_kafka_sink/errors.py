"""The exceptions of this package, named after the classes of ``org.apache.kafka.common.errors``."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from spark_kafka_sink.common.foreign_text import error_text


class ConnectionStep(Enum):
    """The steps of a new connection, in their order."""

    DNS = "DNS"
    TCP = "TCP"
    TLS = "TLS"
    KAFKA = "ApiVersions"
    SASL = "SASL"


class FailedStep(NamedTuple):
    """Where a connection attempt failed. ``server``: host:port, of bootstrap.servers or else of Metadata."""

    step: ConnectionStep
    server: str
    bootstrap: bool


class KafkaError(Exception):
    """Base of all errors. ``failed_step``: of the connection attempt that failed with it.

    Its text may have words of peers and data of rows, so it is escaped and cut here, for logs and terminals too.
    """

    failed_step: FailedStep | None = None

    def __init__(self, *arguments: object) -> None:
        super().__init__(*(error_text(each) if isinstance(each, str) else each for each in arguments))


def unexpected(error: Exception) -> KafkaError:
    """The error that records and calls get after an unexpected exception, whose trace is in the log."""
    wrapped = KafkaError(f"Unexpected error in the sender: {error!r}")
    wrapped.__cause__ = error
    return wrapped


class ConfigError(KafkaError, ValueError):
    """Invalid options (Java: ``ConfigException``). ``faults`` has a sentence per fault, with the option's name."""

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        super().__init__(self.faults[0] if len(faults) == 1 else "\n".join(f"- {fault}" for fault in faults))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[tuple[str, ...]]]:
        return type(self), (self.faults,)


class KafkaTimeoutError(KafkaError, TimeoutError):
    """An operation exceeded its timeout (Java: ``TimeoutException``).

    ``missing_topic``: the topic that it waited for in vain, because the brokers say that there is none.
    """

    missing_topic: str | None = None


class BufferExhaustedError(KafkaTimeoutError):
    """``buffer.memory`` stayed full for ``max.block.ms`` (Java: ``BufferExhaustedException``)."""


class InvalidRecordError(KafkaError, ValueError):
    """A row is not a valid record: null topic, null header key, negative partition.

    ``row``: its index in the caller's columns, None if the error concerns all rows.
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


class DeadLetterPathError(KafkaError):
    """``deadLetterPath`` cannot be written by an executor."""


class SerializationError(KafkaError, ValueError):
    """A serializer failed on a key or value (Java: ``SerializationException``)."""


class RecordTooLargeError(InvalidRecordError):
    """A record is larger than ``max.request.size`` or ``buffer.memory`` (Java: ``RecordTooLargeException``)."""


class RegistryError(KafkaError):
    """The schema registry refused a request or did not respond (Java: ``RestClientException``).

    ``status``: of HTTP, None without a response. ``error_code``: the registry's own, None without one.
    """

    def __init__(self, message: str, status: int | None = None, error_code: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.error_code = error_code

    def __reduce__(self) -> tuple[type[RegistryError], tuple[str, int | None, int | None]]:
        return type(self), (str(self), self.status, self.error_code)


class FailedToSendError(KafkaError):
    """A synchronous ``send`` failed for some records (Kafka 0.8: ``FailedToSendMessageException``).

    ``errors``: the last error of each failed record, by its index in the call. ``delivered``: the metadata of the
    delivered ones. Records in neither were not sent.
    """

    def __init__(self, message: str, errors: Mapping[int, Exception], delivered: Mapping[int, object]) -> None:
        super().__init__(message)
        self.errors = dict(errors)
        self.delivered = dict(delivered)

    def __reduce__(self) -> tuple[type[FailedToSendError], tuple[str, dict[int, Exception], dict[int, object]]]:
        return type(self), (str(self), self.errors, self.delivered)


class CorruptRecordError(KafkaError, ValueError):
    """A record batch has a wrong CRC, length, magic or payload (Java: ``CorruptRecordException``)."""


class NetworkError(KafkaError):
    """No broker could be reached, or the peer is not a Kafka listener (Java: ``NetworkException``)."""


class WrongProtocolError(NetworkError):
    """The peer does not speak Kafka's protocol: a TLS port, an HTTP server, an invalid frame length."""


class BootstrapResolutionError(KafkaError):
    """No host of ``bootstrap.servers`` was resolved in time (Java: ``BootstrapResolutionException``).

    The time is ``bootstrap.resolve.timeout.ms``. The error is permanent: close the client, and make a new one.
    """


class RebootstrapRequiredError(NetworkError):
    """A broker is not the one that the connection was meant for (REBOOTSTRAP_REQUIRED, KIP-1242)."""


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
    """The driver's login or certificate was refused before any task (``driverCheck``). ``__cause__`` is the reason.

    A ``PickleError``, as ``TopicCreationError``.
    """


class UnsupportedVersionError(KafkaError):
    """Broker and client share no version of an API (Java: ``UnsupportedVersionException``)."""


class RequestBuildError(KafkaError):
    """A request could not be built, so it was not sent. ``__cause__`` is the exception; the log has its trace."""


class BrokerError(KafkaError):
    """A broker responded with an error code. ``code``: Kafka's number; ``name``: its upper-case name."""

    def __init__(self, code: int, name: str, message: str) -> None:
        self.code = code
        self.name = name
        super().__init__(message)

    def __reduce__(self) -> tuple[type[BrokerError], tuple[int, str, str]]:
        return type(self), (self.code, self.name, str(self))


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
