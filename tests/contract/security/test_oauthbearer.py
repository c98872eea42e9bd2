"""OAUTHBEARER on a real Kafka that checks tokens by the keys of a real OIDC server; librdkafka is the referee."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.testing import LocalKafka
from tests.contract.scenario import name
from tests.contract.security.librdkafka import consume
from tests.support.oauth_kafka import PRIVATE_KEY, SECRET, STRANGER_S_KEY, URL, jwt_bearer, oauth_kafka, oidc_server
from tests.support.oauth_kafka import oauth_options as options
from tests.support.oidc_server import JWT_BEARER, Client, OidcServer
from tests.support.waiting import DEADLINE_S

pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module")
def oidc() -> Iterator[OidcServer]:
    with oidc_server() as server:
        yield server


@pytest.fixture(scope="module", params=["4.4.0", pytest.param("3.9.1", marks=pytest.mark.slow)])
def kafka(request: pytest.FixtureRequest, oidc: OidcServer) -> Iterator[LocalKafka]:
    with oauth_kafka(oidc, request.param) as cluster:
        yield cluster


def write(given: dict[str, object], topic: str, values: list[bytes]) -> None:
    with KafkaProducer(given) as producer:
        for future in [producer.send(ProducerRecord(topic, value, partition=0)) for value in values]:
            future.result(DEADLINE_S)


def error_of(given: dict[str, object], topic: str) -> str:
    with KafkaProducer({**given, "max.block.ms": 20_000}) as producer, pytest.raises(KafkaError) as raised:
        producer.send(ProducerRecord(topic, b"1", partition=0)).result(DEADLINE_S)
    assert SECRET not in str(raised.value)
    return str(raised.value)


def written(kafka: LocalKafka, topic: str, count: int) -> list[bytes]:
    return consume({"bootstrap.servers": kafka.bootstrap_servers}, topic, count)


def test_client_credentials_log_in_with_extensions_and_one_token_for_all_connections(
    kafka: LocalKafka, oidc: OidcServer
) -> None:
    topic = name("oauth")
    kafka.create_topic(topic)
    before = len(oidc.forms)
    jaas = f'clientId="me" clientSecret="{SECRET}" scope="kafka" extension_logicalCluster="lkc-1"'
    write(options(kafka, oidc.token_url, jaas), topic, [b"1", b"2"])
    assert len(oidc.forms) == before + 1
    assert written(kafka, topic, 2) == [b"1", b"2"]


def test_a_token_file_logs_in_and_one_that_the_broker_refuses_is_one_clear_error(
    kafka: LocalKafka, oidc: OidcServer, tmp_path: Path
) -> None:
    topic = name("oauth")
    kafka.create_topic(topic)
    file = tmp_path / "token"
    file.write_text(oidc.issue("me"))
    write(options(kafka, f"file:{file}", "", **{"client.id": "file"}), topic, [b"1"])
    assert written(kafka, topic, 1) == [b"1"]
    with OidcServer({"me": Client("me", SECRET)}) as stranger:
        refused = error_of(options(kafka, stranger.token_url), topic)
    assert "refused the login with OAUTHBEARER: SASL_AUTHENTICATION_FAILED" in refused
    assert "invalid_token" in refused
    assert refused.endswith(
        "see sasl.oauthbearer.token.endpoint.url and scope, and the issuer and audience that the brokers expect"
    )


def test_an_assertion_signed_here_logs_in_by_jwt_bearer_and_one_of_another_key_is_one_clear_error(
    kafka: LocalKafka, oidc: OidcServer, tmp_path: Path
) -> None:
    topic = name("oauth")
    kafka.create_topic(topic)
    file = tmp_path / "key.pem"
    file.write_bytes(PRIVATE_KEY)
    given = options(kafka, oidc.token_url, "", **jwt_bearer(oidc, str(file)))
    write(given, topic, [b"1", b"2"])
    assert oidc.forms[-1]["grant_type"] == JWT_BEARER
    assert written(kafka, topic, 2) == [b"1", b"2"]
    file.write_bytes(STRANGER_S_KEY)
    assert f"{URL} {oidc.token_url} responded with HTTP status 400 (" in error_of(
        {**given, "client.id": "other"}, topic
    )
