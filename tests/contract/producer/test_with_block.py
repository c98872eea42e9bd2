"""How a ``with KafkaProducer(…)`` block ends: by itself, by an exception, by Ctrl-C; and what the end of a program
does with producers that are still open."""

import logging
import subprocess
import sys
from contextlib import suppress

import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.errors import KafkaError, KafkaTimeoutError, ProducerClosedError
from spark_kafka_sink.testing import KEPT
from tests.support.waiting import DEADLINE_S

TOPIC = "t"
RECORDS = 1_000
LINGERS = {"linger.ms": 60_000, "batch.size": 1 << 20, "delivery.timeout.ms": 120_000}


def leave_by(ended_by, options):
    """A block that has sent records, some of them in batches, when it raises."""
    with suppress(type(ended_by)), KafkaProducer(options) as producer:
        if "transactional.id" in options:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(ProducerRecord(TOPIC, b"first"))
            producer.flush()
        futures = [producer.send(ProducerRecord(TOPIC, b"%d" % number)) for number in range(RECORDS // 2)]
        producer.send_columns(TOPIC, value=[b"columns"])  # the records before it are now in a batch
        futures += [producer.send(ProducerRecord(TOPIC, b"%d" % number)) for number in range(RECORDS // 2 + 1, RECORDS)]
        raise ended_by
    return futures


def values(broker):
    return [record.value for record in broker.topic(TOPIC).records()]


@pytest.mark.parametrize("ended_by", [ArithmeticError(), SystemExit(1), GeneratorExit()])
def test_incident_a_block_that_raised_dropped_the_thousand_records_it_had_sent(broker, ended_by):
    futures = leave_by(ended_by, {"bootstrap.servers": broker.bootstrap_servers, **LINGERS})
    assert [future.result(0).offset for future in futures] == [row for row in range(RECORDS) if row != RECORDS // 2]
    assert len(values(broker)) == RECORDS


def test_ctrl_c_gives_up_what_is_left_and_says_how_many_records(broker, caplog):
    futures = leave_by(KeyboardInterrupt(), {"bootstrap.servers": broker.bootstrap_servers, **LINGERS})
    assert all(isinstance(future.exception(0), ProducerClosedError) for future in futures)
    assert values(broker) == []
    assert f"Interrupted: {RECORDS} records were not delivered" in caplog.text


def test_ctrl_c_after_a_flush_is_silent(broker, caplog):
    with (
        caplog.at_level(logging.WARNING),
        suppress(KeyboardInterrupt),
        KafkaProducer({"bootstrap.servers": broker.bootstrap_servers}) as producer,
    ):
        producer.send(ProducerRecord(TOPIC, b"value"))
        producer.flush()
        raise KeyboardInterrupt
    assert values(broker) == [b"value"]
    assert "Interrupted" not in caplog.text


@pytest.mark.parametrize("ended_by", [ArithmeticError(), KeyboardInterrupt()])
def test_an_open_transaction_is_aborted(broker, ended_by, caplog):
    options = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "x", **LINGERS}
    futures = leave_by(ended_by, options)
    assert all(isinstance(future.exception(0), KafkaError) for future in futures)
    assert broker.transaction_state("x") == "CompleteAbort"
    assert ("Interrupted" in caplog.text) == isinstance(ended_by, KeyboardInterrupt)


def test_a_block_that_raises_waits_for_lost_brokers_until_delivery_timeout_ms(broker):
    options = {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0, "request.timeout.ms": 500}
    with suppress(ArithmeticError), KafkaProducer({**options, "delivery.timeout.ms": 1_000}) as producer:
        producer.partitions_for(TOPIC)
        broker.pause(broker.node_ids[0])
        future = producer.send(ProducerRecord(TOPIC, b"value"))
        raise ArithmeticError
    broker.resume(broker.node_ids[0])
    assert isinstance(future.exception(0), KafkaTimeoutError)


PROGRAM = """
import os, sys
from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.producer import core

def send(value):
    producer = KafkaProducer({"bootstrap.servers": sys.argv[1], "linger.ms": 60_000})
    for _ in range(5):
        producer.send(ProducerRecord("t", value))
    return producer
"""
STOPPED = "ProducerClosedError: The program is ending, and Python has stopped the sender thread."


def stderr_of(program, broker):
    """The program must end."""
    command = [sys.executable, "-c", PROGRAM + program, broker.bootstrap_servers]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("use", "said"),
    [
        ("close()", ""),
        ("flush()", STOPPED),
        ('send(ProducerRecord("t", b"late")).result()', STOPPED),
        ("__exit__(GeneratorExit, GeneratorExit(), None)", ""),  # of a generator that was never finished
    ],
)
def test_incident_a_finalizer_that_used_a_producer_kept_the_program_from_ending(broker, use, said):
    program = f"""
class Owner:
    __del__ = lambda self: self.producer.{use}
owner = Owner()
owner.producer = send(b"v")
"""
    assert said in stderr_of(program, broker)
    assert [record.value for record in broker.topic("t").records()] == [b"v"] * 5


@pytest.mark.parametrize("use", ["KafkaProducer(producer.config)", "future.add_callback(print)"])
def test_incident_a_finalizer_that_needed_a_new_thread_kept_the_program_from_ending(broker, use):
    """``Thread.start`` of CPython 3.11 waits for the thread, which does not run any more."""
    program = f"""
producer = KafkaProducer({{"bootstrap.servers": sys.argv[1]}})
future = producer.send(ProducerRecord("t", b"v"))
producer.close()
class Owner:
    __del__ = lambda self: {use}
owner = Owner()
"""
    assert "The program is ending" in stderr_of(program, broker)


@pytest.mark.parametrize("ends", ["", "os.fork() or sys.exit()"])
def test_incident_a_program_without_close_lost_its_records_in_silence(broker, ends):
    """Nobody holds the producer at the end. A child of the program delivers nothing of its parent's."""
    assert stderr_of(f'send(b"v")\n{ends}', broker) == ""
    assert [record.value for record in broker.topic("t").records()] == [b"v"] * 5


def test_a_program_says_how_many_records_its_end_loses(broker):
    broker.faults.answer("Produce", "NOT_ENOUGH_REPLICAS", times=KEPT)
    assert "5 records are lost" in stderr_of('core._EXIT_MS = 1.0\nsend(b"v")', broker)
