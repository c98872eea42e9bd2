"""Tokens for Amazon MSK with IAM: a URL presigned for ``kafka-cluster:Connect``.

AWS's counterpart is ``IAMOAuthBearerLoginCallbackHandler``. Credentials come from botocore's chain: environment, files
of the AWS CLI, container, machine.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

import botocore.auth
import botocore.session
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import ReadOnlyCredentials
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, MetadataRetrievalError

from spark_kafka_sink import __version__
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import LoginError
from spark_kafka_sink.network.login.refusals import token_error
from spark_kafka_sink.network.login.sasl import jaas_options
from spark_kafka_sink.network.login.token_login import RetriableLoginError, Token, base64url

_SERVICE: Final = "kafka-cluster"
_VALID_FOR_S: Final = 900
_NO_RESPONSE: Final = (HTTPClientError, MetadataRetrievalError)
_ROLE_SESSION_NAME: Final = "spark-kafka-sink"
_REGION: Final = re.compile(r"\.([a-z]{2}(?:-[a-z]+)+-[0-9])\.amazonaws\.com(?:\.cn)?\.?")


class AwsTokens:
    """Uses the options ``awsProfileName``, ``awsRoleArn`` and ``awsRoleSessionName`` of ``sasl.jaas.config``."""

    what = "a token of AWS IAM"

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config

    def fetch(self) -> Token:
        region = region_of(self._config)
        try:
            credentials, expires_at = self._credentials(region)
        except (BotoCoreError, ClientError) as error:
            reason = str(error) if isinstance(error, ClientError) else f"{type(error).__name__}: {error}"
            kind = RetriableLoginError if isinstance(error, _NO_RESPONSE) else LoginError
            raise token_error(f"AWS returned no credentials: {reason}", kind) from None
        return presign(region, credentials, expires_at)

    def _credentials(self, region: str) -> tuple[ReadOnlyCredentials, float]:
        """The credentials and their end (ms since 1970), which is infinite if botocore gives none."""
        options = jaas_options(self._config)
        session = botocore.session.Session(profile=options.get("awsProfileName"))
        found = session.get_credentials()
        if found is None:
            raise LoginError(
                "AWS returned no credentials: neither the environment nor a profile nor the machine has any"
            )
        if "awsRoleArn" not in options:
            return found.get_frozen_credentials(), float("inf")
        role = self._assume_role(session, region, options)
        keys = ReadOnlyCredentials(role["AccessKeyId"], role["SecretAccessKey"], role["SessionToken"])
        return keys, role["Expiration"].timestamp() * 1000.0

    def _assume_role(self, session: Any, region: str, options: dict[str, str]) -> Any:
        timeouts = Config(
            connect_timeout=self._config.sasl_login_connect_timeout_ms / 1000.0,
            read_timeout=self._config.sasl_login_read_timeout_ms / 1000.0,
            retries={"total_max_attempts": 2},
        )
        client = session.create_client("sts", region_name=region, config=timeouts)
        name = options.get("awsRoleSessionName", _ROLE_SESSION_NAME)
        return client.assume_role(RoleArn=options["awsRoleArn"], RoleSessionName=name)["Credentials"]


def region_of(config: ProducerConfig) -> str:
    """The region in the first AWS host name among the brokers, else ``AWS_REGION``. Raises ``LoginError``."""
    for host, _ in config.bootstrap_servers:
        if (match := _REGION.search(host.lower())) is not None:
            return match[1]
    if region := os.environ.get("AWS_REGION", "").strip():
        return region
    raise LoginError(
        "the region of the cluster is unknown: bootstrap.servers has no name that ends in <region>.amazonaws.com; set "
        "AWS_REGION in the environment of the driver and the executors"
    )


def presign(region: str, credentials: ReadOnlyCredentials, expires_at: float) -> Token:
    """The presigned URL as base64 without padding. It expires with the credentials, or after 15 minutes."""
    request = AWSRequest("GET", f"https://kafka.{region}.amazonaws.com/", params={"Action": "kafka-cluster:Connect"})
    botocore.auth.SigV4QueryAuth(credentials, _SERVICE, region, expires=_VALID_FOR_S).add_auth(request)
    # The signature does not cover this, as in AWS's own signers.
    url = f"{request.url}&User-Agent={quote(f'spark-kafka-sink/{__version__}', safe='')}"
    signed_at = datetime.strptime(request.context["timestamp"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp() * 1000
    value = base64url(url.encode())
    return Token(value, min(signed_at + _VALID_FOR_S * 1000.0, expires_at), signed_at)
