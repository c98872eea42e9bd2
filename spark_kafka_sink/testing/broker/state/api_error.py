"""The error that the state raises."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from spark_kafka_sink.errors import BrokerError


class ApiError(BrokerError):
    """The request is refused (Kafka: ``ApiException``). ``message`` goes into responses that have a field for it."""

    def __init__(self, error: ErrorCode, message: str | None = None) -> None:
        self.error = error
        self.message = message
        super().__init__(int(error), error.name.upper(), message or error.name.upper())

    def __reduce__(self) -> tuple[type[ApiError], tuple[ErrorCode, str | None]]:
        return type(self), (self.error, self.message)
