"""Which options of OAUTHBEARER go together, and what the error says where they do not; no error shows a secret."""

import pytest

from spark_kafka_sink.common.config import ProducerConfig
from tests.support.options import fault

OAUTH = "org.apache.kafka.common.security.oauthbearer."
MODULE = f"{OAUTH}OAuthBearerLoginModule"
HANDLER = "sasl.login.callback.handler.class"
URL = "sasl.oauthbearer.token.endpoint.url"
RETRIEVER = "sasl.oauthbearer.jwt.retriever.class"
CLIENT = 'clientId="me" clientSecret="hunter2"'
EXAMPLE = f'{MODULE} required clientId="…" clientSecret="…";'


def oauth(jaas=f"{MODULE} required {CLIENT};", **others):
    return {
        "bootstrap.servers": "broker:9092", "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": jaas, HANDLER: f"{OAUTH}OAuthBearerLoginCallbackHandler", URL: "https://idp/token",
        **others,
    }  # fmt: skip


def parse(**others):
    return ProducerConfig.parse(oauth(**others))


@pytest.mark.parametrize("prefix", ["", "kafkashaded."])
@pytest.mark.parametrize("room", ["", "secured."])
def test_both_names_of_the_login_handler_are_known_also_databricks_copies(room, prefix):
    config = parse(**{HANDLER: f"{prefix}{OAUTH}{room}OAuthBearerLoginCallbackHandler"})
    assert config.sasl_oauthbearer_jwt_retriever_class == f"{OAUTH}ClientCredentialsJwtRetriever"


@pytest.mark.parametrize(
    ("given", "retriever"),
    [
        ({}, "ClientCredentialsJwtRetriever"),
        ({RETRIEVER: f"{OAUTH}DefaultJwtRetriever"}, "ClientCredentialsJwtRetriever"),
        ({URL: "file:///run/token"}, "FileJwtRetriever"),
        ({URL: "file:/run/token", RETRIEVER: f"{OAUTH}FileJwtRetriever"}, "FileJwtRetriever"),
        ({RETRIEVER: f"{OAUTH}JwtBearerJwtRetriever", "sasl.oauthbearer.assertion.file": "/a"},
         "JwtBearerJwtRetriever"),
        ({RETRIEVER: f"{OAUTH}JwtBearerJwtRetriever", "sasl.oauthbearer.assertion.private.key.file": "/k"},
         "JwtBearerJwtRetriever"),
    ],
)  # fmt: skip
def test_the_default_retriever_goes_by_the_url(given, retriever):
    assert parse(**given).sasl_oauthbearer_jwt_retriever_class == f"{OAUTH}{retriever}"


def test_credentials_may_come_from_options_of_kafka_4_without_a_login_module():
    names = "sasl.oauthbearer.client.credentials.client"
    config = parse(jaas=None, **{f"{names}.id": "me", f"{names}.secret": "hunter2"})
    assert config.sasl_oauthbearer_client_credentials_client_id == "me"
    assert "hunter2" not in repr(config)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({HANDLER: None}, f"{HANDLER} is required with OAUTHBEARER: {OAUTH}OAuthBearerLoginCallbackHandler."),
        ({HANDLER: "io.strimzi.Login"}, f"{HANDLER} is 'io.strimzi.Login', a class that only a JVM can run; write "
         f"{OAUTH}OAuthBearerLoginCallbackHandler and the identity provider's {URL}."),
        ({URL: None}, f"{URL} is required with OAUTHBEARER: the identity provider's URL for tokens, or file:/path."),
        ({URL: "idp/token"}, f"{URL} must begin with https://, http:// or file:/."),
        ({"jaas": f'{MODULE} required clientId="me";'}, "sasl.oauthbearer.client.credentials.client.secret is required "
         f"with OAUTHBEARER, or clientSecret in sasl.jaas.config: {EXAMPLE}"),
        ({RETRIEVER: f"{OAUTH}FileJwtRetriever"}, f"{RETRIEVER} is FileJwtRetriever, which needs a file: URL in "
         f"{URL}."),
        ({URL: "file:/t", RETRIEVER: f"{OAUTH}JwtBearerJwtRetriever"}, f"{RETRIEVER} is JwtBearerJwtRetriever, which "
         f"needs an http or https URL in {URL}."),
        ({RETRIEVER: f"{OAUTH}JwtBearerJwtRetriever"}, f"{RETRIEVER} is JwtBearerJwtRetriever, which needs "
         "sasl.oauthbearer.assertion.private.key.file or sasl.oauthbearer.assertion.file."),
        ({"jaas": f'{MODULE} required {CLIENT} extension_auth="x";'}, "sasl.jaas.config has extension_auth; an "
         "extension has a name of letters, but not auth."),
        ({"jaas": f'{MODULE} required {CLIENT} extension_a_b="x";'}, "sasl.jaas.config has extension_a_b; an extension "
         "has a name of letters, but not auth."),
        ({"jaas": f'{MODULE} required {CLIENT} extension_a="\\001";'}, "sasl.jaas.config has extension_a, whose value "
         "is empty or has control characters or others outside ASCII."),
        ({"sasl.login.refresh.window.factor": "1.5"}, "sasl.login.refresh.window.factor must be a number from 0.5 to "
         "1.0, but is '1.5'."),
        ({"sasl.login.refresh.window.factor": "nan"}, "sasl.login.refresh.window.factor must be a number from 0.5 to "
         "1.0, but is 'nan'."),
        ({"sasl.oauthbearer.assertion.algorithm": "none"}, "sasl.oauthbearer.assertion.algorithm must be one of RS256, "
         "ES256, but is 'none'."),
    ],
)  # fmt: skip
def test_options_that_cannot_log_in_are_refused_with_what_to_write(given, reason):
    assert fault(oauth(**given)) == reason


def test_an_unknown_retriever_is_refused_with_the_known_ones():
    assert fault(oauth(**{RETRIEVER: "com.example.Mine"})).startswith(
        f"{RETRIEVER} must be one of {OAUTH}DefaultJwtRetriever, "
    )
