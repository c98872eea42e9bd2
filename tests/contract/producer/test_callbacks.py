"""Where callbacks run, and what they may do."""

import concurrent.futures
import sys
import threading
import time
from contextlib import contextmanager, suppress

import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.errors import BufferExhaustedError, IllegalStateError, ProducerClosedError
from spark_kafka_sink.producer.interceptors import ProducerInterceptor
from tests.support.waiting import DEADLINE_S

MANY = 20_000
"""Records of 1 KiB: they fill pending records several times, which the caller then appends."""


@pytest.fixture
def options(broker):
    return {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5}


@contextmanager
def opened(options, **more):
    producer = KafkaProducer(options, **more)
    try:
        yield producer
    finally:
        producer.close(2_000)


def within_deadline(work):
    """Run ``work`` on a thread of its own, so that a test of what must not block ends if it does."""
    outcome: concurrent.futures.Future[object] = concurrent.futures.Future()

    def run():
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return outcome.result(DEADLINE_S)


def cannot_encode(monkeypatch):
    def fail(*_args):
        raise MemoryError("cannot encode")

    monkeypatch.setattr("spark_kafka_sink.producer.append.encode_records", fail)


class Acknowledgements(ProducerInterceptor):
    def __init__(self):
        self.threads = set()

    def on_acknowledgement(self, metadata, error):
        self.threads.add(threading.current_thread().name)


@pytest.mark.parametrize("fails", [False, True], ids=["delivered", "failed"])
def test_callbacks_and_acknowledgements_run_on_the_sender_thread(options, monkeypatch, fails):
    if fails:
        cannot_encode(monkeypatch)
    seen = Acknowledgements()
    with opened({**options, "client.id": "c"}, interceptors=[seen]) as producer:
        for _ in range(MANY):
            producer.send(
                ProducerRecord("t", b"x" * 1_000), lambda *_: seen.threads.add(threading.current_thread().name)
            )
        producer.flush()
    assert seen.threads == {"kafka-producer-network-thread | c"}


def test_flush_returns_after_the_callbacks_of_what_it_flushed(options):
    told = []

    def callback(metadata, error):
        if not len(told) % 500:
            time.sleep(0.002)
        told.append(metadata)

    with opened(options) as producer:
        for count in (1, 10, MANY, 1, MANY):
            told.clear()
            for _ in range(count):
                producer.send(ProducerRecord("t", b"x" * 1_000), callback)
            producer.flush()
            assert len(told) == count


def test_callbacks_that_block_hold_senders_up_by_memory_and_are_told_of_every_record(options):
    """As in Java: they are the sender thread's, so what is sent meanwhile waits in buffer.memory."""
    leave, told = threading.Event(), []

    def callback(metadata, error):
        leave.wait(DEADLINE_S)
        told.append(metadata)

    sent = []

    def send_for_ever():
        while len(sent) < 100_000:
            sent.append(producer.send(ProducerRecord("t", b"x" * 1_000), callback))

    with opened({**options, "buffer.memory": 4_000_000, "max.block.ms": 3_000}) as producer:
        with pytest.raises(BufferExhaustedError):
            send_for_ever()
        leave.set()
        producer.flush()
    assert len(told) == len(sent)


def test_a_callback_may_send(options, broker):
    def callback(metadata, error):
        producer.send(ProducerRecord("t", b"second"))

    with opened(options) as producer:
        producer.send(ProducerRecord("t", b"first"), callback)
        producer.flush()
        producer.flush()
    assert sorted(record.value for record in broker.topic("t").records()) == [b"first", b"second"]


def in_callback(producer, act):
    """What ``act`` raises in the callback of a failed or delivered record."""
    outcome: concurrent.futures.Future[object] = concurrent.futures.Future()

    def callback(*_):
        try:
            outcome.set_result(act())
        except BaseException as error:
            outcome.set_exception(error)

    for _ in range(1_500):
        producer.send(ProducerRecord("t", b"x" * 1_000))
    within_deadline(lambda: producer.send(ProducerRecord("t", b"x" * 1_000), callback))
    with suppress(ProducerClosedError):  # the callback may have closed it by now
        within_deadline(producer.flush)
    return outcome.result(DEADLINE_S)


WAITS = {
    "send": lambda producer: producer.send(ProducerRecord("new", b"v")),
    "send_columns": lambda producer: producer.send_columns("new", value=[b"v"]),
    "partitions_for": lambda producer: producer.partitions_for("new"),
    "result": lambda producer: producer.send(ProducerRecord("t", b"v")).result(),
    "receipt": lambda producer: producer.send_columns("t", value=[b"v"]).wait(),
    "flush": lambda producer: producer.flush(),
    "memory": lambda producer: [producer.send_columns("t", value=[b"v" * 900_000]) for _ in range(100)],
}


@pytest.mark.parametrize("wait", WAITS)
def test_incident_a_call_in_a_callback_waited_for_the_thread_that_ran_it(options, broker, wait):
    """And so did every other record, for max.block.ms or for ever."""
    broker.create_topic("new")
    hour = {"max.block.ms": 3_600_000, "delivery.timeout.ms": 7_200_000, "linger.ms": 60_000}
    with opened({**options, **hour}) as producer:
        with pytest.raises(IllegalStateError, match="would wait for itself.* another thread"):
            in_callback(producer, lambda: WAITS[wait](producer))
        producer.send_columns("new", value=[b"v"])
        producer.flush()


@pytest.mark.parametrize("fails", [False, True], ids=["delivered", "failed"])
def test_close_in_a_callback_does_not_wait(options, monkeypatch, fails, caplog):
    """A failed record's callback ran on the caller's thread, where close() waited for the sender for ever."""
    if fails:
        cannot_encode(monkeypatch)
    producer = KafkaProducer(options)
    in_callback(producer, producer.close)
    within_deadline(producer.close)
    assert not producer._core.is_alive()
    assert "close() in a callback" in caplog.text


def test_close_in_a_callback_fails_what_is_incomplete(options):
    """Java: close() in a callback is close(0)."""
    with opened(options) as producer:
        closed = threading.Event()

        def callback(metadata, error):
            waiting.append(producer.send(ProducerRecord("t", b"waits")))
            producer.close()
            closed.set()

        waiting = []
        producer.send(ProducerRecord("t", b"v"), callback)
        assert closed.wait(DEADLINE_S)
        assert isinstance(waiting[0].exception(DEADLINE_S), ProducerClosedError)


def test_the_done_callback_of_a_complete_record_runs_on_the_sender_thread_too(options):
    with opened({**options, "client.id": "c"}) as producer:
        future, threads = producer.send(ProducerRecord("t", b"v")), []
        future.result(DEADLINE_S)
        future.add_done_callback(lambda of: threads.append((of, threading.current_thread().name)))
        producer.flush()
    assert threads == [(future, "kafka-producer-network-thread | c")]


def test_sys_exit_in_a_callback_ends_neither_the_thread_nor_the_other_callbacks(options, caplog):
    told = []
    with opened(options) as producer:
        future = producer.send(ProducerRecord("t", b"v"), lambda *_: sys.exit(1))
        future.add_callback(lambda *_: told.append(1))
        producer.flush()
        producer.send(ProducerRecord("t", b"v")).result(DEADLINE_S)
    assert told == [1]
    assert "A callback of a sent record raised" in caplog.text


def test_callbacks_added_after_the_thread_has_ended_run_on_another_one_and_know_that_they_are_callbacks(options):
    with opened(options) as producer:
        future = producer.send(ProducerRecord("t", b"v"))
    callbacks, ran = producer._core.sender_thread.callbacks, concurrent.futures.Future()
    future.add_callback(lambda *_: ran.set_result((threading.get_ident(), callbacks.runs_here)))
    thread, is_callback = ran.result(DEADLINE_S)
    assert thread != threading.get_ident()
    assert is_callback


def test_incident_an_exception_while_the_client_closed_left_the_sockets_open_and_was_not_logged(
    options, monkeypatch, caplog
):
    with opened(options) as producer:
        monkeypatch.setattr(producer._core.sender.client, "close", lambda: 1 / 0)
    assert producer._core.sender_thread._transport._wakeup_reader.fileno() == -1
    assert "ZeroDivisionError" in caplog.text
