"""What an operator's environment variables allow, where options are parsed and where their values are used."""

import pyarrow as pa
import pytest

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.providers import (
    CLASSES,
    FILES,
    PROVIDERS,
    URLS,
    class_fault,
    file_fault,
    provider_fault,
    url_fault,
)
from spark_kafka_sink.errors import ConfigError, LoginError
from spark_kafka_sink.network.login.kerberos import KRB5_MODULE
from spark_kafka_sink.network.login.passwords import user_credentials
from spark_kafka_sink.network.login.token_providers import provided_tokens
from spark_kafka_sink.network.login.token_sources import token_source
from spark_kafka_sink.network.security.stores import read_files
from spark_kafka_sink.producer.partitioner import CustomPartitioner
from spark_kafka_sink.schemas.formats.format_options import FormatError
from spark_kafka_sink.schemas.formats.plan import FrameColumn, plan_formats
from spark_kafka_sink.schemas.registry.client import ConfluentRegistry
from spark_kafka_sink.schemas.registry.registry_options import ConfluentOptions
from spark_kafka_sink.schemas.registry.schema import Side
from spark_kafka_sink.spark.options import SinkOptions
from tests.support.options import OAUTH, SERVERS, TOKEN_URL

PLAIN = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required username=u "
    'password="${env:TEAM_PASSWORD}";',
}
PACKAGE = "org.apache.kafka.common.config.provider."


def parse(options):
    return ProducerConfig.parse({**SERVERS, **options})


def fault(options, parse=parse):
    with pytest.raises(ConfigError) as raised:
        parse(options)
    (only,) = raised.value.faults
    return only


def not_allowed(name, variable):
    return f"{name} that the environment variable {variable} of this process does not allow"


@pytest.fixture
def secret(tmp_path):
    file = tmp_path / "secrets" / "kafka.properties"
    file.parent.mkdir()
    file.write_text("key=hunter2\n")
    return file


@pytest.mark.parametrize("allowed", ["", "none", "DirectoryConfigProvider"])
@pytest.mark.parametrize("placeholder", ["${env:HOME}", "${file:/etc/hosts:a}"])
def test_incident_options_read_the_files_and_variables_of_a_shared_driver(allowed, placeholder, monkeypatch):
    monkeypatch.setenv(PROVIDERS, allowed)
    provider = "EnvVarConfigProvider" if "env" in placeholder else "FileConfigProvider"
    clause = f"needs {provider}, which the environment variable {PROVIDERS} of this process does not allow"
    assert fault({"client.id": f"a {placeholder}"}) == f"client.id has {placeholder}: {clause}."
    inline = {"security.protocol": "SSL", "ssl.truststore.certificates": placeholder}
    assert fault(inline) == f"ssl.truststore.certificates has a placeholder ${{alias:…}} that {clause}."
    spark = {"kafka.bootstrap.servers": "b:1", "kafka.client.id": placeholder}
    assert fault(spark, SinkOptions.parse) == f"kafka.client.id has {placeholder}: {clause}."


@pytest.mark.parametrize("allowed", ["EnvVarConfigProvider", f" FileConfigProvider , {PACKAGE}EnvVarConfigProvider"])
def test_an_allowed_class_of_providers_resolves(allowed, monkeypatch):
    monkeypatch.setenv(PROVIDERS, allowed)
    monkeypatch.setenv("TEAM", "blue")
    assert parse({"client.id": "${env:TEAM}"}).client_id == "blue"


def test_options_cannot_configure_a_class_that_is_not_allowed(monkeypatch):
    monkeypatch.setenv(PROVIDERS, "EnvVarConfigProvider")
    own = {"config.providers": "env", "config.providers.env.class": f"{PACKAGE}FileConfigProvider"}
    assert fault(own) == (
        f"config.providers.env.class needs FileConfigProvider, which the environment variable {PROVIDERS} of this "
        "process does not allow."
    )


def test_an_executor_limits_a_configuration_that_the_driver_accepted(monkeypatch):
    monkeypatch.setenv("TEAM_PASSWORD", "hunter2")
    config = parse(PLAIN)
    assert user_credentials(config).password == "hunter2"
    monkeypatch.setenv(PROVIDERS, "")
    with pytest.raises(Exception, match=PROVIDERS):
        user_credentials(config)


def test_allowed_paths_of_the_options_do_not_widen_the_allowed_files(secret, monkeypatch):
    own = {
        "config.providers": "v",
        "config.providers.v.class": f"{PACKAGE}FileConfigProvider",
        "config.providers.v.param.allowed.paths": "/",
        "client.id": f"${{v:{secret}:key}}",
    }
    monkeypatch.setenv(FILES, "/etc/kafka")
    assert not_allowed("names a file", FILES) in fault(own)
    assert "hunter2" not in fault(own)
    monkeypatch.setenv(FILES, f"/etc/kafka, {secret.parent}")
    assert parse(own).client_id == "hunter2"
    narrower = {**own, "config.providers.v.param.allowed.paths": "/etc/kafka"}
    assert parse(narrower).client_id == own["client.id"]  # without a value, as in Java


def test_files_are_allowed_by_themselves_and_by_folders_above(tmp_path, monkeypatch):
    folder = tmp_path / "allowed"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path)
    monkeypatch.setenv(FILES, f"{folder},/etc/kafka/ca.pem")
    assert file_fault(str(folder / "a" / "b.pem")) is None
    assert file_fault("/etc/kafka/ca.pem") is None
    assert file_fault("/etc/kafka/./ca.pem") is None
    assert file_fault(f"{folder}/link/b.pem") is None  # the operator's link
    outside = (
        f"{folder}x/b",
        f"{folder}/../b",
        f"{folder}/link/../b",
        "/etc/kafka/key.pem",
        "/etc/kafka",
        "ca.pem",
        "",
    )
    for path in outside:
        assert file_fault(path) == not_allowed("names a file", FILES), path


@pytest.mark.parametrize("nothing", ["", " none ", ","])
def test_empty_and_none_allow_nothing(nothing, monkeypatch):
    for name in (CLASSES, FILES, PROVIDERS, URLS):
        monkeypatch.setenv(name, nothing)
    assert file_fault("/etc/kafka/ca.pem")
    assert file_fault("none")
    assert url_fault("http://a/")
    assert url_fault("none")
    assert class_fault("a:B")
    assert provider_fault("FileConfigProvider")


def krb5(options):
    return {"sasl.mechanism": "GSSAPI", "security.protocol": "SASL_SSL", "sasl.kerberos.service.name": "kafka",
            "sasl.jaas.config": f'{KRB5_MODULE} required {options};'}  # fmt: skip


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"security.protocol": "SSL", "ssl.truststore.location": "/etc/shadow"}, "ssl.truststore.location"),
        ({"security.protocol": "SSL", "ssl.keystore.location": "/etc/shadow"}, "ssl.keystore.location"),
        ({**OAUTH, TOKEN_URL: "file:///etc/%73hadow"}, TOKEN_URL),
        ({**OAUTH, TOKEN_URL: "https://idp/token", "sasl.oauthbearer.assertion.private.key.file": "/etc/shadow"},
         "sasl.oauthbearer.assertion.private.key.file"),
        (krb5('useKeyTab=true keyTab="FILE:/etc/krb5.keytab" principal="a@B"'), "sasl.jaas.config has keyTab, which"),
        (krb5('useTicketCache=true ticketCache="KEYRING:session:x"'), "sasl.jaas.config has ticketCache, which"),
    ],
)  # fmt: skip
def test_each_option_that_names_a_file_is_limited(options, name, monkeypatch):
    parse(options)
    monkeypatch.setenv(FILES, "/etc/kafka,/etc/%73hadow")
    assert fault(options).rstrip(".") == f"{name} {not_allowed('names a file', FILES)}"


def test_a_file_is_checked_behind_a_placeholder_and_its_path_is_not_shown(monkeypatch):
    monkeypatch.setenv(FILES, "/etc/kafka")
    monkeypatch.setenv("STORE", "/etc/hunter2")
    options = {"security.protocol": "SSL", "ssl.truststore.location": "${env:STORE}"}
    assert fault(options) == f"ssl.truststore.location {not_allowed('names a file', FILES)}."


def test_files_are_checked_where_they_are_read(secret, monkeypatch):
    store = parse({"security.protocol": "SSL", "ssl.truststore.location": str(secret)})
    token = token_source(parse({**OAUTH, TOKEN_URL: f"file://{secret}"}), SystemClock())
    sink = SinkOptions.parse({"kafka.bootstrap.servers": "b:1", "valueFormat": "avro", "valueSchemaFile": str(secret)})
    monkeypatch.setenv(FILES, "/etc/kafka")
    with pytest.raises(ConfigError, match=FILES):
        read_files(store)
    with pytest.raises(LoginError, match=FILES):
        token.fetch()
    with pytest.raises(FormatError, match=f"^valueSchemaFile {secret} names a file that .*{FILES}"):
        plan_formats(sink.formats, {Side.VALUE: FrameColumn(pa.string())}, "t", None)


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/token",
        "https://idp.example",
        "https://idp.example/token?x",
        "https://idp.example/token2",
    ],
)
def test_incident_options_post_credentials_to_any_url(url, monkeypatch):
    source = token_source(parse({**OAUTH, TOKEN_URL: url}), SystemClock())
    monkeypatch.setenv(URLS, "https://idp.example/token, https://registry.example")
    assert fault({**OAUTH, TOKEN_URL: url}) == f"{TOKEN_URL} {not_allowed('has a URL', URLS)}."
    with pytest.raises(LoginError, match=URLS):
        source.fetch()
    assert parse({**OAUTH, TOKEN_URL: "https://idp.example/token/"})


def test_stores_in_the_login_module_are_limited_at_the_login(monkeypatch):
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    jaas = {"sasl.jaas.config": f'{module} required ssl.truststore.location="/etc/shadow";'}
    source = token_source(parse({**OAUTH, **jaas, TOKEN_URL: "https://idp.example/token"}), SystemClock())
    monkeypatch.setenv(FILES, "/etc/kafka")
    with pytest.raises(LoginError, match=f"^sasl.jaas.config: ssl.truststore.location names a file that .*{FILES}"):
        source.fetch()


def registry(options):
    faults = []
    parsed = ConfluentOptions.parse(options, faults)
    return parsed, faults


def test_the_urls_of_a_registry_are_limited(monkeypatch):
    url = {"schema.registry.url": "https://u:hunter2@evil.example"}
    accepted, _ = registry(url)
    monkeypatch.setenv(URLS, "https://registry.example/api,https://idp.example/token")
    assert registry(url) == (None, [f"schema.registry.url {not_allowed('has a URL', URLS)}."])
    with pytest.raises(ConfigError, match=URLS):
        ConfluentRegistry(accepted, SystemClock()).latest("t-value")
    assert registry({"schema.registry.url": "https://u:p@registry.example/api/"})[1] == []
    login = {"bearer.auth.credentials.source": "OAUTHBEARER", "bearer.auth.client.id": "a",
             "bearer.auth.client.secret": "b", "schema.registry.url": "https://registry.example/api"}  # fmt: skip
    assert registry({**login, "bearer.auth.issuer.endpoint.url": "https://idp.example/token"})[1] == []
    assert registry({**login, "bearer.auth.issuer.endpoint.url": "https://evil.example/token"})[1] == [
        f"bearer.auth.issuer.endpoint.url {not_allowed('has a URL', URLS)}."
    ]


def test_classes_and_sources_of_tokens_are_limited(monkeypatch):
    ours = {"value.serializer": "org.apache.kafka.common.serialization.StringSerializer"}
    tokens = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "saslTokenProvider": "gcp"}
    accepted = parse(tokens)
    monkeypatch.setenv(CLASSES, "team.partitioners:ByRegion,aws")
    with pytest.raises(ConfigError, match=f"^partitioner.class names 'antigravity:fly', which .* {CLASSES} "):
        CustomPartitioner.load("antigravity:fly")
    assert f"{CLASSES} of this process" in fault(tokens)
    with pytest.raises(ConfigError, match=f"saslTokenProvider names 'gcp', which .* {CLASSES} "):
        provided_tokens(accepted)
    assert parse({**tokens, "saslTokenProvider": "aws"}).sasl_token_provider == "aws"
    assert parse(ours).value_serializer
