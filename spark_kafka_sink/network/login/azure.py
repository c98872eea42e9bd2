"""Tokens for Azure Event Hubs by Microsoft Entra ID, from azure-identity's ``DefaultAzureCredential``."""

from __future__ import annotations

from azure.core.exceptions import AzureError
from azure.identity import DefaultAzureCredential

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.network.login.refusals import token_error
from spark_kafka_sink.network.login.token_login import Token


class AzureTokens:
    """Gets tokens for ``https://<host>/.default``: the first bootstrap server is the namespace of Event Hubs."""

    what = "a token of Azure"

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config

    def fetch(self) -> Token:
        host, _port = self._config.bootstrap_servers[0]
        connect, read = self._config.sasl_login_connect_timeout_ms, self._config.sasl_login_read_timeout_ms
        try:
            with DefaultAzureCredential(connection_timeout=connect / 1000.0, read_timeout=read / 1000.0) as credential:
                token = credential.get_token(f"https://{host}/.default")
        except AzureError as error:
            raise token_error(f"Azure gave no token for https://{host}/.default: {error}") from None
        return Token(token.token, token.expires_on * 1000.0)
