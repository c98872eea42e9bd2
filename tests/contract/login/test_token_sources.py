"""Each way to a token, against a real OIDC server; and one clear error that names the option for each that fails."""

import base64
import json
import os
import socket
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import LoginError
from spark_kafka_sink.network.login.token_login import RefusedLoginError, RetriableLoginError
from spark_kafka_sink.network.login.token_sources import assertion, token_source
from spark_kafka_sink.testing.certificates import CertificateAuthority
from tests.support.oidc_server import Client, OidcServer
from tests.support.peers import peer, responding

OAUTH = "org.apache.kafka.common.security.oauthbearer."
URL = "sasl.oauthbearer.token.endpoint.url"
ASSERTION = "sasl.oauthbearer.assertion."
SECRET = "hunter2:+ä"
KEY = rsa.generate_private_key(65537, 2048)


def public(key):
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def pkcs8(key, password=None, encoding=Encoding.PEM):
    return key.private_bytes(
        encoding, PrivateFormat.PKCS8, BestAvailableEncryption(password) if password else NoEncryption()
    )


def clients():
    return {"me": Client("me", SECRET), "signer": Client("signer", key=RSAKey.import_key(public(KEY)))}


@pytest.fixture(scope="module")
def oidc():
    with OidcServer(clients()) as server:
        yield server


def config(url, jaas="", **others):
    return ProducerConfig.parse({
        "bootstrap.servers": "b:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": f"{OAUTH}OAuthBearerLoginCallbackHandler", URL: url,
        "sasl.jaas.config": f"{OAUTH}OAuthBearerLoginModule required {jaas};", **others,
    })  # fmt: skip


def fetch(*args, **others):
    return token_source(config(*args, **others), SystemClock()).fetch()


def error_of(*args, **others):
    with pytest.raises(LoginError) as raised:
        fetch(*args, **others)
    assert "hunter2" not in str(raised.value)
    return raised.value


def client(secret=SECRET, more=""):
    return f'clientId="me" clientSecret="{secret}" {more}'


def signed(tmp_path, content=None, **others):
    file = tmp_path / "key"
    file.write_bytes(pkcs8(KEY) if content is None else content)
    return {
        "sasl.oauthbearer.jwt.retriever.class": f"{OAUTH}JwtBearerJwtRetriever",
        f"{ASSERTION}private.key.file": str(file),
        **{f"{ASSERTION}{name}": value for name, value in others.items()},
    }


def test_client_credentials_get_a_token_with_the_scope(oidc):
    token = fetch(oidc.token_url, client(more='scope="kafka"'))
    claims = jwt.decode(token.value, oidc.key).claims
    assert (claims["sub"], claims["aud"], claims["scope"]) == ("me", "kafka", "kafka")
    assert (token.expires_at, token.issued_at) == (claims["exp"] * 1000, claims["iat"] * 1000)
    assert oidc.forms[-1] == {"grant_type": "client_credentials", "scope": "kafka"}


def test_the_options_of_kafka_4_go_before_those_of_the_login_module(oidc):
    names = "sasl.oauthbearer.client.credentials.client"
    options = {f"{names}.id": "me", f"{names}.secret": SECRET, "sasl.oauthbearer.scope": "kafka"}
    fetch(oidc.token_url, 'clientId="other" clientSecret="other" scope="other"', **options)
    assert oidc.forms[-1]["scope"] == "kafka"


def test_a_wrong_secret_is_final_and_says_what_the_server_says(oidc):
    error = error_of(oidc.token_url, client("wrong"))
    assert type(error) is RefusedLoginError
    assert str(error).startswith(f"{URL} {oidc.token_url} responded with HTTP status 401 (invalid_client, ")


@pytest.mark.parametrize(
    ("head", "body", "says"),
    [
        (b"Content-Encoding: gzip, gzip\r\n", b"\x1f\x8b", "responded with a Content-Encoding"),
        (b"", b"[" * 200_000, "responded without an access_token"),
        (b"", b'{"error": ' + b"[" * 500 + b"]" * 500 + b"}", "responded without an access_token"),
    ],
    ids=["encoded", "nested", "nested error"],
)
def test_incident_a_hostile_body_of_an_identity_provider_left_as_another_error(head, body, says):
    length = b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body)
    with peer(responding(b"HTTP/1.1 200 OK\r\n" + head + length + body)) as address:
        error = error_of(f"http://{address}/token", client())
    assert type(error) is LoginError
    assert says in str(error)


def test_a_server_that_hangs_is_given_up_in_time(oidc):
    oidc.hang()
    try:
        error = error_of(oidc.token_url, client(), **{"sasl.login.read.timeout.ms": 300})
    finally:
        oidc.let_go()
    assert str(error) == f"{URL} {oidc.token_url} did not respond within 300 ms (sasl.login.read.timeout.ms)"
    assert type(error) is RetriableLoginError


def test_a_server_that_hangs_in_its_tls_handshake_is_given_up_in_time():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"https://127.0.0.1:{listener.getsockname()[1]}/token"
        error = error_of(url, client(), **{"sasl.login.connect.timeout.ms": 300})
    assert str(error) == f"{URL} {url} could not be connected to within 300 ms (sasl.login.connect.timeout.ms)"
    assert type(error) is RetriableLoginError


def test_a_port_without_server_is_retriable_and_user_and_query_of_the_url_are_not_shown():
    error = error_of("http://user:hunter2@127.0.0.1:1/token?key=hunter2", client())
    assert type(error) is RetriableLoginError
    assert str(error) == f"{URL} http://127.0.0.1:1/token could not be connected to: Connection refused"


def test_the_endpoints_tls_has_the_options_of_the_login_module_and_not_the_brokers(tmp_path):
    authority = CertificateAuthority()
    (tmp_path / "server.pem").write_text(authority.issue("idp", ("127.0.0.1",)).key_store)
    (tmp_path / "ca.pem").write_text(authority.certificate)
    with OidcServer(clients(), certificate=tmp_path / "server.pem") as server:
        trust = f'ssl.truststore.location="{tmp_path / "ca.pem"}" ssl.truststore.type="PEM"'
        assert fetch(server.token_url, client(more=trust)).value
        error = error_of(server.token_url, client(), **{"ssl.truststore.certificates": authority.certificate})
        assert str(error).startswith(f"{URL} {server.token_url} could not be reached by TLS: ")
        assert str(error).endswith("trusted by ssl.truststore.location in sasl.jaas.config, or by the system")
        missing = error_of(server.token_url, client(more='ssl.truststore.location="/none.pem"'))
        assert str(missing) == (
            "sasl.jaas.config: ssl.truststore.location /none.pem cannot be read: No such file or directory."
        )


@pytest.mark.parametrize(
    "content",
    [pkcs8(KEY), pkcs8(KEY, encoding=Encoding.DER), base64.b64encode(pkcs8(KEY, encoding=Encoding.DER)) + b"\n"],
    ids=["PEM", "DER", "base64, as Java reads it"],
)
def test_a_private_key_signs_an_assertion_that_gets_a_token(oidc, tmp_path, content):
    claims = {"claim.iss": "signer", "claim.sub": "signer", "claim.aud": oidc.token_url, "claim.jti.include": True}
    token = fetch(oidc.token_url, **signed(tmp_path, content, **claims), **{"sasl.oauthbearer.scope": "kafka"})
    assert jwt.decode(token.value, oidc.key).claims["sub"] == "signer"
    assert set(oidc.forms[-1]) == {"grant_type", "assertion", "scope"}


def test_an_encrypted_key_needs_its_passphrase(oidc, tmp_path):
    claims = {"claim.iss": "signer", "claim.sub": "signer", "claim.aud": oidc.token_url}
    options = signed(tmp_path, pkcs8(KEY, b"hunter2"), **claims)
    assert fetch(oidc.token_url, **options, **{f"{ASSERTION}private.key.passphrase": "hunter2"}).value
    fault = str(error_of(oidc.token_url, **options, **{f"{ASSERTION}private.key.passphrase": "wrong"}))
    assert fault.endswith(
        f"cannot be read as a private key: {ASSERTION}private.key.passphrase is wrong, or the key is damaged"
    )


def test_header_and_claims_come_from_options_the_template_and_the_clock_in_this_order(tmp_path):
    template = tmp_path / "template.json"
    template.write_text(json.dumps({"header": {"kid": "k1"}, "payload": {"sub": "of the file", "extra": 1, "exp": 1}}))
    options = {"claim.iss": "me", "claim.sub": "of the option", "template.file": str(template)}
    made = assertion(config("http://idp", **signed(tmp_path, **options)), 1_700_000_000_000)
    decoded = jwt.decode(made, RSAKey.import_key(public(KEY)))
    assert decoded.header == {"kid": "k1", "alg": "RS256", "typ": "JWT"}
    assert decoded.claims == {
        "iss": "me", "sub": "of the file", "extra": 1,
        "iat": 1_700_000_000, "exp": 1_700_000_300, "nbf": 1_699_999_940,
    }  # fmt: skip


def test_es256_is_signed_as_jws_wants_it(tmp_path):
    key = ec.generate_private_key(ec.SECP256R1())
    made = assertion(config("http://idp", **signed(tmp_path, pkcs8(key), algorithm="ES256")), 0)
    assert jwt.decode(made, ECKey.import_key(public(key)), algorithms=["ES256"]).claims["iat"] == 0
    with pytest.raises(LoginError, match="is not a key of the curve P-256, which .* needs"):
        assertion(config("http://idp", **signed(tmp_path, algorithm="ES256")), 0)


def test_a_finished_assertion_is_read_each_time(oidc, tmp_path):
    file = tmp_path / "assertion"
    claims = {"claim.iss": "signer", "claim.sub": "signer", "claim.aud": oidc.token_url}
    file.write_text(assertion(config("http://idp", **signed(tmp_path, **claims)), SystemClock().epoch_ms()))
    options = {
        "sasl.oauthbearer.jwt.retriever.class": f"{OAUTH}JwtBearerJwtRetriever", f"{ASSERTION}file": str(file),
    }  # fmt: skip
    assert fetch(oidc.token_url, **options).value
    file.unlink()
    assert (
        str(error_of(oidc.token_url, **options)) == f"{ASSERTION}file {file} cannot be read: No such file or directory"
    )


@pytest.mark.parametrize("form", ["file:{}", "file://{}"])
def test_a_token_file_is_read_at_each_fetch(oidc, tmp_path, form):
    file = tmp_path / "a token"
    url = form.format(str(file).replace(" ", "%20"))
    name = f"{URL} file:{file}"
    assert str(error_of(url)) == f"{name} cannot be read: No such file or directory"
    file.write_text("")
    assert str(error_of(url)) == f"{name} is empty"
    file.write_text("hunter2")
    assert str(error_of(url)) == f"{name} returned a token that is not a JWT (three parts with dots between them)"
    token = oidc.issue("me")
    file.write_text(f"{token}\n")
    assert fetch(url).value == token


def test_incident_a_token_file_that_is_a_pipe_or_has_no_end_held_the_login(oidc, tmp_path):
    pipe, large, link = tmp_path / "pipe", tmp_path / "large", tmp_path / "link"
    os.mkfifo(pipe)
    large.write_bytes(b"x" * 1_000_001)
    for file, problem in (
        (pipe, "is not a regular file"),
        (Path("/dev/zero"), "is not a regular file"),
        (tmp_path, "cannot be read: Is a directory"),
        (large, "has more than 1000000 bytes"),
    ):
        assert str(error_of(f"file:{file}")) == f"{URL} file:{file} {problem}"
    (tmp_path / "token").write_text(token := oidc.issue("me"))
    link.symlink_to("token")  # as Kubernetes mounts them
    assert fetch(f"file:{link}").value == token


@pytest.mark.parametrize("end", ["NaN", "Infinity", "1e300", "true", '"soon"'])
def test_a_token_without_an_end_in_time_is_refused_and_not_fetched_without_pause(tmp_path, end):
    file = tmp_path / "token"
    claims = base64.urlsafe_b64encode(f'{{"exp": {end}, "secret": "hunter2"}}'.encode()).decode()
    file.write_text(f"e30.{claims.rstrip('=')}.x")
    error = error_of(f"file:{file}")
    assert str(error) == f"{URL} file:{file} returned a token without the claim exp (its expiry)"


def test_incident_a_template_that_is_nested_too_deep_was_a_recursion_error(tmp_path):
    template = tmp_path / "template.json"
    template.write_text("[" * 100_000)
    with pytest.raises(LoginError, match=r"must be a JSON object"):
        assertion(config("http://idp", **signed(tmp_path, **{"template.file": str(template)})), 0)
