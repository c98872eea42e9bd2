"""Jobs and queries that log in with tokens of a real OIDC server, on a real Kafka that checks them by its keys."""

import pytest

from spark_kafka_sink.testing.listener import with_prefix
from tests.contract.scenario import name
from tests.spark.test_security import GUARANTEES, numbers, read_back
from tests.spark.writes import fails, one_off, save, stream, streaming
from tests.support.oauth_kafka import PRIVATE_KEY, SECRET, jwt_bearer, oauth_kafka, oauth_options, oidc_server
from tests.support.oidc_server import JWT_BEARER

pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module")
def oidc():
    with oidc_server() as server:
        yield server


@pytest.fixture(scope="module")
def kafka(oidc):
    with oauth_kafka(oidc, "4.4.0") as cluster:
        yield cluster


def options_of(kafka, topic, guarantee, given):
    once = {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": topic}
    return {**with_prefix(given), "topic": topic, **(once if guarantee == "exactly-once" else {})}


def writes_each_row(spark, kafka, folder, guarantee, given):
    topic = name("oauth")
    kafka.create_topic(topic)
    options = options_of(kafka, topic, guarantee, given)
    save(numbers(spark, 0, 300), one_off({**options, "deliveryGuarantee": guarantee}))
    for first in (300, 600):
        stream(streaming(numbers(spark, first, first + 300), folder / "in"), options, folder / "checkpoint")
    assert read_back({"bootstrap.servers": kafka.bootstrap_servers}, topic, 900) == list(range(900))


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_job_and_a_query_write_each_row_with_client_credentials(spark, kafka, oidc, tmp_path, guarantee):
    before = len(oidc.forms)
    writes_each_row(spark, kafka, tmp_path, guarantee, oauth_options(kafka, oidc.token_url))
    assert {form["grant_type"] for form in oidc.forms[before:]} == {"client_credentials"}


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_job_and_a_query_write_each_row_with_a_jwt_bearer(spark, kafka, oidc, tmp_path, guarantee):
    key = tmp_path / "key.pem"
    key.write_bytes(PRIVATE_KEY)
    before = len(oidc.forms)
    writes_each_row(
        spark, kafka, tmp_path, guarantee, oauth_options(kafka, oidc.token_url, "", **jwt_bearer(oidc, str(key)))
    )
    assert {form["grant_type"] for form in oidc.forms[before:]} == {JWT_BEARER}


def test_a_wrong_secret_is_one_error_that_names_the_endpoint(spark, kafka, oidc):
    given = oauth_options(kafka, oidc.token_url, 'clientId="me" clientSecret="wr0ng"')
    text = fails(save, numbers(spark, 0, 10).coalesce(1), options_of(kafka, name("oauth"), "at-least-once", given))
    assert f"{oidc.token_url} responded with HTTP status 401 (invalid_client" in text
    assert "wr0ng" not in text
    assert SECRET not in text
