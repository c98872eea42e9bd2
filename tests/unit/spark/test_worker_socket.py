"""A task's rows do not wait for a delayed acknowledgement."""

import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from spark_kafka_sink.spark.worker_tuning import acknowledge_at_once

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="TCP_QUICKACK is Linux's")

_ROUNDS = 3
_DELAYED_S = 0.035
"""Linux delays an acknowledgement by 40 ms."""


@contextmanager
def connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        jvm = socket.create_connection(listener.getsockname(), 5)
        worker, _ = listener.accept()
        worker.settimeout(5)
        with jvm, worker:
            yield jvm, worker


def wait_for_rows(jvm: socket.socket, worker: socket.socket, acknowledge: bool) -> float:
    """Seconds until the second of two small writes is there, in a conversation that has been to and fro before."""
    for _ in range(_ROUNDS):
        jvm.sendall(b"question")
        worker.recv(100)
        worker.sendall(b"answer")
        jvm.recv(100)
    sent = threading.Event()

    def send_task() -> None:
        jvm.sendall(b"task")
        sent.set()
        jvm.sendall(b"rows")

    sender = threading.Thread(target=send_task)
    sender.start()
    sent.wait(5)
    assert worker.recv(4) == b"task"
    began = time.perf_counter()
    if acknowledge:
        acknowledge_at_once()
    assert worker.recv(4) == b"rows"
    sender.join()
    return time.perf_counter() - began


def test_incident_a_task_waited_40_ms_for_its_first_row():
    with connection() as (jvm, worker):
        assert min(wait_for_rows(jvm, worker, acknowledge=True) for _ in range(5)) < _DELAYED_S


def test_without_it_the_rows_wait_for_the_acknowledgement():
    """So that the test above can fail. On a busy machine not each time: the second write may come too late."""
    with connection() as (jvm, worker):
        assert max(wait_for_rows(jvm, worker, acknowledge=False) for _ in range(5)) > _DELAYED_S


def test_other_sockets_stay_open_and_as_they_were():
    left, right = socket.socketpair()
    with left, right, connection() as (jvm, worker):
        acknowledge_at_once()
        left.sendall(b"unix")
        jvm.sendall(b"tcp")
        assert (right.recv(10), worker.recv(10)) == (b"unix", b"tcp")
        assert worker.gettimeout() == 5


def test_a_default_timeout_does_not_make_the_workers_socket_non_blocking():
    with connection() as (_jvm, worker):
        worker.setblocking(True)
        socket.setdefaulttimeout(1.0)
        try:
            acknowledge_at_once()
        finally:
            socket.setdefaulttimeout(None)
        assert os.get_blocking(worker.fileno())
