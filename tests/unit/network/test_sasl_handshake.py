"""SASL on a new connection: its requests, and one clear error for each way it can fail."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.config.option import Password
from spark_kafka_sink.errors import (
    IllegalSaslStateError,
    NetworkError,
    SaslAuthenticationError,
    UnsupportedSaslMechanismError,
)
from spark_kafka_sink.network.connection import ApiVersions
from spark_kafka_sink.network.handshake import authenticate, sasl_steps
from spark_kafka_sink.network.login.refusals import PassingLoginError, token_error
from spark_kafka_sink.network.login.sasl import LoginStep, sasl_mechanism
from spark_kafka_sink.network.login.token_login import RefusedLoginError, RetriableLoginError
from spark_kafka_sink.network.messages import response_type, schema
from tests.support.scripted_network import api_versions_response, response_frame
from tests.unit.login.scram_server import serve

from .conftest import CONFIG

SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="hunter2";'
PEER = "b:9092 (id: 1)"
RANGES = {3: (9, 13), 17: (0, 1), 18: (0, 4), 36: (0, 2)}
VERSIONS = ApiVersions(PEER, RANGES, {})


def configured(mechanism):
    return replace(
        CONFIG, security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism, sasl_jaas_config=Password(SCRAM)
    )


def steps(mechanism="PLAIN", begin=sasl_steps):
    config = configured(mechanism)
    return begin(VERSIONS if begin is sasl_steps else PEER, "b", config, sasl_mechanism(config))


def begun(*responses, mechanism="PLAIN"):
    """The steps after these responses."""
    generator = steps(mechanism)
    next(generator)
    for response in responses:
        generator.send(response)
    return generator


def frame(response):
    return memoryview(response_frame(0, response))[9 if response.__header_schema__.__flexible__ else 8 :]


def shaken(code=ErrorCode.none, mechanisms=("PLAIN",)):
    return frame(schema("sasl_handshake", 1).SaslHandshakeResponse(error_code=code, mechanisms=mechanisms))


def authenticated(data=b"", code=ErrorCode.none, message=None, lifetime_ms=0):
    response = response_type("sasl_authenticate", 2)(
        error_code=code, error_message=message, auth_bytes=data, session_lifetime=lifetime_ms
    )
    return memoryview(response_frame(0, response))[8:]


def result(generator, response):
    with pytest.raises(StopIteration) as done:
        generator.send(response)
    return done.value.value


def test_scram_goes_to_its_end_after_apiversions_and_keeps_the_sessions_lifetime():
    server = serve("sha512", {"alice": "hunter2"})
    next(server)
    generator = steps("SCRAM-SHA-512", authenticate)
    next(generator)
    request = SimpleNamespace(module=schema("api_versions", 4), version=4)
    generator.send(memoryview(response_frame(0, api_versions_response(request, RANGES)))[8:])
    first = generator.send(shaken()).auth_bytes
    final = generator.send(authenticated(server.send(first))).auth_bytes
    versions = result(generator, authenticated(server.send(final), lifetime_ms=5_000))
    assert (versions.ranges, versions.session_lifetime_ms) == (RANGES, 5_000)


LOGIN_REFUSED = f"{PEER} refused the login with PLAIN: "


def refused(code):
    """The responses of a login that ends so."""
    return [shaken(), authenticated(code=code, message="no")]


@pytest.mark.parametrize(
    ("responses", "error", "text"),
    [
        ([shaken(ErrorCode.unsupported_sasl_mechanism, ("SCRAM-SHA-256", "GSSAPI"))], UnsupportedSaslMechanismError,
         f"{PEER} does not offer SASL mechanism PLAIN, but SCRAM-SHA-256, GSSAPI: see sasl.mechanism"),
        ([shaken(ErrorCode.illegal_sasl_state)], IllegalSaslStateError, f"{PEER} expects no SASL on this port "
         "(ILLEGAL_SASL_STATE): see security.protocol, which is SASL_PLAINTEXT"),
        ([shaken(ErrorCode.unknown_server_error)], NetworkError, f"{PEER} refused SaslHandshake: UNKNOWN_SERVER_ERROR"),
        (refused(ErrorCode.sasl_authentication_failed), SaslAuthenticationError,
         f"{LOGIN_REFUSED}SASL_AUTHENTICATION_FAILED (no): see username and password in sasl.jaas.config"),
        (refused(ErrorCode.illegal_sasl_state), IllegalSaslStateError, f"{LOGIN_REFUSED}ILLEGAL_SASL_STATE (no)"),
        (refused(ErrorCode.unknown_server_error), PassingLoginError,
         f"{LOGIN_REFUSED}UNKNOWN_SERVER_ERROR (no); the login is tried again"),
    ],
)  # fmt: skip
def test_a_refused_mechanism_or_login_is_one_clear_error_with_the_brokers_text(responses, error, text):
    generator = begun(*responses[:-1])
    with pytest.raises(error) as raised:
        generator.send(responses[-1])
    assert (type(raised.value), str(raised.value)) == (error, text)


def test_incident_a_token_endpoint_that_limited_requests_ended_every_call_that_needed_a_token():
    """RetriableLoginError of the login's thread, as after HTTP status 429."""
    step = LoginStep("a token of x")
    step.fail(token_error("x responded with HTTP status 400 (temporarily_unavailable)", RefusedLoginError))
    mechanism = SimpleNamespace(exchange=lambda _host: iter_result(step))
    generator = sasl_steps(VERSIONS, "b", configured("OAUTHBEARER"), mechanism)
    assert next(generator) is step
    with pytest.raises(PassingLoginError, match="temporarily_unavailable"):
        next(generator)


def iter_result(step):
    yield step
    step.result()


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("AWS returned no credentials: An error occurred (Throttling) when calling AssumeRole: Rate exceeded", True),
        ("x responded with HTTP status 400 (invalid_grant, AADSTS50196: The server terminated an operation)", True),
        ("x responded with HTTP status 401 (invalid_client, Invalid client or Invalid client credentials)", False),
    ],
)
def test_limits_on_requests_for_tokens_are_told_from_wrong_secrets(text, passes):
    assert isinstance(token_error(text), RetriableLoginError) == passes


def test_incident_a_brokers_text_of_megabytes_became_the_error_as_it_came():
    hostile = authenticated(code=ErrorCode.sasl_authentication_failed, message="\x1b[2J\n" * 1_000_000)
    others = shaken(ErrorCode.unsupported_sasl_mechanism, ("\x1b[2J\n" * 5_000,))
    for responses, error in (
        ([shaken(), hostile], SaslAuthenticationError),
        ([others], UnsupportedSaslMechanismError),
    ):
        generator = begun(*responses[:-1])
        with pytest.raises(error) as raised:
            generator.send(responses[-1])
        assert str(raised.value).isprintable()
        assert len(str(raised.value)) < 10_000


def test_a_broker_that_cannot_prove_itself_is_refused_by_name():
    generator = begun(shaken(), mechanism="SCRAM-SHA-256")
    with pytest.raises(SaslAuthenticationError) as raised:
        generator.send(authenticated(b"e=other-error"))
    assert (
        str(raised.value) == f"{PEER} failed to authenticate with SCRAM-SHA-256: it sent a message that is not SCRAM's"
    )


def test_an_exception_of_a_mechanism_is_an_authentication_error_without_its_text():
    class Broken:
        def exchange(self, host):
            yield b"first"
            raise ValueError("hunter2")

    generator = sasl_steps(VERSIONS, "b", configured("OTHER"), Broken())
    next(generator)
    generator.send(shaken())
    with pytest.raises(SaslAuthenticationError) as raised:
        generator.send(authenticated())
    assert str(raised.value) == "SASL mechanism OTHER failed with ValueError"
