"""SASL/PLAIN (RFC 4616): user and password in clear text, so only SASL_SSL hides them on the way."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from spark_kafka_sink.network.login.credentials import PasswordMechanism, user_credentials
from spark_kafka_sink.network.login.scram import SCRAM_MODULE

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"


class Plain(PasswordMechanism):
    """One message, UTF-8; the broker's response is empty or an error."""

    login_modules = (PLAIN_MODULE, SCRAM_MODULE)  # as in Java
    example = f'{PLAIN_MODULE} required username="…" password="…";'
    sends = "password"

    def exchange(self, host: str) -> Generator[bytes, bytes, None]:
        username, password, _is_token = user_credentials(self._config)
        yield f"\0{username}\0{password}".encode()
