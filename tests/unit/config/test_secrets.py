"""Objects and errors that touch secrets show none; pickles hold them."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.option import ConfigBuilder, OptionKind, Password, Status
from spark_kafka_sink.common.config.producer_config import OPTIONS_BY_NAME, PRODUCER_OPTIONS
from spark_kafka_sink.common.config.security_rules import LOGIN_HANDLERS, OAUTH_MODULE, JaasToken, parse_jaas
from spark_kafka_sink.errors import ConfigError, LoginError
from spark_kafka_sink.exactly_once.session import CommitSettings
from spark_kafka_sink.network.login.passwords import Credentials, user_credentials
from spark_kafka_sink.network.login.sasl import username
from spark_kafka_sink.network.login.token_login import Token
from spark_kafka_sink.network.login.token_sources import token_source
from spark_kafka_sink.schemas.registry.registry_options import REGISTRY_OPTIONS
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.source import KafkaDataSource

ROOT = Path(__file__).parents[3]
SECRET = "zq7f3a91"
LOGIN = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{SECRET}";'
REDACTION = re.findall(r"^spark\.redaction\.regex +(\S.*)$", (ROOT / "docs/security.md").read_text(), re.MULTILINE)
SCHEMA = StructType([StructField("value", StringType())])


def secret_options() -> dict[str, str]:
    options = {
        "kafka.bootstrap.servers": "b:9092",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": LOGIN,
        "kafka.ssl.key.password": SECRET,
        "topic": "t",
    }
    stores = {f"kafka.ssl.{store}.password": SECRET for store in ("truststore", "keystore")}
    paths = {f"kafka.ssl.{store}.location": "/f" for store in ("truststore", "keystore")}
    return {**options, **stores, **paths, "deliveryGuarantee": "exactly-once", "txnAppId": "a", "txnVersion": "1"}


def holders() -> Iterator[object]:
    """An object of each class that holds secrets."""
    options = secret_options()
    parsed = SinkOptions.parse(options)
    config = parsed.producer
    assert sum(isinstance(value, Password) for value in config.by_name().values()) == 4
    yield from (parsed, config, config.by_name())
    yield ConfigBuilder("kafka.", values=config.by_name())
    yield CommitSettings(config, "n", "ledger")
    yield KafkaDataSource(options).writer(SCHEMA, False)
    yield user_credentials(config)
    yield Credentials("u", SECRET)
    yield parse_jaas(LOGIN)
    yield JaasToken("text", SECRET)
    yield Password(SECRET)
    yield Token(SECRET, 1.0)


@pytest.mark.parametrize("holder", list(holders()), ids=lambda holder: type(holder).__name__)
def test_no_repr_and_no_str_of_an_object_shows_its_secrets(holder: object) -> None:
    assert SECRET not in f"{holder!r} {holder!s} {holder}"


def test_a_pickle_holds_the_secrets_as_tasks_need_them() -> None:
    config = SinkOptions.parse(secret_options()).producer
    pickled = pickle.dumps(config)
    assert SECRET.encode() in pickled
    assert pickle.loads(pickled) == config


@pytest.mark.parametrize(
    "options",
    [
        {option.name: f"{SECRET} "}
        for option in PRODUCER_OPTIONS
        if option.kind is OptionKind.PASSWORD and option.status is not Status.JVM_ONLY
    ]
    + [
        {"sasl.jaas.config": f"{SECRET};"},
        {"sasl.jaas.config": LOGIN.replace('"', "")},
        {"sasl.jaas.config": LOGIN[:-1]},
        {"sasl.jaas.config": f"{LOGIN} {SECRET} required;"},
        {"sasl.jaas.config": LOGIN, "sasl.mechanism": "OAUTHBEARER"},
        {"ssl.keystore.location": f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----"},
        {"ssl.truststore.location": f"-----BEGIN CERTIFICATE-----\n{SECRET}\n-----END CERTIFICATE-----"},
        {"ssl.keystore.pasword": SECRET},
        {"bootstrap.servers": f"SASL_SSL://user:{SECRET}@b:9092"},
        {"bootstrap.servers": f"user:{SECRET}@b:9092"},
    ],
    ids=",".join,
)
def test_no_error_of_the_options_shows_a_secret(options: dict[str, str]) -> None:
    given = {"bootstrap.servers": "b:9092", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    with pytest.raises(ConfigError) as raised:
        ProducerConfig.parse({**given, "acks": "none", **options})
    assert SECRET not in str(raised.value)


TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
OAUTH = {
    "kafka.bootstrap.servers": "b:9092",
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "OAUTHBEARER",
    "kafka.sasl.login.callback.handler.class": LOGIN_HANDLERS[0],
    "kafka.sasl.jaas.config": f'{OAUTH_MODULE} required clientId="i" clientSecret="s";',
    "topic": "t",
}


@pytest.mark.parametrize(
    "url",
    [
        f"https://{SECRET}:{SECRET}@host/token?key={SECRET}#{SECRET}",
        f"https://u:{SECRET}@host,https://{SECRET}:p@host/token",
        f"https://{SECRET}/{SECRET}?@host/token",
        f"file:/nowhere,https://{SECRET}:{SECRET}@host/token",
    ],
)
def test_incident_user_and_password_in_the_url_of_a_token_endpoint_were_shown(url: str) -> None:
    """In the ``repr`` of all objects that hold it, and in errors if two URLs stood in one value."""
    registry = {
        "valueFormat": "avro", "schema.registry.url": "http://localhost", "bearer.auth.client.id": "i",
        "bearer.auth.credentials.source": "OAUTHBEARER", "bearer.auth.client.secret": "s",
        "bearer.auth.issuer.endpoint.url": url,
    }  # fmt: skip
    given = {**OAUTH, f"kafka.{TOKEN_URL}": url}
    parsed = SinkOptions.parse(given if url.startswith("file") else {**given, **registry})
    config = pickle.loads(pickle.dumps(parsed.producer))
    assert config.sasl_oauthbearer_token_endpoint_url == url
    source = token_source(config, SystemClock())
    shown = f"{parsed!r} {parsed} {config!r} {config.by_name()} {source.what}"
    if url.startswith("file"):
        with pytest.raises(LoginError) as raised:
            source.fetch()
        shown += str(raised.value)
    assert SECRET not in shown
    assert "host/token" in shown
    for wrong in (f"https:u:{SECRET}@host", [url]):
        with pytest.raises(ConfigError) as refused:
            SinkOptions.parse({**given, f"kafka.{TOKEN_URL}": wrong})  # type: ignore[dict-item]
        assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("location", "inline"),
    [("ssl.keystore.location", "ssl.keystore.key"), ("ssl.truststore.location", "ssl.truststore.certificates")],
)
def test_pem_instead_of_a_path_is_an_error_that_names_the_option_for_it(location: str, inline: str) -> None:
    options = {"bootstrap.servers": "b:9092", "security.protocol": "SSL", location: "-----BEGIN X-----\n-----END X---"}
    with pytest.raises(ConfigError) as raised:
        ProducerConfig.parse(options, prefix="")
    assert str(raised.value) == f"{location} must be the path of a file, but is PEM; set that as {inline}."


CERTIFICATES = ("ssl.truststore.certificates", "ssl.keystore.certificate.chain")


def of_spark_defaults() -> list[str]:
    """Both regular expressions as Spark reads them: ``java.util.Properties`` removes backslashes."""
    text = (ROOT / "docs/security.md").read_text()
    found = re.findall(r"^spark\.(?:sql\.)?redaction\.(?:string\.)?regex +(\S.*)$", text, re.MULTILINE)
    return [regex.replace("\\", "") for regex in found]


@pytest.mark.parametrize("login", ["user:s3cret", "user:12/s3cret,word", "user:p@s3cret", "s:s@s3cret/,@s"])
def test_incident_the_documented_redaction_lost_a_backslash_and_stopped_at_the_first_at(login: str) -> None:
    options = f"[topic=t, schema.registry.url=https://{login}@registry:8081, includeHeaders=true]"
    by_value, of_strings = of_spark_defaults()
    assert re.search(by_value, f"https://{login}@registry:8081")
    hidden = re.sub(of_strings, "[hidden]", options)
    assert "s3cret" not in hidden
    assert hidden.startswith("[topic=t, ")
    assert hidden.endswith(", includeHeaders=true]")


def test_the_documented_redaction_covers_every_secret_option() -> None:
    (regex,) = REDACTION
    options = [*OPTIONS_BY_NAME.values(), *REGISTRY_OPTIONS]
    secret = [option.name for option in options if option.kind is OptionKind.PASSWORD]
    shown = [name for name in secret if not re.search(regex, name)]
    assert len(shown) == 4
    assert all(name.endswith(CERTIFICATES) for name in shown)
    assert not re.search(regex, "https://registry:8081,http://other/apis/ccompat/v7")


@pytest.mark.parametrize("user", ["alice", "${env:API_KEY}"])
def test_messages_name_the_user_but_show_no_value_of_a_config_provider(
    monkeypatch: pytest.MonkeyPatch, user: str
) -> None:
    monkeypatch.setenv("API_KEY", SECRET)
    login = LOGIN.replace('"u"', f'"{user}"')
    options = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": login}
    assert username(ProducerConfig.parse({"bootstrap.servers": "b:9092", **options})) == user
    behind_placeholder = {**options, "sasl.jaas.config": "${env:API_KEY}"}
    assert username(ProducerConfig.parse({"bootstrap.servers": "b:9092", **behind_placeholder})) is None
