"""What the end of a program does with producers that are still open."""

from __future__ import annotations

import subprocess
import sys

import pytest

from spark_kafka_sink.testing import KEPT, TestBroker
from tests.support.waiting import DEADLINE_S

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
STOPPED = "ProducerClosedError: The program ends, and Python has stopped the sender thread."


def stderr_of(program: str, broker: TestBroker) -> str:
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
    assert "RuntimeError" in stderr_of(program, broker)


@pytest.mark.parametrize("ends", ["", "os.fork() or sys.exit()"])
def test_incident_a_program_without_close_lost_its_records_in_silence(broker, ends):
    """Nobody holds the producer at the end. A child of the program delivers nothing of its parent's."""
    assert stderr_of(f'send(b"v")\n{ends}', broker) == ""
    assert [record.value for record in broker.topic("t").records()] == [b"v"] * 5


def test_a_program_says_how_many_records_its_end_loses(broker):
    broker.faults.answer("Produce", "NOT_ENOUGH_REPLICAS", times=KEPT)
    assert "5 records are lost" in stderr_of('core._EXIT_MS = 1.0\nsend(b"v")', broker)
