"""The log line about records of ``send`` that failed without a callback and while no thread waited for them."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.errors import BrokerError
from tests.contract.brokers import broker_with
from tests.support.waiting import DEADLINE_S

broker = broker_with("t", config={"auto.create.topics.enable": False})


@pytest.fixture
def producer(broker):
    broker.create_topic("small", configs={"max.message.bytes": "200"})
    with KafkaProducer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 200}) as opened:
        yield opened


def refused(producer):
    return producer.send(ProducerRecord("small", b"x" * 500))


def warnings(caplog):
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


def test_incident_records_that_a_broker_refused_left_no_line_when_nobody_read_their_futures(producer, caplog):
    for _ in range(2):
        refused(producer)
        producer.send(ProducerRecord("t", b"v"))
        producer.flush()
    producer.close()
    (warning,) = warnings(caplog)  # the second one is due after 30 s
    assert warning.startswith("1 record of topic small failed with MESSAGE_TOO_LARGE, and no callback or thread waited")


async def awaited(future):
    await future


LOOKS = {
    "result": lambda future: future.result(DEADLINE_S),
    "exception": lambda future: future.exception(DEADLINE_S),
    "callback": lambda future: future.add_callback(lambda *_: None),
    "done callback": lambda future: future.add_done_callback(lambda _: None),
    "await": lambda future: asyncio.run(awaited(future)),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_a_failure_that_somebody_waits_for_leaves_no_line(producer, caplog, look):
    with suppress(BrokerError):
        look(refused(producer))
    producer.close()
    assert warnings(caplog) == []


def test_incident_a_logging_handler_that_raised_failed_other_records_of_the_response(producer, monkeypatch):
    class Raising(logging.Filter):
        def filter(self, record):
            raise RuntimeError

    monkeypatch.setattr(logging.getLogger("spark_kafka_sink.producer"), "filters", [Raising()])
    first = producer.send(ProducerRecord("small", b"x" * 500))
    second = producer.send(ProducerRecord("t", b"v"))
    producer.flush()
    assert isinstance(first.exception(DEADLINE_S), BrokerError)
    assert second.result(DEADLINE_S).offset == 0


def test_incident_a_logging_handler_that_flushed_waited_for_the_line_of_its_own_record(producer):
    """A handler that sends log lines to Kafka holds its lock meanwhile, which the sender thread needs to log."""
    flushed: list[bool] = []

    class Sending(logging.Handler):
        def emit(self, record):
            if record.name == "app":
                refused(producer)
                producer.flush(timeout_ms=DEADLINE_S * 1000)
                flushed.append(True)

    handler = Sending()
    loggers = [logging.getLogger(name) for name in ("app", "spark_kafka_sink.producer")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        loggers[0].warning("a line")
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
    assert flushed
