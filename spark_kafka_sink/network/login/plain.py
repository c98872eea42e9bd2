"""SASL/PLAIN (RFC 4616): user and password in clear text, so only SASL_SSL hides them on the way."""

from __future__ import annotations

from collections.abc import Generator

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.network.login.credentials import user_credentials


class Plain:
    """One message, UTF-8; the broker's response is empty or an error."""

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config

    def exchange(self, host: str) -> Generator[bytes, bytes, None]:
        username, password, _is_token = user_credentials(self._config)
        yield f"\0{username}\0{password}".encode()

    def close(self) -> None:
        """Nothing is open."""
