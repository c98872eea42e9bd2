"""Warnings where a password or token would cross the network without TLS."""

import warnings

import pytest

from spark_kafka_sink.common.config import ConfigWarning, ProducerConfig
from spark_kafka_sink.schemas.registry.registry_options import ConfluentOptions
from tests.support.options import OAUTH, TOKEN_URL

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username=u password="hunter2";'
IN_CLEAR = "begins with http://, so the credentials cross the network in clear text; write an https:// URL."
TOKENS = {**OAUTH, TOKEN_URL: "https://idp.example/token"}
SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username=u password="hunter2";'


def texts(parse):
    """The warnings of options, without those of Python, such as that of a socket that is collected meanwhile."""
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        parse()
    return [str(each.message) for each in shown if each.category is ConfigWarning]


def shown(options, servers="kafka:9092", prefix=""):
    given = {prefix + name: value for name, value in {"bootstrap.servers": servers, **options}.items()}
    plain = {name.removeprefix(prefix): value for name, value in given.items()}
    return texts(lambda: ProducerConfig.parse(plain, prefix))


def clear(mechanism, jaas, protocol="SASL_PLAINTEXT"):
    return {"security.protocol": protocol, "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}


def test_incident_plain_without_tls_sent_the_password_in_clear_text_and_nothing_said_so():
    secret = "so the password crosses the network in clear text; write SASL_SSL."
    assert shown(clear("PLAIN", PLAIN)) == [f"security.protocol has no TLS, {secret}"]
    assert shown(clear("plain", PLAIN), prefix="kafka.") == [f"kafka.security.protocol has no TLS, {secret}"]
    assert shown({**TOKENS, "security.protocol": "SASL_PLAINTEXT"}) == [
        "security.protocol has no TLS, so the token crosses the network in clear text; write SASL_SSL."
    ]


def test_with_tls_or_a_proof_instead_of_the_password_there_is_no_warning():
    assert shown(clear("PLAIN", PLAIN, "SASL_SSL")) == []
    assert shown(clear("SCRAM-SHA-512", SCRAM)) == []
    assert shown(TOKENS) == []


@pytest.mark.parametrize("servers", ["localhost:1", "127.0.0.1:1,127.9.9.9:2", "[::1]:9092", "LOCALHOST:1"])
def test_loopback_addresses_are_no_network(servers):
    assert shown(clear("PLAIN", PLAIN), servers) == []
    assert len(shown(clear("PLAIN", PLAIN), f"{servers},kafka:1")) == 1


def test_a_token_endpoint_without_tls_gets_credentials_in_clear_text():
    assert shown({**TOKENS, TOKEN_URL: "HTTP://idp.example/token"}) == [f"{TOKEN_URL} {IN_CLEAR}"]
    assert shown({**TOKENS, TOKEN_URL: "http://[::1]:80/token"}) == []
    assert shown({**TOKENS, TOKEN_URL: "file:/run/secrets/token"}) == []


def test_a_registry_without_tls_gets_credentials_in_clear_text():

    def of(url, **login):
        options = {"schema.registry.url": url, **{name.replace("_", "."): value for name, value in login.items()}}
        faults = []
        found = texts(lambda: ConfluentOptions.parse(options, faults))
        assert not faults
        return found

    basic = {"basic_auth_credentials_source": "USER_INFO", "basic_auth_user_info": "u:p"}
    assert of("http://a:8081,http://b:8081", **basic) == [f"schema.registry.url {IN_CLEAR}"]
    assert of("https://a:8081,http://u:p@b:8081") == [f"schema.registry.url {IN_CLEAR}"]
    assert of("http://a:8081,https://u:p@b:8081") == []
    assert of("http://localhost:8081", **basic) == []
    issuer = "http://idp.example/token"
    tokens = {"bearer_auth_credentials_source": "OAUTHBEARER", "bearer_auth_issuer_endpoint_url": issuer,
              "bearer_auth_client_id": "a", "bearer_auth_client_secret": "b"}  # fmt: skip
    assert of("https://a", **tokens) == [f"bearer.auth.issuer.endpoint.url {IN_CLEAR}"]
