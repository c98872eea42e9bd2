"""An exception that no handler foresees is UNKNOWN_SERVER_ERROR in the form of each API; the connection stays open."""

from __future__ import annotations

import logging
from uuid import UUID

import pytest

from spark_kafka_sink.testing import TestBroker
from tests.contract.plain_client import PlainClient, batch
from tests.contract.test_broker.test_versions import OFFERED, errors, requests

RECORDS = batch([b"x"])
TOPIC_ID = UUID(int=7)


def produce(acks: int) -> dict[str, object]:
    partitions = [{"index": index, "records": RECORDS} for index in (0, 1)]
    return {"acks": acks, "timeout": 10_000, "topic_data": [{"name": "t", "partition_data": partitions}]}


def fail() -> None:
    raise ArithmeticError("a handler that divides by zero")


@pytest.mark.parametrize(("api", "version"), OFFERED)
def test_a_handler_that_raises_is_answered_in_the_form_of_its_api(
    broker: TestBroker, client: PlainClient, api: str, version: int
) -> None:
    broker.faults.run(api, fail)

    answer = client.ask(api, version, **requests(TOPIC_ID)[api])

    said = answer.topics[0] if api == "Metadata" else answer  # its own code, since version 13, is another matter
    assert set(errors(said)) == {"unknown_server_error"}
    assert client.ask("Metadata", 9, topics=[]).brokers


def test_with_acks_0_a_handler_that_raises_closes_the_connection(broker: TestBroker, client: PlainClient) -> None:
    broker.faults.run("Produce", fail)
    client.tell("Produce", 9, **produce(0))

    assert client.is_hung_up()


def test_an_error_with_acks_0_is_logged_as_kafka_logs_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "spark_kafka_sink.testing.broker")
    with TestBroker(like="3.9") as broker, PlainClient(broker.bootstrap_servers) as client:
        broker.create_topic("t")
        correlation_id = client.tell("Produce", 9, **produce(0))
        assert client.is_hung_up()

    assert [record.getMessage() for record in caplog.records] == [
        f"Closing connection due to error during produce request with correlation id {correlation_id} from client id "
        "plain with ack=0\nTopic and partition to exceptions: "
        "t-0 -> null, t-1 -> org.apache.kafka.common.errors.UnknownTopicOrPartitionException"
    ]
