"""Kafka's exception classes by error code, for what a broker writes into its log (Kafka: ``Errors.exceptionName``)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kio.schema.errors import ErrorCode

_PACKAGE: Final = "org.apache.kafka.common.errors."

_IRREGULAR: Final[Mapping[ErrorCode, str]] = MappingProxyType(
    {
        ErrorCode.corrupt_message: "CorruptRecordException",
        ErrorCode.invalid_topic_exception: "InvalidTopicException",
        ErrorCode.kafka_storage_error: "KafkaStorageException",
        ErrorCode.message_too_large: "RecordTooLargeException",
        ErrorCode.network_exception: "NetworkException",
        ErrorCode.out_of_order_sequence_number: "OutOfOrderSequenceException",
        ErrorCode.record_list_too_large: "RecordBatchTooLargeException",
        ErrorCode.request_timed_out: "TimeoutException",
        ErrorCode.unknown_server_error: "UnknownServerException",
    }
)


def exception_name(error: ErrorCode) -> str:
    """``UnknownTopicOrPartitionException`` with its package; ``null`` without an error, as Scala writes it."""
    if error is ErrorCode.none:
        return "null"
    words = "".join(word.capitalize() for word in error.name.split("_"))
    return _PACKAGE + _IRREGULAR.get(error, f"{words}Exception")
