"""Tokens of AWS, Google and Azure from fake credentials, down to the client's first message."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import azure.core.credentials
import azure.identity
import botocore.auth
import google.auth
import google.auth.exceptions
import pytest
from azure.core.exceptions import ClientAuthenticationError

from spark_kafka_sink import __version__
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import LoginError
from spark_kafka_sink.network.login.aws import AwsTokens
from spark_kafka_sink.network.login.azure import AzureTokens
from spark_kafka_sink.network.login.gcp import GcpTokens
from spark_kafka_sink.network.login.oauthbearer import initial_response
from tests.support.manual_clock import ManualClock

OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
MSK = "b-1.orders.abc123.c2.kafka.eu-central-1.amazonaws.com:9098"
SIGNED_AT = datetime(2026, 3, 1, 12, 30, 5, tzinfo=UTC)
KEY, SECRET, SESSION = "AKIDEXAMPLE", "hunter2/secret+key", "session/token=="


def config(servers=MSK, jaas="", provider="aws"):
    return ProducerConfig.parse({
        "bootstrap.servers": servers, "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{OAUTH} required {jaas};", "sasl.token.provider": provider,
    })  # fmt: skip


def b64decoded(text):
    assert "=" not in text
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()


# AWS.


@pytest.fixture
def aws(monkeypatch, tmp_path):
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: SIGNED_AT)
    return tmp_path


SIGNATURES = {
    None: "acdb702626d84fdc06be617eb60b3cf24ad32cf94dcb950ee354d0df2582368f",
    SESSION: "994f7bfc64ba2b95f7d1091b246fe46dc8a1aa22cba8fc2a5717039a124012cd",
}
"""By session token: AWS Signature Version 4 of the URL below by hand, with ``host`` as the only header."""


def expected_url(session=None):
    query = {
        "Action": "kafka-cluster:Connect", "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": f"{KEY}/20260301/eu-central-1/kafka-cluster/aws4_request",
        "X-Amz-Date": "20260301T123005Z", "X-Amz-Expires": "900", "X-Amz-SignedHeaders": "host",
        **({"X-Amz-Security-Token": session} if session else {}), "X-Amz-Signature": SIGNATURES[session],
        "User-Agent": f"spark-kafka-sink/{__version__}",
    }  # fmt: skip
    return f"https://kafka.eu-central-1.amazonaws.com/?{urlencode(query, safe='-_.~', quote_via=quote)}"


def test_the_first_message_to_msk_has_the_presigned_url_as_its_token(aws):
    token = AwsTokens(config()).fetch()
    encoded = base64.urlsafe_b64encode(expected_url().encode()).rstrip(b"=")
    assert initial_response(token.value, {}) == b"n,,\x01auth=Bearer " + encoded + b"\x01\x01"
    begin = SIGNED_AT.timestamp() * 1000
    assert (token.issued_at, token.expires_at) == (begin, begin + 900_000)


def test_temporary_credentials_of_aws_sign_with_their_session_token(aws, monkeypatch):
    monkeypatch.setenv("AWS_SESSION_TOKEN", SESSION)
    assert b64decoded(AwsTokens(config()).fetch().value) == expected_url(SESSION)


@pytest.mark.parametrize(
    ("servers", "region"),
    [
        ("boot-x1y2.c3.kafka-serverless.us-east-1.amazonaws.com:9098", "us-east-1"),
        ("b-1.c.x.c2.kafka.cn-north-1.amazonaws.com.cn:9098", "cn-north-1"),
        ("b-1.c.x.c2.kafka.us-gov-west-1.amazonaws.com:9098", "us-gov-west-1"),
        ("private:9098,B-2.C.X.C2.KAFKA.AP-SOUTHEAST-2.AMAZONAWS.COM:9098", "ap-southeast-2"),
    ],
)
def test_the_region_is_that_of_the_brokers_name(aws, monkeypatch, servers, region):
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    assert f"kafka.{region}.amazonaws.com" in b64decoded(AwsTokens(config(servers)).fetch().value)


def test_without_a_region_in_the_name_it_is_that_of_the_environment_and_otherwise_an_error(aws, monkeypatch):
    with pytest.raises(LoginError, match=r"^the region of the cluster is unknown: .*; set AWS_REGION"):
        AwsTokens(config("msk.internal:9098")).fetch()
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    assert "kafka.eu-west-3.amazonaws.com" in b64decoded(AwsTokens(config("msk.internal:9098")).fetch().value)


def test_aws_profile_name_chooses_the_profile(aws, monkeypatch):
    (aws / "credentials").write_text("[orders]\naws_access_key_id = AKIDORDERS\naws_secret_access_key = s\n")
    url = b64decoded(AwsTokens(config(jaas='awsProfileName="orders"')).fetch().value)
    assert dict(parse_qsl(urlsplit(url).query))["X-Amz-Credential"].startswith("AKIDORDERS/")
    with pytest.raises(LoginError, match=r"^AWS returned no credentials: ProfileNotFound: .*nobody"):
        AwsTokens(config(jaas='awsProfileName="nobody"')).fetch()


def test_aws_role_arn_signs_with_the_credentials_of_the_role(aws, monkeypatch):
    asked = []
    ends = SIGNED_AT.replace(hour=12, minute=35)
    keys = {"AccessKeyId": KEY, "SecretAccessKey": SECRET, "SessionToken": SESSION, "Expiration": ends}

    class Sts:
        def assume_role(self, **parameters):
            asked.append(parameters)
            return {"Credentials": keys}

    def create_client(session, service, region_name, config):
        asked.append((service, region_name, config.connect_timeout, config.read_timeout))
        return Sts()

    monkeypatch.setattr("botocore.session.Session.create_client", create_client)
    token = AwsTokens(config(jaas='awsRoleArn="arn:aws:iam::1:role/r" awsRoleSessionName="job"')).fetch()
    assert asked == [
        ("sts", "eu-central-1", 10.0, 10.0),
        {"RoleArn": "arn:aws:iam::1:role/r", "RoleSessionName": "job"},
    ]
    assert b64decoded(token.value) == expected_url(SESSION)
    assert token.expires_at == ends.timestamp() * 1000


def test_without_credentials_of_aws_the_login_says_so(aws, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(LoginError, match="^AWS returned no credentials: neither the environment nor a profile"):
        AwsTokens(config()).fetch()


# Google.


class GoogleCredentials:
    token = None
    expiry = None

    def __init__(self, **account):
        self.__dict__.update(account)

    def refresh(self, request):
        self.token, self.expiry = "ya29.access", datetime(2026, 3, 1, 13, 30, 5)


def google_default(monkeypatch, credentials):
    asked = []
    monkeypatch.setattr(google.auth, "default", lambda scopes: asked.append(scopes) or (credentials, "project"))
    return asked


@pytest.mark.parametrize("account", ["service_account_email", "account"])
def test_the_first_message_to_google_wraps_the_access_token_as_a_jwt(monkeypatch, account):
    asked = google_default(monkeypatch, GoogleCredentials(**{account: "orders@project.iam.gserviceaccount.com"}))
    clock = ManualClock()
    now = clock.epoch_ms()
    token = GcpTokens(config("bootstrap.c.eu.managedkafka.p.cloud.goog:9092", provider="gcp"), clock).fetch()
    expires = int(datetime(2026, 3, 1, 13, 30, 5, tzinfo=UTC).timestamp())
    header, claims, access = token.value.split(".")
    assert b64decoded(header) == '{"typ":"JWT","alg":"GOOG_OAUTH2_TOKEN"}'
    assert b64decoded(claims) == (
        f'{{"exp":{expires},"iat":{int(now // 1000)},"scope":"kafka","sub":"orders@project.iam.gserviceaccount.com"}}'
    )
    assert b64decoded(access) == "ya29.access"
    assert token.expires_at == expires * 1000
    assert asked == [["https://www.googleapis.com/auth/cloud-platform"]]
    assert initial_response(token.value, {}) == f"n,,\x01auth=Bearer {token.value}\x01\x01".encode()


def test_credentials_of_google_without_an_account_are_an_error(monkeypatch):
    google_default(monkeypatch, GoogleCredentials())
    with pytest.raises(LoginError, match="do not name an account; use those of a service account"):
        GcpTokens(config(provider="gcp"), ManualClock()).fetch()


def test_without_credentials_of_google_the_login_says_so(monkeypatch):
    def fail(scopes):
        raise google.auth.exceptions.DefaultCredentialsError("none were found")

    monkeypatch.setattr(google.auth, "default", fail)
    with pytest.raises(LoginError, match="^Google gave no access token: DefaultCredentialsError: none were found$"):
        GcpTokens(config(provider="gcp"), ManualClock()).fetch()


# Azure.


class AzureCredential:
    def __init__(self, asked, answer, **timeouts):
        self._asked, self._answer = asked, answer
        asked.append(timeouts)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._asked.append("closed")

    def get_token(self, *scopes):
        self._asked.append(scopes)
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def azure_credential(monkeypatch, answer):
    asked = []
    monkeypatch.setattr(
        "spark_kafka_sink.network.login.azure.DefaultAzureCredential",
        lambda **given: AzureCredential(asked, answer, **given),
    )
    return asked


def test_the_first_message_to_event_hubs_has_a_token_of_the_namespaces_scope(monkeypatch):
    asked = azure_credential(monkeypatch, azure.core.credentials.AccessToken("ey.jwt.x", 1_772_368_205))
    token = AzureTokens(config("orders.servicebus.windows.net:9093", provider="azure")).fetch()
    assert initial_response(token.value, {}) == b"n,,\x01auth=Bearer ey.jwt.x\x01\x01"
    assert token.expires_at == 1_772_368_205_000
    assert asked == [
        {"connection_timeout": 10.0, "read_timeout": 10.0},
        ("https://orders.servicebus.windows.net/.default",),
        "closed",
    ]


def test_without_credentials_of_azure_the_login_says_so(monkeypatch):
    azure_credential(monkeypatch, ClientAuthenticationError("no managed identity"))
    with pytest.raises(LoginError, match=r"^Azure gave no token for https://orders\.servicebus\.windows\.net/\.defau"):
        AzureTokens(config("orders.servicebus.windows.net:9093", provider="azure")).fetch()
