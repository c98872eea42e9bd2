"""Credentials that change or end under a running query with retries: nothing is lost, and nothing doubled."""

import time
from collections import Counter
from contextlib import suppress

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from spark_kafka_sink.testing.listener import login, with_prefix
from tests.contract.scenario import name
from tests.contract.security.clusters import ROTATED, SESSION_MS
from tests.spark.running_stream import RunningStream
from tests.spark.test_security import GUARANTEES, on_kafka, refusals
from tests.support.oauth_kafka import oauth_kafka, oauth_options, oidc_server
from tests.support.waiting import DEADLINE_S, eventually

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(600)]
TOKEN_S = 6
for_each_guarantee = pytest.mark.parametrize("guarantee", GUARANTEES)


def running(kafka, folder, options, guarantee):
    topic = name("changing")
    kafka.create_topic(topic)
    if guarantee == "exactly-once":
        options = {**options, "deliveryGuarantee": guarantee, "transactionalIdPrefix": topic}
    return topic, RunningStream(folder, kafka.bootstrap_servers, topic, options)


def nothing_is_lost(stream, guarantee):
    found = stream.finish()
    assert set(found) == set(range(stream.written))
    if guarantee == "exactly-once":
        assert found == Counter(range(stream.written))


# -- SCRAM ------------------------------------------------------------------------------------------------------------


class Password:
    """The user's password at the brokers, and in a properties file."""

    def __init__(self, kafka, folder):
        self.file = folder / "kafka.properties"
        self._admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        self.set_at_the_brokers(name("password"))
        self.set_in_the_file()

    def set_at_the_brokers(self, password):
        self._password = password
        credential = UserScramCredentialUpsertion(
            ROTATED, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), password.encode()
        )
        (changed,) = self._admin.alter_user_scram_credentials([credential]).values()
        changed.result(DEADLINE_S)

    def set_in_the_file(self):
        new = self.file.with_suffix(".new")
        new.write_text(f"password={self._password}\n")
        new.rename(self.file)


@on_kafka
@for_each_guarantee
def test_a_password_that_changes_at_the_brokers_before_it_does_in_its_file(secure_kafka, tmp_path, guarantee):
    """The first login in between is refused, and the file changes at once: an attempt of a task may fail."""
    password = Password(secure_kafka, tmp_path)
    options = secure_kafka.spark_options("SESSIONS", ROTATED)
    options["kafka.sasl.jaas.config"] = login("SCRAM-SHA-512", ROTATED, f"${{file:{password.file}:password}}")
    _, stream = running(secure_kafka, tmp_path, options, guarantee)
    with stream:
        for _ in range(2):
            stream.write_for(1.5 * SESSION_MS / 1000)
            before = refusals(secure_kafka, "SESSIONS")
            password.set_at_the_brokers(name("password"))
            wanted = "no login between brokers and file"
            for _ in range(120):  # some rows each second
                stream.add(4)
                with suppress(AssertionError):
                    eventually(lambda before=before: refusals(secure_kafka, "SESSIONS") != before, wanted, 1)
                    break
            assert refusals(secure_kafka, "SESSIONS") != before, wanted
            password.set_in_the_file()
            stream.await_written()
        nothing_is_lost(stream, guarantee)
        assert stream.restarts == 0 or guarantee == "exactly-once"


# -- tokens -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def oidc():
    with oidc_server(TOKEN_S) as server:
        yield server


@pytest.fixture(scope="module")
def oauth(oidc):
    """Takes no token past its end, and closes connections whose session has ended."""
    more = {"sasl_oauthbearer_clock_skew_seconds": "0", "connections_max_reauth_ms": str(10 * TOKEN_S * 1000)}
    with oauth_kafka(oidc, "4.4.0", **more) as kafka:
        yield kafka


@for_each_guarantee
def test_tokens_that_end_after_a_few_seconds(oauth, oidc, tmp_path, guarantee):
    options = with_prefix(oauth_options(oauth, oidc.token_url))
    _, stream = running(oauth, tmp_path, options, guarantee)
    with stream:
        stream.write_for(0.1)
        before = len(oidc.forms)
        stream.write_for(3 * TOKEN_S)
        assert len(oidc.forms) >= before + 2
        time.sleep(1.5 * TOKEN_S)  # a session, and the token of an idle connection, end
        stream.write_for(1)
        nothing_is_lost(stream, guarantee)
    assert stream.restarts == 0
