"""A broker that refuses the client: every call that needs it ends at once with its error, after one attempt."""

import socket
from collections import Counter
from contextlib import suppress
from itertools import pairwise

import pytest
from kio.schema.errors import ErrorCode

from spark_kafka_sink.errors import KafkaTimeoutError, NetworkError, SaslAuthenticationError
from spark_kafka_sink.network.api_versions import METADATA
from spark_kafka_sink.network.calls import Call, CodeAt
from spark_kafka_sink.network.client import AFTER_AUTHENTICATION_ERROR_MS
from spark_kafka_sink.network.login import refusals
from spark_kafka_sink.network.metadata_api import MetadataEntity
from spark_kafka_sink.producer.receipt import SendReceipt
from tests.support.scripted_network import api_versions_response

from ..scripted_engine import RANGES, TOPIC, Engine

WRONG = "Authentication failed: Invalid username or password"
TOO_MANY = "[446c81dc-9ab3-4d4b-b174-4ecd9baa406c]: Too many connects"
OPTIONS = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_jaas_config": "org.apache.kafka.common.security.plain.PlainLoginModule required username=a password=b;",
    "linger_ms": 0,
    "metadata_max_age_ms": 1_000,
}


@pytest.fixture(autouse=True)
def new_process(monkeypatch):
    monkeypatch.setattr(refusals, "_accepted", {})


class SaslEngine(Engine):
    """``refusing``: hosts that refuse the login from now on, with the text ``said``. ``logins``: SaslAuthenticate
    requests by host; ``refused_at``: the times of refusals."""

    said = WRONG

    def __init__(self, **config):
        super().__init__(**{**OPTIONS, **config})
        self.refused_at = []
        self.refusing = set()
        self.logins = Counter()

    def _respond(self, request):
        host, _port = self.transport.addresses[request.connection_id]
        match request.api:
            case "api_versions":
                return api_versions_response(request, {**RANGES, 17: (0, 1), 36: (0, 2)})
            case "sasl_handshake":
                return request.response(mechanisms=["PLAIN"])
            case "sasl_authenticate":
                self.logins[host] += 1
                if host in self.refusing:
                    self.refused_at.append(self.clock.now())
                refused = {"error_code": ErrorCode.sasl_authentication_failed, "error_message": self.said}
                return request.response(**(refused if host in self.refusing else {}))
        return super()._respond(request)

    def await_topic(self, max_wait_ms=60_000):
        began = self.clock.now()

        def wait():
            self.spin()
            self.clock.advance(1)

        self.wait_for_topic(TOPIC, max_wait_ms, wait)
        return self.clock.now() - began

    def pass_time(self, ms):
        """Serves whatever comes due."""
        end = self.clock.now() + ms
        while self.clock.now() < end:
            self.turn(50)


def failed(receipt):
    with pytest.raises(SaslAuthenticationError) as raised:
        receipt.wait(0)
    return raised.value


def with_addresses(engine, refusing, unreachable=()):
    """The host ``boot`` has three addresses, 1 to 3. Returns those that connections took."""
    taken = []
    connect = engine.transport.connect

    def connect_by_address(connection_id, host, port, addresses):
        if not addresses:
            addresses.extend([(socket.AF_INET, (f"192.0.2.{number}", port)) for number in (1, 2, 3)])
        number = int(addresses.popleft()[1][0][-1])
        connect(connection_id, host, port, addresses)
        if host == "boot":
            taken.append(number)
            engine.refusing = {"boot"} if number in refusing else set()
            if number in unreachable:
                engine.transport.drop(connection_id, "Connection refused")

    engine.transport.connect = connect_by_address
    return taken


def has_topic(engine, ms):
    """Whether the metadata has the topic within ``ms`` of a caller that waits for it."""
    with suppress(KafkaTimeoutError):
        engine.parts.metadata.wait_for_topics({TOPIC: None}, 0)
    engine.pass_time(ms)
    return TOPIC in engine.parts.metadata.snapshot.topics


def test_incident_one_of_three_addresses_that_refused_the_login_blocked_the_good_ones_for_30_s():
    engine = SaslEngine()
    taken = with_addresses(engine, refusing={1, 2})
    assert has_topic(engine, 1_000)
    assert taken == [1, 2, 3]
    assert engine.parts.sender.client.counters.authentications_failed == 2


@pytest.mark.parametrize(("refusing", "unreachable"), [({1, 2, 3}, ()), ({1}, {2, 3})])
def test_a_login_that_every_address_refuses_is_tried_again_after_30_s(refusing, unreachable):
    engine = SaslEngine()
    taken = with_addresses(engine, refusing, unreachable)
    assert not has_topic(engine, 1_000)
    why = engine.parts.metadata.why_waiting((), engine.clock.now())
    assert isinstance(why.error, SaslAuthenticationError)
    assert not has_topic(engine, AFTER_AUTHENTICATION_ERROR_MS - 2_000)
    assert taken == [1, 2, 3]
    refusing.clear()
    assert has_topic(engine, 3_000)
    assert taken[3] == 1


@pytest.mark.parametrize("idempotent", [True, False])
def test_records_of_a_leader_that_refuses_fail_and_the_others_are_delivered(idempotent):
    engine = SaslEngine(partitions=2, nodes=2, enable_idempotence=idempotent)
    engine.await_topic()
    engine.refusing = {"n1"}
    lost, delivered = SendReceipt(), SendReceipt()
    engine.append([b"x"], 1, lost)
    engine.send([b"a"], 0, delivered)
    engine.spin(200)
    assert "refused the login" in str(failed(lost))
    delivered.wait(0)
    engine.append([b"y"], 1, again := SendReceipt())
    engine.send([b"b"], 0, delivered)
    failed(again)
    delivered.wait(0)
    engine.pass_time(AFTER_AUTHENTICATION_ERROR_MS - 2_000)
    assert (engine.logins["n1"], engine.values(0), engine.values(1)) == (1, [b"a", b"b"], [])
    assert engine.memory_is_free()
    engine.refusing = set()
    engine.pass_time(5_000)
    engine.send([b"z"], 1)
    assert engine.values(1) == [b"z"]


def pauses(times):
    return [after - before for before, after in pairwise(times)]


@pytest.mark.parametrize("said", [TOO_MANY, "who knows"])
def test_incident_a_limit_on_new_connections_was_taken_for_a_wrong_password(said):
    """Until delivery.timeout.ms. A text that is not known counts so because another broker took the credentials."""
    engine = SaslEngine(partitions=2, nodes=2)
    engine.await_topic()
    engine.refusing, engine.said = {"n1"}, said
    engine.append([b"x"], 1, receipt := SendReceipt())
    engine.pass_time(20_000)
    assert len(engine.refused_at) > 2
    assert min(pauses(engine.refused_at)) >= 1_000
    engine.refusing = set()
    engine.pass_time(11_000)
    receipt.wait(0)
    assert engine.values(1) == [b"x"]
    engine.parts.sender.client.disconnect(NetworkError("cut"))
    engine.refusing = {"n1"}
    engine.append([b"y"], 1, late := SendReceipt())
    engine.pass_time(121_000)
    with pytest.raises(KafkaTimeoutError, match="refused the login .*the login is tried again"):
        late.wait(0)


@pytest.mark.parametrize(("said", "waits"), [(TOO_MANY, True), ("who knows", False), (None, False), (WRONG, False)])
def test_a_first_login_waits_only_for_what_is_known_to_pass(said, waits):
    engine = SaslEngine()
    engine.refusing, engine.said = {"boot"}, said
    assert not has_topic(engine, 15_000)
    assert (len(engine.refused_at) > 2) == waits
    assert waits or engine.logins["boot"] == 1
    engine.refusing = set()
    assert has_topic(engine, 11_000) == waits


def test_a_broker_that_hangs_does_not_keep_a_call_from_ending_5_s_after_another_refused():
    engine = SaslEngine(bootstrap_servers="n0:9092", nodes=2)
    (donor := SaslEngine(nodes=2)).await_topic()
    engine.parts.metadata.updated(donor.parts.metadata.snapshot, 0.0)
    engine.refusing = {"n0", "n1"}
    ends = []
    codes = [CodeAt("Metadata", ErrorCode.none)]
    call = Call("metadata", METADATA, None, MetadataEntity([], False), lambda _body: codes, ends.append)
    engine.parts.sender.calls.start(call, None)
    while not engine.logins:
        engine.turn()
    engine.transport.accept_all = False
    began = engine.clock.now()
    engine.spin()  # the refusal arrives
    while not ends:
        engine.turn(max(1.0, engine.wake_at - engine.clock.now()))
    assert engine.clock.now() - began <= 5_000
    assert isinstance(ends[0].error, SaslAuthenticationError)
    assert engine.logins.total() == 1
