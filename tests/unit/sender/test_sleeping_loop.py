"""The loop sleeps while no broker can be reached: it runs again for an event or at the time that it named, never in
between. Two silent bootstrap servers and a transactional id once made it run 5,000 times a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from itertools import combinations_with_replacement
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.errors import AuthenticationError, KafkaTimeoutError, NetworkError, WrongProtocolError
from spark_kafka_sink.network.api_versions import METADATA
from spark_kafka_sink.network.calls import Call, CallTarget, CodeAt
from spark_kafka_sink.network.metadata_api import MetadataEntity
from spark_kafka_sink.network.name_lookup import AddressList
from spark_kafka_sink.network.rpc import Rpc
from spark_kafka_sink.network.selector import Event
from spark_kafka_sink.producer.receipt import SendReceipt
from spark_kafka_sink.producer.transaction_manager import Step
from spark_kafka_sink.producer.transaction_requests import transaction_key
from tests.support.manual_clock import ManualClock
from tests.support.scripted_network import ScriptedTransport, SentRequest
from tests.unit.scripted_engine import TOPIC, Engine
from tests.unit.scripted_engine import Step as EngineStep
from tests.unit.sender.test_authentication_errors import SaslEngine
from tests.unit.transactions.transactional_engine import TransactionalEngine

REFUSED, HUNG, MUTE, DEAF, FOREIGN = "refused", "hung", "mute", "deaf", "foreign"
"""A server that refuses connections; one whose host drops packets, or whose name server does not respond; one that
accepts and sends nothing; one that shakes hands and responds to nothing else; one that is no Kafka broker."""

KINDS = (REFUSED, HUNG, MUTE, DEAF, FOREIGN)
ONE_OR_TWO = [kinds for count in (1, 2) for kinds in combinations_with_replacement(KINDS, count)]
ONE_TO_THREE = [*ONE_OR_TWO, *combinations_with_replacement(KINDS, 3)]

LONG_MS = 45_000.0
"""Beyond the setup timeout, request.timeout.ms and the 30 s without attempts after a refused login."""


SHORTEST_MS = 0.1
"""A shorter sleep is none."""

MAX_IDLE = 4
"""Runs in a row without an event, an action or a sleep. A call that ends with a known error takes some of them."""


class Brokers(ScriptedTransport):
    """``kinds``: the hosts that cannot be used; the others accept. ``actions`` counts what the client does."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.kinds: dict[str, str] = {}
        self.actions = 0

    def connect(self, connection_id: int, host: str, port: int, addresses: AddressList | None = None) -> None:
        self.actions += 1
        kind = self.kinds.get(host)
        self.accept_all = kind in (None, MUTE, DEAF, FOREIGN)
        super().connect(connection_id, host, port, addresses)
        if kind == REFUSED:
            self.drop(connection_id, "Connection refused")

    def send(self, connection_id: int, buffers: Sequence[Any]) -> bool:
        self.actions += 1
        return super().send(connection_id, buffers)

    def _take(self, connection_id: int, frame: bytes) -> None:
        kind = self.kinds.get(self.addresses[connection_id][0])
        if kind == FOREIGN:
            self.receive(connection_id, b"HTTP/1.1 400 Bad Request")
        elif kind is None or (kind == DEAF and frame.startswith(b"\x00\x12")):
            super()._take(connection_id, frame)

    def fail(self, **kinds: str) -> None:
        """These hosts are in trouble from now on: the connections to them end."""
        self.kinds.update(kinds)
        for connection_id in [*self.open]:
            if self.addresses[connection_id][0] in kinds:
                self.drop(connection_id, "Connection reset by peer")


class Plain(Engine):
    transport_type = Brokers


class Transactional(TransactionalEngine):
    transport_type = Brokers


class WithLogin(SaslEngine):
    transport_type = Brokers


def run(engine: Plain | Transactional | WithLogin, ms: float = LONG_MS, wanted: str | None = None) -> None:
    """Runs the loop as its thread does, while a caller waits for ``wanted``, again after an error. Fails when it comes
    again without a reason.
    """
    end = engine.clock.now() + ms
    idle, brokers = 0, engine.transport

    def turn() -> None:
        nonlocal idle
        now, before = engine.clock.now(), brokers.actions
        events = brokers.poll(0)
        wake_at = engine.parts.sender.run_once(now, events)
        engine.parts.sender_thread.callbacks.run()
        idle = 0 if events or brokers.actions > before else idle + 1
        if wake_at > now and not brokers._events:
            idle = 0 if wake_at >= now + SHORTEST_MS else idle
            engine.clock.advance(max(min(wake_at, end) - now, SHORTEST_MS))
        assert idle <= MAX_IDLE, f"the loop runs without a pause at {now:.0f} ms"

    while (left := end - engine.clock.now()) > 0:
        if wanted is not None:
            with suppress(KafkaTimeoutError, AuthenticationError, WrongProtocolError):
                engine.wait_for_topic(wanted, left, turn)
        turn()


def servers(kinds: Iterable[str]) -> dict[str, str]:
    return {f"s{index}": kind for index, kind in enumerate(kinds)}


def bootstrap(kinds: Iterable[str]) -> str:
    return ",".join(f"{host}:9092" for host in servers(kinds))


@pytest.mark.parametrize("kinds", ONE_OR_TWO, ids="-".join)
@pytest.mark.parametrize("waits", [False, True])
def test_a_transactional_producer_sleeps_while_no_bootstrap_server_responds(kinds, waits):
    engine = Transactional(True, bootstrap_servers=bootstrap(kinds))
    engine.transport.kinds = servers(kinds)
    call = engine.submit(Step.INIT)
    run(engine, wanted=TOPIC if waits else None)
    assert engine.transport.actions >= 1
    assert FOREIGN in kinds or not call.outcome.wait(0)


@pytest.mark.parametrize("kinds", ONE_TO_THREE, ids="-".join)
def test_a_producer_sleeps_while_no_bootstrap_server_responds(kinds):
    engine = Plain(bootstrap_servers=bootstrap(kinds))
    engine.transport.kinds = servers(kinds)
    run(engine, wanted=TOPIC)


@pytest.mark.parametrize("leader", KINDS)
@pytest.mark.parametrize("other", [None, *KINDS])
@pytest.mark.parametrize("idempotent", [True, False])
def test_a_producer_sleeps_while_its_rows_have_no_leader_to_go_to(leader, other, idempotent):
    engine = Plain(2, 2, enable_idempotence=idempotent, metadata_max_age_ms=5_000)
    engine.connect()
    engine.append([b"a"], 0)
    engine.append([b"b"], 1)
    engine.transport.fail(n0=leader, **({} if other is None else {"n1": other, "boot": other}))
    run(engine, wanted="another")


@pytest.mark.parametrize("coordinator", KINDS)
@pytest.mark.parametrize("other", [None, *KINDS])
def test_a_transactional_producer_sleeps_while_its_coordinator_cannot_be_reached(coordinator, other):
    engine = Transactional(True, metadata_max_age_ms=5_000)
    engine.begun()
    engine.append([b"a"], 0)
    engine.append([b"b"], 1)
    engine.submit(Step.COMMIT)
    engine.transport.fail(n0=coordinator, **({} if other is None else {"n1": other, "boot": other}))
    run(engine)


@pytest.mark.parametrize("kinds", [(), *((kind,) for kind in KINDS)], ids="-".join)
@pytest.mark.parametrize("known", [False, True])
def test_a_refused_login_lets_the_loop_sleep(kinds, known):
    """``known``: the refused address is that of a bootstrap server and of a broker of the metadata."""
    names = ["n0", *servers(kinds)]
    engine = WithLogin(bootstrap_servers=",".join(f"{name}:9092" for name in names), metadata_max_age_ms=1_000)
    engine.transport.kinds = servers(kinds)
    if known:
        engine.transport.kinds = {}
        engine.await_topic()
        engine.transport.fail(**servers(kinds))
        engine.append([b"a"], receipt=SendReceipt())
    engine.refusing = {"n0"}
    engine.transport.fail(n0=REFUSED)
    del engine.transport.kinds["n0"]
    run(engine, 40_000, wanted="another")
    assert engine.logins["n0"] <= 4


MOST_TURNS = 200
"""In 20 s: a delay that doubles from 1 ms to 1 s is over thirty times, each with a few turns."""


def run_without_backoff(engine: Engine, before_turn: Callable[[], None] = lambda: None) -> None:
    """Runs the loop for 20 s. Fails when what was refused is repeated all the time."""
    end, turns = engine.clock.now() + 20_000, 0
    while (now := engine.clock.now()) < end:
        before_turn()
        engine.turn(0 if engine.transport._events else max(min(engine.wake_at, end) - now, 0))
        turns += 1
        assert turns < MOST_TURNS, f"the loop runs without a pause at {now:.0f} ms"


def test_incident_without_retry_backoff_a_refused_batch_was_sent_all_the_time():
    engine = Engine(retry_backoff_ms=0)
    engine.steps.extend(EngineStep(before={0: ErrorCode.not_enough_replicas}) for _ in range(10_000))
    engine.connect()
    engine.append([b"a"])
    run_without_backoff(engine)
    engine.steps.clear()
    engine.settle()
    assert engine.values() == [b"a"]


def test_incident_without_retry_backoff_a_missing_leader_was_asked_for_all_the_time():
    engine = Engine(retry_backoff_ms=0, retry_backoff_max_ms=1_000).connect()
    engine.leaders[0] = -1
    engine.parts.metadata.request_update()
    engine.append([b"a"])
    run_without_backoff(engine)
    engine.leaders[0] = 0
    engine.settle()
    assert engine.values() == [b"a"]


@pytest.mark.parametrize("api", ["init_producer_id", "find_coordinator"])
def test_incident_without_retry_backoff_a_coordinator_was_asked_all_the_time(api):
    engine = TransactionalEngine(True, retry_backoff_ms=0)
    engine.troubles[api].extend([ErrorCode.coordinator_not_available] * 10_000)
    engine.submit(Step.INIT)
    run_without_backoff(engine)


class LeavesOut(Engine):
    """Its brokers leave every topic out of their Metadata responses."""

    def _metadata(self, request: SentRequest) -> Any:
        return replace(super()._metadata(request), topics=())


@pytest.mark.parametrize("backoff_ms", [0, 100])
def test_incident_a_topic_that_a_response_left_out_was_asked_for_all_the_time(backoff_ms):
    engine = LeavesOut(retry_backoff_ms=backoff_ms)

    def wait_a_moment() -> None:
        with pytest.raises(KafkaTimeoutError):
            engine.parts.metadata.wait_for_topics({TOPIC: None}, 0)

    run_without_backoff(engine, wait_a_moment)


class TimedBrokers(Brokers):
    """The brokers of an ``Rpc``: the clock moves while it polls. Fails when it polls again without a reason."""

    def __init__(self) -> None:
        super().__init__(TransactionalEngine(True)._respond)
        self.clock = ManualClock()
        self.idle = 0
        self.acted = 0

    def poll(self, timeout_ms: float) -> list[Event]:
        events = super().poll(timeout_ms)
        self.idle = 0 if events or self.actions > self.acted or timeout_ms >= SHORTEST_MS else self.idle + 1
        self.acted = self.actions
        assert self.idle <= MAX_IDLE, f"Rpc runs without a pause at {self.clock.now():.0f} ms"
        if not events:
            self.clock.advance(max(min(timeout_ms, 60_000), SHORTEST_MS if timeout_ms > 0 else 0))
        return events


def to(*targets: CallTarget) -> Callable[[Rpc, float], object]:
    """Requests that only a broker which can be reached responds to."""

    def run_calls(rpc: Rpc, deadline: float) -> None:
        make = MetadataEntity([], False)
        codes = [CodeAt("Metadata", ErrorCode.none)]
        rpc.run([Call("metadata", METADATA, target, make, lambda _body: codes) for target in targets], deadline)

    return run_calls


USES: dict[str, Callable[[Rpc, float], object]] = {
    "any broker": to(None),
    "one broker": to(0),
    "coordinators": to(*(transaction_key(f"t{number}") for number in range(5))),
    "leader": to(TopicPartition(TOPIC, 0)),
    "topic": lambda rpc, _deadline: rpc.metadata.wait_for_topics({"another": None}, LONG_MS),
    "pause": lambda rpc, _deadline: rpc.pause(LONG_MS),
}


@pytest.mark.parametrize("what", USES)
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("kinds", ONE_OR_TWO, ids="-".join)
def test_rpc_sleeps_while_the_brokers_that_it_needs_do_not_respond(kinds, known, what):
    """``known``: the brokers of the metadata end up so, not only the bootstrap servers."""
    brokers = TimedBrokers()
    config = {"bootstrap.servers": bootstrap(kinds), "metadata.max.age.ms": 5_000}
    with closing(Rpc(ProducerConfig.parse(config), brokers.clock, brokers, 3)) as rpc:
        if known:
            rpc.refresh()
            brokers.fail(**dict(zip(("n0", "n1"), kinds, strict=False)))
        brokers.fail(**servers(kinds))
        for _ in range(2):
            with suppress(KafkaTimeoutError, NetworkError, WrongProtocolError):
                USES[what](rpc, rpc.now() + LONG_MS)
