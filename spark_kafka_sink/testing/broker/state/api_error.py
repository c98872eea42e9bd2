"""How state says no."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from spark_kafka_sink.errors import BrokerError


class ApiError(BrokerError):
    """What was asked is not done (Kafka: ``ApiException``). ``message`` goes into answers that have room for one."""

    def __init__(self, error: ErrorCode, message: str | None = None) -> None:
        self.error = error
        self.message = message
        super().__init__(int(error), error.name.upper(), message or error.name.upper())

    def __reduce__(self) -> tuple[type[ApiError], tuple[ErrorCode, str | None]]:  # type: ignore[override]
        return type(self), (self.error, self.message)
