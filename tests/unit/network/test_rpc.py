"""Requests on the caller's own thread, to brokers that come and go."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.list_transactions.v0.request import ListTransactionsRequest

from spark_kafka_sink import ProducerRecord
from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.waiting import Waiters
from spark_kafka_sink.errors import KafkaTimeoutError, NetworkError
from spark_kafka_sink.network.calls import STALL_MS, Call, CodeAt
from spark_kafka_sink.network.messages import CompletionHandler, KioRequest, Request, Response
from spark_kafka_sink.network.name_lookup import AddressList
from spark_kafka_sink.network.rpc import Rpc
from spark_kafka_sink.network.selector import Selector
from spark_kafka_sink.network.transport import Bytes, Event
from spark_kafka_sink.producer.sync_producer import SyncProducer
from spark_kafka_sink.testing import TestBroker
from tests.support.manual_clock import ManualClock
from tests.support.scripted_network import ScriptedTransport
from tests.support.waiting import DEADLINE_S

DEADLINE_MS = 1_000 * DEADLINE_S


@pytest.fixture
def brokers() -> Iterator[TestBroker]:
    with TestBroker(nodes=2) as cluster:
        yield cluster


@pytest.fixture
def rpc(brokers: TestBroker) -> Iterator[Rpc]:
    with closing(Rpc(ProducerConfig.parse({"bootstrap.servers": brokers.bootstrap_servers}), SystemClock())) as each:
        each.refresh()
        yield each


def list_transactions(completed: CompletionHandler) -> Request:
    return KioRequest("list_transactions", (0, 0), lambda _module, _version: ListTransactionsRequest(), completed)


def test_a_broker_that_has_left_the_metadata_is_an_error_of_its_request_alone(brokers: TestBroker, rpc: Rpc) -> None:
    brokers.kill(2)
    rpc.refresh()

    ended = rpc.exchange({1: list_transactions, 2: list_transactions})

    left, answered = ended[2], ended[1]
    assert isinstance(left, NetworkError)
    assert str(left) == "Broker 2 has left the cluster"
    assert isinstance(answered, Response)
    assert answered.error is None


def test_the_sync_producer_sends_to_the_new_leader_of_a_broker_that_leaves(brokers: TestBroker) -> None:
    brokers.create_topic("t")
    old = brokers.leader("t", 0)
    with SyncProducer({"bootstrap.servers": brokers.bootstrap_servers, "acks": "all"}) as producer:
        producer.send(ProducerRecord("t", b"1"))
        # The broker dies, and the metadata without it comes, while its request is under way.
        brokers.faults.run("Produce", lambda: brokers.kill(old))
        producer.send(ProducerRecord("t", b"2"))
    assert set(brokers.topic("t").values()) == {b"1", b"2"}


class CountingSelector(Selector):
    """Counts connections and sent frames; ``interrupted``: the next poll raises."""

    def __init__(self) -> None:
        super().__init__(-1, -1)
        self.connections = self.frames = 0
        self.interrupted = False

    def connect(self, connection_id: int, host: str, port: int, addresses: AddressList | None = None) -> None:
        self.connections += 1
        super().connect(connection_id, host, port, addresses)

    def send(self, connection_id: int, buffers: Sequence[Bytes]) -> bool:
        self.frames += 1
        return super().send(connection_id, buffers)

    def poll(self, timeout_ms: float) -> list[Event]:
        if self.interrupted:
            self.interrupted = False
            raise KeyboardInterrupt
        return super().poll(timeout_ms)


def list_call() -> Call:
    return Call(
        "list_transactions",
        (0, 0),
        1,
        lambda _module, _version: ListTransactionsRequest(),
        lambda body: [CodeAt("ListTransactions", body.error_code)],
    )


def test_a_connection_that_was_idle_too_long_is_not_used_again(brokers: TestBroker) -> None:
    selector = CountingSelector()
    config = {"bootstrap.servers": brokers.bootstrap_servers, "connections.max.idle.ms": 300}
    with closing(Rpc(ProducerConfig.parse(config), SystemClock(), selector)) as rpc:
        rpc.call(list_call(), rpc.now() + DEADLINE_MS)
        before = selector.connections
        time.sleep(0.4)

        rpc.call(list_call(), rpc.now() + DEADLINE_MS)

        assert selector.connections == before + 1


def test_a_call_that_was_interrupted_is_not_sent_later(brokers: TestBroker) -> None:
    selector = CountingSelector()
    config = ProducerConfig.parse({"bootstrap.servers": brokers.bootstrap_servers})
    with closing(Rpc(config, SystemClock(), selector)) as rpc:
        rpc.call(list_call(), rpc.now() + DEADLINE_MS)
        before = selector.frames
        selector.interrupted = True
        with pytest.raises(KeyboardInterrupt):
            rpc.call(list_call(), rpc.now() + DEADLINE_MS)

        rpc.pause(20)

        assert selector.frames == before


@pytest.mark.parametrize("stall_ms", [300.0, STALL_MS])
def test_a_call_that_waits_for_long_is_told_with_the_reason(
    rpc: Rpc, stall_ms: float, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("spark_kafka_sink.network.rpc.STALL_MS", stall_ms)
    call = list_call()
    call.codes = lambda _body: [CodeAt("ListTransactions", ErrorCode.coordinator_load_in_progress)]

    with pytest.raises(KafkaTimeoutError):
        rpc.call(call, rpc.now() + 800)

    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(told) == (2 if stall_ms == 300.0 else 0)
    assert all(line.startswith("ListTransactions for broker 1 has waited for 0 s: ") for line in told[:1])
    assert all(line.startswith("ListTransactions for broker 1 has waited for 1 s: ") for line in told[1:])
    assert all("COORDINATOR_LOAD_IN_PROGRESS" in line for line in told)


def test_a_topic_that_no_broker_tells_of_is_waited_for_once_not_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(Waiters, "wait_for", lambda _self, _lock, _condition, ms: slept.append(ms))
    clock, network = ManualClock(), ScriptedTransport()
    monkeypatch.setattr(network, "poll", lambda timeout_ms: [clock.advance(timeout_ms)][1:])
    config = ProducerConfig.parse({"bootstrap.servers": "boot:9092"})
    with closing(Rpc(config, clock, network)) as rpc, pytest.raises(KafkaTimeoutError):
        rpc.await_topic("t", None, 3_000)
    assert clock.now() == pytest.approx(3_000)
    assert max(slept) <= 0
