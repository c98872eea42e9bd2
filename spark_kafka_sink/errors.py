"""Every exception this package raises on purpose. Names follow the classes of ``org.apache.kafka.common.errors``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class KafkaError(Exception):
    """Base of all errors of this package."""


def unexpected(error: Exception) -> KafkaError:
    """The error of records and calls that an unexpected exception concerned; its trace is in the log."""
    wrapped = KafkaError(f"Unexpected error in the sender: {error!r}")
    wrapped.__cause__ = error
    return wrapped


class ConfigError(KafkaError, ValueError):
    """Options that cannot work, all faults in one message.

    ``faults`` holds one sentence per fault, each naming its option.
    """

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        super().__init__(self.faults[0] if len(faults) == 1 else "\n".join(f"- {fault}" for fault in faults))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[tuple[str, ...]]]:
        return type(self), (self.faults,)


class KafkaTimeoutError(KafkaError, TimeoutError):
    """Something did not happen within the time its option grants (Java: ``TimeoutException``)."""


class BufferExhaustedError(KafkaTimeoutError):
    """``buffer.memory`` stayed full for ``max.block.ms`` (Java: ``BufferExhaustedException``)."""


class InvalidRecordError(KafkaError, ValueError):
    """A row that cannot become a record: null topic, null header key, negative partition.

    ``row`` is its index within the columns that were given, None where it is not one row's fault.
    """

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


class SerializationError(KafkaError, ValueError):
    """A key or value that its serializer cannot turn into bytes (Java: ``SerializationException``)."""


class RecordTooLargeError(InvalidRecordError):
    """A record over ``max.request.size`` or ``buffer.memory`` (Java: ``RecordTooLargeException``)."""


class FailedToSendError(KafkaError):
    """Records that a synchronous ``send`` gave up (Kafka 0.8: ``FailedToSendMessageException``).

    ``errors``: what each of them failed with last, by its place in the call; ``delivered``: the metadata of those that
    are in the log all the same. Records in neither were not tried any more.
    """

    def __init__(self, message: str, errors: Mapping[int, Exception], delivered: Mapping[int, object]) -> None:
        super().__init__(message)
        self.errors = dict(errors)
        self.delivered = dict(delivered)

    def __reduce__(self) -> tuple[type[FailedToSendError], tuple[str, dict[int, Exception], dict[int, object]]]:
        return type(self), (str(self), self.errors, self.delivered)


class CorruptRecordError(KafkaError, ValueError):
    """Bytes that are no intact record batch: wrong CRC, length, magic or payload (Java: ``CorruptRecordException``)."""


class NetworkError(KafkaError):
    """No broker could be reached, or what answered is not a Kafka listener."""


class WrongProtocolError(NetworkError):
    """The peer's bytes are not Kafka's: a TLS port, an HTTP server, a frame of absurd length."""


class UnsupportedVersionError(KafkaError):
    """Broker and client share no version of an API (Java: ``UnsupportedVersionException``)."""


class BrokerError(KafkaError):
    """A broker answered with an error code. ``code`` is Kafka's number, ``name`` its upper-case name."""

    def __init__(self, code: int, name: str, message: str) -> None:
        self.code = code
        self.name = name
        super().__init__(message)

    def __reduce__(self) -> tuple[type[BrokerError], tuple[int, str, str]]:
        return type(self), (self.code, self.name, str(self))


class OutOfOrderSequenceError(BrokerError):
    """A sequence number was lost: the idempotent producer cannot tell whether records are in the log."""


class ProducerFencedError(BrokerError):
    """A newer producer took this one's transactional id or epoch."""


class ProducerClosedError(KafkaError):
    """The producer was closed, in this process or because its sender thread died."""


class IllegalStateError(KafkaError):
    """A call that the producer's present state does not allow (Java: ``IllegalStateException``)."""


class TransactionAbortableError(KafkaError):
    """The open transaction has failed and can only be aborted (Java: ``TransactionAbortableException``).

    ``__cause__`` is what failed. After ``abort_transaction()`` the producer goes on.
    """


class TransactionAbortedError(KafkaError):
    """Records that were not sent because their transaction was aborted (Java: ``TransactionAbortedException``)."""
