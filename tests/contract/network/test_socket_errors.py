"""Every socket call of the selector fails with every errno: the connection it was for ends, and nothing else.

Connection 1 goes through the failing call, connection 2 carries bytes all the while.
"""

import errno
import os
import selectors
import socket
import threading

import pytest

from spark_kafka_sink.network import selector as selector_module
from spark_kafka_sink.network.selector import Closed, Connected, Event, Received, Selector
from tests.faults.leaks import nothing_leaks
from tests.support.waiting import DEADLINE_S, eventually

NOT_YET = {errno.EAGAIN, errno.EWOULDBLOCK, errno.EINPROGRESS, errno.EALREADY}
"""A call that would block: nothing has failed."""

EVERY_ERRNO = sorted(set(errno.errorcode) - {errno.EINTR} - NOT_YET)
"""EINTR does not reach a caller (PEP 475)."""

RealSocket = socket.socket


class FailingSocket(socket.socket):
    """The next call of the method ``call`` raises ``number``, once; not of sockets that were accepted, nor in other
    threads, which earlier tests may have left."""

    call = ""
    number = 0
    thread = 0

    @classmethod
    def fail(cls, call, number):
        cls.call, cls.number, cls.thread = call, number, threading.get_ident()

    @classmethod
    def check(cls, call):
        if call != cls.call or cls.thread != threading.get_ident():
            return
        cls.call = ""
        raise OSError(cls.number, os.strerror(cls.number))

    def __init__(self, *args, **options):
        self.check("socket")
        super().__init__(*args, **options)

    def accept(self):
        descriptor, address = self._accept()
        return RealSocket(fileno=descriptor), address

    def close(self):
        super().close()
        self.check("close")


def failing(call):
    def fail_or_call(self, *args):
        self.check(call)
        return getattr(RealSocket, call)(self, *args)

    return fail_or_call


for name in ("setblocking", "setsockopt", "connect", "getsockopt", "getsockname", "getpeername", "recv", "sendmsg"):
    setattr(FailingSocket, name, failing(name))


class FailingPoll(selectors.DefaultSelector):
    """``register`` and ``modify`` of the selector fail too: epoll has limits and needs memory."""

    def register(self, *args):
        FailingSocket.check("register")
        return super().register(*args)

    def modify(self, fileobj, *args):
        try:
            FailingSocket.check("modify")
        except OSError:
            self.unregister(fileobj)  # as selectors does
            raise
        return super().modify(fileobj, *args)


class Pair:
    """A selector with connection 2 established, and the listening socket for connection 1."""

    def __init__(self, monkeypatch):
        FailingSocket.fail("", 0)
        monkeypatch.setattr(selectors, "DefaultSelector", FailingPoll)
        self.selector = Selector()
        self.server = socket.create_server(("0.0.0.0", 0), backlog=1000)
        self.server.settimeout(DEADLINE_S)
        self.port = self.server.getsockname()[1]
        self.selector.connect(2, "127.0.0.1", self.port)
        self.second = self.accept()
        self.until(Connected(2))
        monkeypatch.setattr(selector_module.socket, "socket", FailingSocket)

    def until(self, wanted):
        events: list[Event] = []
        eventually(lambda: events.extend(self.selector.poll(50)) or wanted in events, f"{wanted} is not among {events}")
        return events

    def accept(self):
        """The other end of a connection, which never fails."""
        accepted = RealSocket(fileno=self.server._accept()[0])
        accepted.settimeout(DEADLINE_S)
        return accepted

    def connect(self):
        """Connection 1, to one address."""
        self.selector.connect(1, "127.0.0.1", self.port)

    def end_of_first(self):
        events: list[Event] = []
        eventually(
            lambda: events.extend(self.selector.poll(50)) or any(isinstance(event, Closed) for event in events),
            "connection 1 did not end",
        )
        return events

    def check_second(self):
        self.selector.send(2, (b"to",))
        assert self.second.recv(2) == b"to"
        self.second.sendall(b"from")
        assert Received(2, b"from") in self.until(Received(2, b"from"))

    def close(self):
        self.selector.shutdown()
        self.second.close()
        self.server.close()


@pytest.fixture
def pair(monkeypatch):
    with nothing_leaks():
        each = Pair(monkeypatch)
        yield each
        each.close()


CONNECTING = [
    "socket", "setblocking", "setsockopt", "connect", "register", "getsockopt", "getsockname", "getpeername", "modify",
]  # fmt: skip
ESTABLISHED = ["recv", "sendmsg", "modify"]


@pytest.mark.parametrize("call", CONNECTING)
def test_a_call_that_fails_while_connecting_ends_that_connection(pair, call):
    for number in EVERY_ERRNO:
        FailingSocket.fail(call, number)
        pair.connect()
        assert pair.end_of_first() == [Closed(1, os.strerror(number))], errno.errorcode[number]
    pair.check_second()


@pytest.mark.parametrize("call", CONNECTING)
def test_a_call_that_fails_on_one_address_leaves_the_next(pair, call, monkeypatch):
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, pair.port)) for host in ("127.0.0.2", "127.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_options: found)
    FailingSocket.fail(call, errno.ENOBUFS)
    pair.selector.connect(1, "several", 9092)
    assert pair.until(Connected(1)) == [Connected(1)]
    pair.check_second()


@pytest.mark.parametrize("call", ESTABLISHED)
def test_a_call_that_fails_on_an_established_connection_ends_it(pair, call):
    for number in EVERY_ERRNO:
        pair.connect()
        pair.until(Connected(1))
        peer = pair.accept()
        with peer:
            FailingSocket.fail(call, number)
            peer.sendall(b"x")
            # More than the system's buffers take, so that the rest has to be watched for.
            pair.selector.send(1, (bytes(20_000_000),) if call == "modify" else (b"y",))
            events = [event for event in pair.end_of_first() if not isinstance(event, Received)]
            assert events == [Closed(1, os.strerror(number))], errno.errorcode[number]
    pair.check_second()


@pytest.mark.parametrize("end", ["by the owner", "by the peer"])
def test_closing_that_fails_is_of_no_consequence(pair, end):
    for number in EVERY_ERRNO:
        pair.connect()
        pair.until(Connected(1))
        peer = pair.accept()
        FailingSocket.fail("close", number)
        if end == "by the owner":
            pair.selector.close(1)
            peer.close()
        else:
            peer.close()
            assert pair.end_of_first() == [Closed(1, "the broker closed the connection")]
    pair.check_second()


def test_a_wakeup_pipe_that_fails_does_not_end_the_poll(monkeypatch):
    each = Selector()
    reader = each._wakeup_reader
    for number in EVERY_ERRNO:
        broken = FailingSocket(fileno=os.dup(reader.fileno()))
        broken.setblocking(False)
        monkeypatch.setattr(each, "_wakeup_reader", broken)
        FailingSocket.fail("recv", number)
        each._wakeup_writer.send(b"\0")
        assert each.poll(1000) == []
        broken.close()
    monkeypatch.setattr(each, "_wakeup_reader", reader)
    each.shutdown()
