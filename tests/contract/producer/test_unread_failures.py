"""Failures of ``send`` that nobody looks at."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from contextlib import suppress

import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.errors import BrokerError
from spark_kafka_sink.producer import core
from tests.contract.brokers import broker_with
from tests.support.waiting import DEADLINE_S, eventually

LARGE, TOO_LARGE = (
    b"x" * 500,
    "of topic small failed with MESSAGE_TOO_LARGE, and the program neither read their futures",
)
broker = broker_with("t", config={"auto.create.topics.enable": False})


@pytest.fixture
def producer(broker):
    broker.create_topic("small", configs={"max.message.bytes": "200"})
    with KafkaProducer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 20}) as opened:
        yield opened


def refused(producer, count=1):
    return [producer.send(ProducerRecord("small", LARGE)) for _ in range(count)]


def warnings(caplog):
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING and "futures" in each.msg]


@pytest.mark.parametrize("ends", [KafkaProducer.close, lambda _: core._flush_at_exit()], ids=["close", "exit"])
def test_incident_records_that_a_broker_refused_left_no_line_when_nobody_read_their_futures(
    producer, caplog, ends, monkeypatch
):
    monkeypatch.setattr(core, "_running", [producer._core])
    kept = refused(producer, 3)
    concurrent.futures.wait(kept, DEADLINE_S)  # tells that they have ended, not how
    producer.send(ProducerRecord("t", b"v"))
    producer.flush()
    ends(producer)
    (warning,) = warnings(caplog)
    assert warning.startswith(f"3 records {TOO_LARGE}")
    producer.close()
    assert warnings(caplog) == [warning]


def test_while_the_producer_goes_on_those_whose_futures_were_collected_are_told_once_in_a_while(producer, caplog):
    refused(producer)
    producer.flush()
    eventually(lambda: warnings(caplog))
    refused(producer, 2)
    producer.flush()
    assert len(warnings(caplog)) == 1
    producer.close()
    assert sum(int(text.split()[0]) for text in warnings(caplog)) == 3
    assert len(warnings(caplog)) == 2


async def awaited(future):
    await future


LOOKS = {
    "result": lambda future: future.result(DEADLINE_S),
    "exception": lambda future: future.exception(DEADLINE_S),
    "callback": lambda future: future.add_callback(lambda *_: None),
    "done callback": lambda future: future.add_done_callback(lambda _: None),
    "await": lambda future: asyncio.run(awaited(future)),
}


@pytest.mark.parametrize("waits", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_a_failure_that_somebody_has_looked_at_leaves_no_line(producer, caplog, look, waits):
    (future,) = refused(producer)
    if waits:
        producer.flush()
    with suppress(BrokerError):
        look(future)
    producer.close()
    assert warnings(caplog) == []
