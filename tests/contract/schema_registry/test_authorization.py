"""Each way to log in to a registry, over HTTP and TLS, and the error of each that fails. No text shows a credential."""

import base64
import logging
import re
from contextlib import contextmanager

import pytest

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import ConfigError, RegistryError
from spark_kafka_sink.schemas.registry.client import ConfluentRegistry
from spark_kafka_sink.schemas.registry.registry_options import ConfluentOptions
from spark_kafka_sink.schemas.registry.schema import Schema
from spark_kafka_sink.testing.certificates import CertificateAuthority
from tests.support.manual_clock import ManualClock
from tests.support.oidc_server import Client, OidcServer
from tests.support.schema_registry_server import Fault, SchemaRegistryServer

INT = Schema("AVRO", '"int"')
SECRET = "zq7f3a91:+ä"
BASIC = f"Basic {base64.b64encode(f'me:{SECRET}'.encode()).decode()}"
OAUTH = "org.apache.kafka.common.security.oauthbearer."
PLAIN = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="me" password="{SECRET}";',
}
INHERIT = {"basic.auth.credentials.source": "SASL_INHERIT"}


@pytest.fixture(autouse=True)
def no_secret_is_logged(caplog):
    caplog.set_level(logging.DEBUG)
    yield
    assert "zq7f3a91" not in caplog.text


@pytest.fixture(scope="module")
def oidc():
    with OidcServer({"me": Client("me", SECRET)}) as server:
        yield server


def registry(url, options, sasl=None, clock=None):
    faults: list[str] = []
    producer = ProducerConfig.parse({"bootstrap.servers": "b:1", **(sasl or {})})
    quick = {"schema.registry.retries.wait.ms": "5"}
    parsed = ConfluentOptions.parse({"schema.registry.url": url, **quick, **options}, faults, producer)
    assert parsed is not None, faults
    return ConfluentRegistry(parsed, clock or SystemClock())


def error_of(*args, **others):
    with pytest.raises((RegistryError, ConfigError)) as raised:
        registry(*args, **others).register("t-value", INT)
    assert "zq7f3a91" not in str(raised.value)
    return raised.value


def in_file(tmp_path, content=SECRET):
    (tmp_path / "password").write_text(content)
    return f"${{dir:{tmp_path}:password}}"


@pytest.mark.parametrize("way", ["user.info", "url", "inherited", "placeholder"])
def test_basic_authentication_from_each_source(way, tmp_path):
    with SchemaRegistryServer(login=BASIC) as server:
        url = server.url.replace("//", "//me:zq7f3a91%3A+%C3%A4@") if way == "url" else server.url
        options = {
            "user.info": {"basic.auth.user.info": f"me:{SECRET}"},
            "url": {},
            "inherited": INHERIT,
            "placeholder": {"basic.auth.user.info": f"me:{in_file(tmp_path)}"},
        }[way]
        assert registry(url, options, PLAIN).register("t-value", INT).id == 1
        assert "target-sr-cluster" not in {name.lower() for name in server.asked[0].headers}


def test_placeholders_of_a_login_are_read_at_each_request(tmp_path):
    (tmp_path / "secrets").write_text("password=zq7f3a91/@,%41\n", "utf-8")
    password = f"${{file:{tmp_path}/secrets:password}}"
    user_info = "me@corp:zq7f3a91/@,%41"
    options = {"basic.auth.user.info": f"me@corp:{password}"}
    with SchemaRegistryServer(login=f"Basic {base64.b64encode(user_info.encode()).decode()}") as server:
        asked = registry(f"http://127.0.0.1:1,{server.url}", options)
        assert asked.register("t-value", INT).id == 1
        (tmp_path / "secrets").write_text("password=zq7f3a91-other\n", "utf-8")
        with pytest.raises(RegistryError, match="it does not accept basic.auth.user.info"):
            asked.register("t-value", INT)
        (tmp_path / "secrets").write_text("")
        said = str(error_of(server.url, options))
        assert said == f"basic.auth.user.info has {password}, for which there is no value."


def test_each_url_has_its_own_login():
    with SchemaRegistryServer(login=BASIC) as server:
        other = "http://other:password@127.0.0.1:1"
        url = server.url.replace("//", "//me:zq7f3a91%3A+%C3%A4@")
        assert registry(f"{other},{url}", {}).register("t-value", INT).id == 1


def test_bearer_tokens_go_with_the_ids_that_confluent_cloud_asks_for():
    with SchemaRegistryServer(login="Bearer zq7f3a91") as server:
        cloud = {"bearer.auth.logical.cluster": "lsrc-1", "bearer.auth.identity.pool.id": "pool-1"}
        assert registry(server.url, {"bearer.auth.token": "zq7f3a91", **cloud}).register("t-value", INT).id == 1
        headers = {name.lower(): value for name, value in server.asked[0].headers.items()}
        assert (headers["target-sr-cluster"], headers["confluent-identity-pool-id"]) == ("lsrc-1", "pool-1")


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({}, "it asks for credentials: give basic.auth.user.info or bearer.auth.token."),
        ({"basic.auth.user.info": "me:zq7f3a91"}, "it does not accept basic.auth.user.info."),
        ({"bearer.auth.token": "zq7f3a91"}, "it does not accept bearer.auth.token."),
        (INHERIT, "it does not accept kafka.sasl.jaas.config."),
    ],
)
def test_a_refused_login_names_the_option(options, advice):
    with SchemaRegistryServer(login="Basic other") as server:
        error = error_of(server.url, options, PLAIN)
        assert str(error) == (
            f"schema.registry.url {server.url} cannot register a schema under subject t-value: HTTP status 401: "
            f"Unauthorized; {advice}"
        )
        assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({}, "not allowed without credentials."),
        ({"basic.auth.user.info": "me:zq7f3a91"}, "not allowed with basic.auth.user.info."),
    ],
)
def test_a_missing_right_names_the_login(options, advice):
    with SchemaRegistryServer() as server:
        server.faults.append(Fault(403, {"error_code": 40301, "message": "User is denied"}))
        assert str(error_of(server.url, options, PLAIN)).endswith(f"error code 40301: User is denied; {advice}")


@pytest.mark.parametrize("token", ["zq7f3a91\nx", "zq7f3a91 x", "zq7f3a91ä"])
def test_a_token_that_no_header_can_have_is_not_shown(token):
    with SchemaRegistryServer() as server:
        error = error_of(server.url, {"bearer.auth.token": token})
        assert str(error).endswith("the token of bearer.auth.token has characters that an HTTP header cannot have.")
        assert server.asked == []


# -- OAuth ------------------------------------------------------------------------------------------------------------


def client_credentials(oidc, **others):
    return {
        "bearer.auth.issuer.endpoint.url": oidc.token_url, "bearer.auth.client.id": "me",
        "bearer.auth.client.secret": SECRET, "bearer.auth.scope": "kafka", **others,
    }  # fmt: skip


def tokens_of(server):
    return [each.headers["Authorization"].removeprefix("Bearer ") for each in server.asked]


def test_client_credentials_get_a_token_that_serves_until_shortly_before_its_end(oidc):
    oidc.forms.clear()
    clock = ManualClock(SystemClock().epoch_ms())
    with SchemaRegistryServer() as server:
        client = registry(server.url, client_credentials(oidc), clock=clock)
        client.register("t-value", INT)
        clock.advance((oidc.life_s - 90) * 1000)
        client.latest("t-value")
        assert oidc.forms == [{"grant_type": "client_credentials", "scope": "kafka"}]
        clock.advance(60_000)
        client.latest("t-value")
        assert len(oidc.forms) == 2
        assert all(each.count(".") == 2 for each in tokens_of(server))


def test_the_brokers_oauth_login_serves_the_registry(oidc):
    sasl = {
        "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": f"{OAUTH}OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": oidc.token_url,
        "sasl.oauthbearer.client.credentials.client.id": "me",
        "sasl.oauthbearer.client.credentials.client.secret": SECRET,
    }  # fmt: skip
    with SchemaRegistryServer() as server:
        client = registry(server.url, {"bearer.auth.credentials.source": "SASL_OAUTHBEARER_INHERIT"}, sasl)
        assert client.register("t-value", INT).id == 1
        assert tokens_of(server)[0].count(".") == 2


def test_a_wrong_client_secret_is_final_and_names_the_endpoint(oidc):
    with SchemaRegistryServer() as server:
        error = error_of(server.url, client_credentials(oidc, **{"bearer.auth.client.secret": "zq7f3a91"}))
        assert str(error).startswith(
            f"schema.registry.url {server.url} cannot register a schema under subject t-value: "
            f"bearer.auth.issuer.endpoint.url {oidc.token_url} responded with HTTP status 401 (invalid_client, "
        )
        assert server.asked == []


def test_an_identity_provider_in_trouble_is_asked_again(oidc):
    oidc.fail_with += [503, 503]
    with SchemaRegistryServer() as server:
        assert registry(server.url, client_credentials(oidc)).register("t-value", INT).id == 1
    oidc.fail_with += [503] * 2
    with SchemaRegistryServer() as server:
        error = error_of(server.url, client_credentials(oidc, **{"max.retries": "1"}))
        assert str(error).endswith(f"{oidc.token_url} responded with HTTP status 503 (temporarily_unavailable).")


def test_an_identity_provider_that_hangs_is_given_up_in_time():
    with OidcServer({"me": Client("me", SECRET)}) as hanging, SchemaRegistryServer() as server:
        hanging.hang()
        times = {"http.connect.timeout.ms": "300", "http.read.timeout.ms": "300"}
        error = error_of(server.url, client_credentials(hanging, **times))
        assert re.search(r"no response within [1-3]\d* ms \(schema\.registry\.http\.read\.timeout\.ms\)", str(error))


# -- TLS --------------------------------------------------------------------------------------------------------------


@contextmanager
def secure_server(tmp_path, *, client_authority=None, name="127.0.0.1"):
    authority = CertificateAuthority()
    (tmp_path / "server.pem").write_text(authority.issue("registry", (name,)).key_store)
    (tmp_path / "ca.pem").write_text(authority.certificate)
    clients = None
    if client_authority is not None:
        clients = tmp_path / "clients.pem"
        clients.write_text(client_authority.certificate)
    with SchemaRegistryServer(certificate=tmp_path / "server.pem", client_authority=clients) as server:
        yield server


def trust(tmp_path):
    return {"schema.registry.ssl.truststore.location": str(tmp_path / "ca.pem")}


def test_a_certificate_of_another_host_is_refused_unless_any_name_will_do(tmp_path):
    with secure_server(tmp_path, name="elsewhere") as server:
        assert "TLS fails: " in str(error_of(server.url, trust(tmp_path)))
        any_name = {"schema.registry.ssl.endpoint.identification.algorithm": ""}
        assert registry(server.url, trust(tmp_path) | any_name).register("t-value", INT).id == 1


def test_a_client_certificate(tmp_path):
    authority = CertificateAuthority()
    with secure_server(tmp_path, client_authority=authority) as server:
        (tmp_path / "client.pem").write_text(authority.issue("client", ("client",)).key_store)
        key = {"schema.registry.ssl.keystore.location": str(tmp_path / "client.pem")}
        assert registry(server.url, trust(tmp_path) | key).register("t-value", INT).id == 1
        refused = error_of(server.url, trust(tmp_path) | {"max.retries": "0"})
        assert server.url in str(refused)


def test_a_store_that_cannot_be_read_is_named_with_its_option(tmp_path):
    with secure_server(tmp_path) as server:
        error = error_of(server.url, {"schema.registry.ssl.truststore.location": "/none.pem"})
        assert str(error) == (
            "schema.registry.ssl.truststore.location /none.pem cannot be read: No such file or directory."
        )


def test_the_issuers_tls_has_the_registrys_options(tmp_path):
    authority = CertificateAuthority()
    (tmp_path / "idp.pem").write_text(authority.issue("idp", ("127.0.0.1",)).key_store)
    (tmp_path / "ca.pem").write_text(authority.certificate)
    with (
        OidcServer({"me": Client("me", SECRET)}, certificate=tmp_path / "idp.pem") as issuer,
        SchemaRegistryServer(certificate=tmp_path / "idp.pem") as server,
    ):
        assert registry(server.url, client_credentials(issuer) | trust(tmp_path)).register("t-value", INT).id == 1
        other = {"schema.registry.ssl.truststore.certificates": CertificateAuthority().certificate}
        error = error_of(server.url, client_credentials(issuer) | other)
        assert "trusted by schema.registry.ssl.truststore.location, or by the system" in str(error)
