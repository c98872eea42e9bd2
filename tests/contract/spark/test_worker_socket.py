"""A task's rows do not wait for a delayed acknowledgement."""

import os
import socket
import sys
import threading
from contextlib import contextmanager

import pytest

from spark_kafka_sink.spark.python_process import acknowledge_at_once
from tests.support.waiting import DEADLINE_S, measured_s

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="TCP_QUICKACK is Linux's")

_ROUNDS = 3


@contextmanager
def connection():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        jvm = socket.create_connection(listener.getsockname(), DEADLINE_S)
        worker, _ = listener.accept()
        worker.settimeout(DEADLINE_S)
        with jvm, worker:
            yield jvm, worker


def wait_for_rows(jvm, worker, acknowledge):
    """Seconds until the second of two small writes is there, in a conversation that has been to and fro before."""
    for _ in range(_ROUNDS):
        jvm.sendall(b"question")
        worker.recv(100)
        worker.sendall(b"answer")
        jvm.recv(100)
    sent = threading.Event()

    def send_task():
        jvm.sendall(b"task")
        sent.set()
        jvm.sendall(b"rows")

    sender = threading.Thread(target=send_task)
    sender.start()
    sent.wait(DEADLINE_S)
    assert worker.recv(4) == b"task"

    def receive():
        if acknowledge:
            acknowledge_at_once()
        assert worker.recv(4) == b"rows"

    waited = measured_s(receive)
    sender.join()
    return waited


def test_incident_a_task_waited_40_ms_for_its_first_row():
    """Linux delays an acknowledgement by 40 ms; on a busy machine not each time, as the second write may come late."""
    with connection() as (jvm, worker):
        waited = {now: [wait_for_rows(jvm, worker, acknowledge=now) for _ in range(10)] for now in (True, False)}
    assert 3 * min(waited[True]) < max(waited[False])


def test_a_default_timeout_does_not_make_the_workers_socket_non_blocking():
    with connection() as (_jvm, worker):
        worker.setblocking(True)
        socket.setdefaulttimeout(1.0)
        try:
            acknowledge_at_once()
        finally:
            socket.setdefaulttimeout(None)
        assert os.get_blocking(worker.fileno())
