"""The error that the state raises."""

from __future__ import annotations

from collections.abc import Sequence

from kio.schema.errors import ErrorCode

from spark_kafka_sink.errors import BrokerError


class ApiError(BrokerError):
    """The request is refused (Kafka: ``ApiException``). ``message`` goes into responses that have a field for it.
    ``records``: the index in the batch, and the message, of each refused record (Kafka: ``RecordValidationException``).
    """

    def __init__(self, error: ErrorCode, message: str | None = None, records: Sequence[tuple[int, str]] = ()) -> None:
        self.error = error
        self.message = message
        self.records = records
        super().__init__(int(error), error.name.upper(), message or error.name.upper())

    def __reduce__(self) -> tuple[type[ApiError], tuple[ErrorCode, str | None, Sequence[tuple[int, str]]]]:
        return type(self), (self.error, self.message, self.records)
