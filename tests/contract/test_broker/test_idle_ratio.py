"""The share of their time that request handlers wait for requests."""

from __future__ import annotations

from spark_kafka_sink.testing import KEPT, TestBroker
from tests.contract.plain_client import PlainClient
from tests.support.waiting import eventually


def idle(broker: TestBroker) -> float:
    return broker.metrics()["KafkaRequestHandlerPool"]["RequestHandlerAvgIdlePercent"]


def test_a_broker_without_requests_is_idle_and_a_slow_handler_is_not() -> None:
    with TestBroker(config={"num.io.threads": 1}) as broker, PlainClient(broker.bootstrap_servers) as client:
        eventually(lambda: idle(broker) > 0.9)
        broker.faults.delay("Metadata", 100, times=KEPT)
        eventually(lambda: bool(client.ask("Metadata", 9, topics=[]).brokers) and idle(broker) < 0.5)
