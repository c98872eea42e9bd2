"""What the registry's options mean, and the error of each that is wrong."""

from __future__ import annotations

import pickle
import warnings

import pytest

from spark_kafka_sink.common.config import ConfigWarning, ProducerConfig
from spark_kafka_sink.common.config.option import OptionKind
from spark_kafka_sink.schemas.registry.registry_options import (
    REGISTRY_OPTIONS,
    ConfluentOptions,
    CredentialSource,
    RegistryUrl,
)
from spark_kafka_sink.schemas.registry.schema import SchemaIdPlace, Side, SubjectNameStrategy
from tests.support.options import OAUTH, TOKEN_URL

URL = {"schema.registry.url": "http://r:8081"}
JAVA = "io.confluent.kafka.serializers."
SECRET = "zq7f3a91"


def parse(options: dict[str, str], **others) -> ConfluentOptions:
    faults: list[str] = []
    parsed = ConfluentOptions.parse({**URL, **options}, faults, **others)
    assert faults == []
    assert parsed is not None
    return parsed


def faults_of(options: dict[str, str], **others) -> list[str]:
    faults: list[str] = []
    assert ConfluentOptions.parse({**URL, **options}, faults, **others) is None
    return faults


def producer(**options: str) -> ProducerConfig:
    return ProducerConfig.parse({"bootstrap.servers": "b:1", **options})


PLAIN = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="u" password="{SECRET}";',
}


def test_names_are_known_in_any_case():
    assert parse({"Auto.Register.Schemas": "FALSE"}).value.auto_register is False
    assert ConfluentOptions.owns("use.schema.id")
    assert not ConfluentOptions.owns("topic")


def test_options_of_the_connection_may_have_the_prefix_or_not():
    assert parse({"http.read.timeout.ms": "7"}).read_timeout_ms == 7
    assert parse({"schema.registry.http.read.timeout.ms": "7"}).read_timeout_ms == 7
    given = parse({"schema.registry.basic.auth.user.info": "u:p", "schema.registry.max.retries": "0"})
    assert (given.login.source, given.max_retries) == (CredentialSource.USER_INFO, 0)
    assert faults_of({"http.read.timeout.ms": "7", "schema.registry.http.read.timeout.ms": "8"}) == [
        "http.read.timeout.ms and schema.registry.http.read.timeout.ms are the same option; leave one of them out."
    ]
    assert not ConfluentOptions.owns("schema.auto.register.schemas")


def test_options_without_a_url_are_a_fault_that_names_them():
    faults: list[str] = []
    assert ConfluentOptions.parse({"max.retries": "1", "schema.registry.ssl.key.password": SECRET}, faults) is None
    assert faults == ["schema.registry.url is required with max.retries, schema.registry.ssl.key.password."]
    assert faults_of({"schema.registry.url": " "}) == ["schema.registry.url is blank; give it a value or leave it out."]


@pytest.mark.parametrize(
    ("url", "address", "user_info"),
    [
        ("https://r", "https://r", None),
        ("http://r:8081/", "http://r:8081", None),
        ("http://r:8080/apis/ccompat/v7/", "http://r:8080/apis/ccompat/v7", None),
        (f"https://u:{SECRET}%40@r:8081", "https://r:8081", f"u:{SECRET}@"),
    ],
)
def test_urls_are_addresses_and_perhaps_a_login(url, address, user_info):
    (parsed,) = parse({"schema.registry.url": url}).urls
    assert parsed.address == address
    assert (parsed.user_info and parsed.user_info.value) == user_info


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("r:8081", "one that does not begin with http:// or https:// (a comma in a password is %2C)"),
        (
            f"https://u:p@{SECRET}:w,1@h",
            "one that does not begin with http:// or https:// (a comma in a password is %2C)",
        ),
        ("http://", "'http://'"),
        ("http://r:port", "'http://r…'"),
        ("http://[::1]:port", "'http://[::1]…'"),
        (f"http://u:{SECRET}@r:port", "'http://…@r…'"),
        ("mock://scope", "'mock://scope'; mock:// registries exist only in a JVM"),
    ],
)
def test_a_url_that_is_none_is_shown_without_its_login(url, shown):
    assert faults_of({"schema.registry.url": url}) == [
        f"schema.registry.url must have URLs such as https://host:8081, but has {shown}."
    ]


def test_incident_a_password_with_a_comma_was_shown():
    assert SECRET not in str(faults_of({"schema.registry.url": f"https://u:{SECRET},Part{SECRET}@a:1,http://b:2"}))
    urls = f"https://u:{SECRET}%2CPart@a:1,http://b:2, https://me:z@c/x,"
    parsed = parse({"schema.registry.url": urls}).urls
    assert [url.address for url in parsed] == ["https://a:1", "http://b:2", "https://c/x"]
    logins = [url.user_info and url.user_info.value for url in parsed]
    assert logins == [f"u:{SECRET},Part", None, "me:z"]


def test_incident_what_is_in_a_placeholder_separated_urls_and_logins(tmp_path):
    path = tmp_path / "me@corp,x" / "registry"
    path.parent.mkdir()
    path.write_text("host=r:8081\n")
    (parsed,) = parse({"schema.registry.url": f"https://${{file:{path}:host}}/"}).urls
    assert parsed == RegistryUrl("https://r:8081")


@pytest.mark.parametrize("end", ["/", "?", "#"])
def test_incident_the_user_before_a_slash_in_a_password_was_taken_for_the_host(end):
    (fault,) = faults_of({"schema.registry.url": f"https://key:12{end}{SECRET}@host:1/x"})
    assert fault.startswith("schema.registry.url has / ? or # before an @, in 'https://…@host…': percent-encode / ? ")
    (parsed,) = parse({"schema.registry.url": f"https://key:12%2F%3F%23%40%2C{SECRET}@host:1/x%40y"}).urls
    assert parsed.address == "https://host:1/x%40y"
    assert parsed.user_info is not None
    assert parsed.user_info.value == f"key:12/?#@,{SECRET}"


@pytest.mark.parametrize(
    "url",
    [
        f"https://user:{SECRET},{SECRET}",
        f"https://user:1/{SECRET}@host/{SECRET}@there",
        f"https://user:{SECRET},https://{SECRET}:x@host",
        f"https:/user:{SECRET},{SECRET}@host",
        f"user:{SECRET},{SECRET}@host",
        f"https://host/a?token={SECRET}",
        f"ftp://user:{SECRET},{SECRET}/x@host",
    ],
)
def test_a_url_that_is_refused_is_not_shown_beyond_its_host(url):
    faults = faults_of({"schema.registry.url": url})
    assert faults
    assert SECRET not in str(faults)


# -- which schema -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chosen", [{"use.latest.version": "true"}, {"value.use.schema.id": "7"}])
def test_a_chosen_schema_switches_registration_off_unless_it_is_set(chosen):
    assert parse(chosen).value.auto_register is False
    assert parse({**chosen, "auto.register.schemas": "false"}).value.auto_register is False
    (fault, *_) = faults_of({**chosen, "auto.register.schemas": "true"})
    ((name, value),) = chosen.items()
    shown = name if value == "7" else f"{name}={value}"
    assert fault == (
        f"auto.register.schemas is true and {shown} is given: they exclude each other, leave one of them out."
    )


def test_an_id_belongs_to_one_side():
    options = parse({"key.use.schema.id": "7", "use.latest.version": "false"})
    assert (options.key.schema_id, options.value.schema_id) == (7, None)
    assert (options.key.auto_register, options.value.auto_register) == (False, True)
    assert parse({"use.schema.id": "7"}, encoded=[Side.VALUE]).value.schema_id == 7
    assert parse({"use.schema.id": "7"}, encoded=[Side.VALUE]).key.schema_id is None
    assert faults_of({"use.schema.id": "7"}) == [
        "use.schema.id must be key.use.schema.id or value.use.schema.id, as key and value are encoded."
    ]
    assert faults_of({"use.schema.id": "7", "key.use.schema.id": "8"}, encoded=[Side.KEY]) == [
        "key.use.schema.id and use.schema.id are both given; leave one of them out."
    ]
    assert parse({"use.schema.id": "-1"}, encoded=[Side.VALUE]).value.schema_id is None


def test_an_option_of_a_raw_side_is_a_fault():
    assert faults_of({"key.use.schema.id": "7"}, encoded=[Side.VALUE]) == [
        "key.use.schema.id has no effect: keyFormat is raw; leave it out."
    ]


@pytest.mark.parametrize(
    ("given", "strategy"),
    [
        ("topic-record", SubjectNameStrategy.TOPIC_RECORD),
        (f"{JAVA}subject.RecordNameStrategy", SubjectNameStrategy.RECORD),
        ("TopicRecordNameStrategy", SubjectNameStrategy.TOPIC_RECORD),
    ],
)
def test_strategies_have_short_names_and_javas(given, strategy):
    options = parse({"key.subject.name.strategy": given})
    assert (options.key.subject_name_strategy, options.value.subject_name_strategy) == (
        strategy, SubjectNameStrategy.TOPIC,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("topics", "; did you mean topic?"),
        (f"{JAVA}subject.RecordsNameStrategy", "; did you mean RecordNameStrategy?"),
        ("com.example.Mine", "; other Java classes cannot be loaded."),
    ],
)
def test_an_unknown_strategy_is_refused_with_a_suggestion(given, hint):
    assert faults_of({"value.subject.name.strategy": given}) == [
        "value.subject.name.strategy must be one of topic, record, topic-record, or Java's TopicNameStrategy, "
        f"RecordNameStrategy, TopicRecordNameStrategy, but is {given!r}{hint}"
    ]


@pytest.mark.parametrize("given", ["header", f"{JAVA}schema.id.HeaderSchemaIdSerializer", "HeaderSchemaIdSerializer"])
def test_serializers_of_schema_ids_have_short_names_and_javas(given):
    assert parse({"value.schema.id.serializer": given}).value.schema_id_place is SchemaIdPlace.HEADER
    assert faults_of({"value.schema.id.serializer": "heder"}) == [
        "value.schema.id.serializer must be one of prefix, header, or Java's PrefixSchemaIdSerializer, "
        "HeaderSchemaIdSerializer, but is 'heder'; did you mean header?"
    ]


# -- login ------------------------------------------------------------------------------------------------------------


LOGINS = {
    CredentialSource.USER_INFO: {"basic.auth.user.info": "u:p"},
    CredentialSource.STATIC_TOKEN: {"bearer.auth.token": "t"},
    CredentialSource.OAUTHBEARER: {
        "bearer.auth.issuer.endpoint.url": "https://idp/token", "bearer.auth.client.id": "me",
        "bearer.auth.client.secret": SECRET,
    },
}  # fmt: skip


@pytest.mark.parametrize(("source", "options"), LOGINS.items())
def test_the_source_may_be_left_out_with_a_warning_as_java_ignores_the_credentials_then(source, options):
    name = f"{min(options).partition('.')[0]}.auth.credentials.source"
    with pytest.warns(ConfigWarning, match=f"is given without {name}={source.value}: used here, ignored by Java"):
        assert parse(options).login.source is source
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        given = {**options, name: source.value.lower(), "schema.registry.url": "https://r"}
        assert parse(given).login.source is source


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (
            {"basic.auth.credentials.source": "USER_INFO"},
            "basic.auth.user.info is required with basic.auth.credentials.source=USER_INFO.",
        ),
        ({"basic.auth.user.info": SECRET}, "basic.auth.user.info must be user:password."),
        (
            {"basic.auth.credentials.source": "URL", "basic.auth.user.info": f"u:{SECRET}"},
            "basic.auth.user.info has no effect with basic.auth.credentials.source=URL; it belongs to USER_INFO.",
        ),
        (
            {"basic.auth.user.info": "u:p", "bearer.auth.logical.cluster": "lsrc-1"},
            "bearer.auth.logical.cluster has no effect with basic.auth.credentials.source=USER_INFO; it belongs to "
            "STATIC_TOKEN or OAUTHBEARER or SASL_OAUTHBEARER_INHERIT.",
        ),
        (
            {"schema.registry.url": f"http://u:{SECRET}@r", "basic.auth.user.info": f"u:{SECRET}"},
            "basic.auth.credentials.source is USER_INFO, but schema.registry.url has user and password; leave one of "
            "them out.",
        ),
        (
            LOGINS[CredentialSource.OAUTHBEARER] | {"bearer.auth.issuer.endpoint.url": "idp"},
            "bearer.auth.issuer.endpoint.url must begin with https:// or http://.",
        ),
    ],
)  # fmt: skip
def test_credentials_that_do_not_fit_are_one_fault_without_them(options, fault):
    assert faults_of(options) == [fault]


def test_both_sources_are_a_fault():
    sources = {"basic.auth.credentials.source": "URL", "bearer.auth.credentials.source": "STATIC_TOKEN"}
    assert faults_of(sources) == [
        "basic.auth.credentials.source and bearer.auth.credentials.source exclude each other; leave one of them out."
    ]


def test_the_brokers_login_may_be_inherited_where_it_has_what_is_needed():
    basic, bearer = {"basic.auth.credentials.source": "SASL_INHERIT"}, {
        "bearer.auth.credentials.source": "SASL_OAUTHBEARER_INHERIT"
    }  # fmt: skip
    assert parse(basic, producer=producer(**PLAIN)).login.sasl == producer(**PLAIN)
    tokens = producer(**OAUTH, **{TOKEN_URL: "https://idp/token"})
    assert parse(bearer, producer=tokens).login.sasl == tokens
    for config in (producer(), tokens):
        assert faults_of(basic, producer=config) == [
            "basic.auth.credentials.source is SASL_INHERIT, which needs username and password in "
            "kafka.sasl.jaas.config; or write USER_INFO and basic.auth.user.info."
        ]
    assert faults_of(bearer, producer=producer(**PLAIN)) == [
        "bearer.auth.credentials.source is SASL_OAUTHBEARER_INHERIT, which needs kafka.sasl.mechanism=OAUTHBEARER with "
        "kafka.sasl.oauthbearer.token.endpoint.url; or write OAUTHBEARER and bearer.auth.issuer.endpoint.url."
    ]


# -- TLS, config providers, secrets -----------------------------------------------------------------------------------


def test_tls_options_have_the_rules_of_the_brokers():
    options = parse({"schema.registry.url": "https://r", "schema.registry.ssl.enabled.protocols": "TLSv1.3"})
    assert options.tls.ssl_enabled_protocols == ("TLSv1.3",)
    assert faults_of({"schema.registry.ssl.keystore.key": "k"}) == [
        "schema.registry.ssl.keystore.key needs schema.registry.ssl.keystore.certificate.chain: the private key and "
        "its certificates come together."
    ]


def test_tls_options_without_https_warn():
    with pytest.warns(ConfigWarning, match=r"schema\.registry\.ssl\.protocol has no effect, as no URL of"):
        parse({"schema.registry.ssl.protocol": "TLSv1.2"})


def test_placeholders_of_options_are_resolved_and_of_credentials_stay(tmp_path):
    (tmp_path / "p").write_text(f"url=http://there:1\nsecret={SECRET}\nstore=/store\n")
    options = parse({
        "schema.registry.url": f"${{file:{tmp_path}/p:url}}",
        "basic.auth.user.info": f"u:${{file:{tmp_path}/p:secret}}",
    })  # fmt: skip
    assert options.urls == (RegistryUrl("http://there:1"),)
    assert options.login.user_info is not None
    assert options.login.user_info.value == f"u:${{file:{tmp_path}/p:secret}}"
    assert SECRET.encode() not in pickle.dumps(options)
    secure = parse({
        "schema.registry.url": "https://r", "schema.registry.ssl.truststore.location": f"${{file:{tmp_path}/p:store}}"
    })  # fmt: skip
    assert secure.tls.ssl_truststore_location == "/store"


def test_a_login_in_a_url_with_placeholders_is_refused_before_they_are_resolved(tmp_path, monkeypatch):
    (tmp_path / "p").write_text("host=there\n")
    monkeypatch.setenv("REGISTRY_SECRET", SECRET)
    (url,) = parse({"schema.registry.url": f"https://${{file:{tmp_path}/p:host}}:1/x"}).urls
    assert url == RegistryUrl("https://there:1/x")
    for login, host in (("me:${env:REGISTRY_SECRET}", "b"), (f"me:{SECRET}", f"${{file:{tmp_path}/p:host}}")):
        assert faults_of({"schema.registry.url": f"https://{login}@{host}:port"}) == [
            "schema.registry.url has a placeholder and an @: give user and password in basic.auth.user.info instead."
        ]


def test_config_providers_are_those_of_the_brokers_options(tmp_path):
    (tmp_path / "url").write_text("http://there:1")
    providers = {
        "config.providers": "mine",
        "config.providers.mine.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
    }
    placeholder = {"schema.registry.url": f"${{mine:{tmp_path}:url}}", "basic.auth.user.info": "u:${mine:/d:f}"}
    assert parse(placeholder, producer=producer(**providers)).urls == (RegistryUrl("http://there:1"),)
    assert faults_of({"basic.auth.user.info": "u:${yours:/d:f}"}, producer=producer(**providers)) == [
        "basic.auth.user.info has a placeholder ${alias:…} of an unknown config provider; the aliases are mine."
    ]


PASSWORDS = [option.name for option in REGISTRY_OPTIONS if option.kind is OptionKind.PASSWORD]


def test_no_repr_shows_a_secret_and_a_pickle_holds_them():
    url = {"schema.registry.url": f"https://u:{SECRET}@r"}
    user_info = {"basic.auth.user.info": f"u:{SECRET}", "schema.registry.ssl.key.password": SECRET}
    oauth = LOGINS[CredentialSource.OAUTHBEARER]
    inherited = {"basic.auth.credentials.source": "SASL_INHERIT"}
    https = {"schema.registry.url": "https://r"}
    for options in (url, https | user_info, {"bearer.auth.token": SECRET}, oauth, inherited):
        parsed = parse(options, producer=producer(**PLAIN))
        assert SECRET not in f"{parsed!r} {parsed}"
        assert pickle.loads(pickle.dumps(parsed)) == parsed
        assert hash(parsed) == hash(parse(options, producer=producer(**PLAIN)))


@pytest.mark.parametrize("name", PASSWORDS)
def test_no_fault_shows_a_secret(name):
    faults: list[str] = []
    options = {name: f"{SECRET} ", "auto.register.schemas": "no", "schema.registry.url": f"x://u:{SECRET}@r"}
    assert ConfluentOptions.parse(options, faults) is None
    assert faults
    assert SECRET not in str(faults)
