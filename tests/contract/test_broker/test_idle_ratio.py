"""The share of their time that request handlers wait for requests."""

from __future__ import annotations

import pytest

from spark_kafka_sink.testing import KEPT, TestBroker
from spark_kafka_sink.testing.broker.idle_meter import IdleMeter
from tests.contract.plain_client import PlainClient
from tests.support.waiting import eventually


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def idle(broker: TestBroker) -> float:
    return broker.metrics()["KafkaRequestHandlerPool"]["RequestHandlerAvgIdlePercent"]


def test_busy_handlers_count_by_their_time() -> None:
    clock = Clock()
    meter = IdleMeter(2, clock)
    meter.handler_waits()
    meter.handler_waits()
    clock.now_s += 3
    meter.handler_works()
    clock.now_s += 1

    assert meter.ratio() == pytest.approx((2 * 3 + 1) / (2 * 4))


def test_a_broker_without_requests_is_idle_and_a_slow_handler_is_not() -> None:
    with TestBroker(config={"num.io.threads": 1}) as broker, PlainClient(broker.bootstrap_servers) as client:
        eventually(lambda: idle(broker) > 0.9)
        broker.faults.delay("Metadata", 100, times=KEPT)
        eventually(lambda: bool(client.ask("Metadata", 9, topics=[]).brokers) and idle(broker) < 0.5)
