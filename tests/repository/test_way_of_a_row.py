"""The way of a row, and back, is the one that docs/ARCHITECTURE.md lists, and leads through few files.

The second row of a warm producer is traced: every Python call in the package, on the caller's thread and on the
sender's.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NamedTuple

import pyarrow as pa
import pytest

from spark_kafka_sink import KafkaProducer
from spark_kafka_sink.testing import TestBroker
from tests.repository.architecture import quoted, table
from tests.repository.files import PACKAGE

MOST_FILES = 30
# A metadata update or a busy machine may fall into one row; it falls into none of so many.
ROWS = 10

CALLER = [name for row in table("### Down, on the caller's thread") for name in quoted(row[0])]
SENDER = [
    name
    for part in ("### Down, on the sender thread", "### The way back")
    for row in table(part)
    for name in quoted(row[0])
]


class Trace(NamedTuple):
    """``file:function`` of every call, in order."""

    caller: list[str]
    sender: list[str]

    @property
    def files(self) -> set[str]:
        return {call.split(":")[0] for call in self.caller + self.sender}


class Tracer:
    """Sees the calls of threads that start after it, and those of its own thread."""

    def __init__(self) -> None:
        self._calls: dict[str, list[str]] | None = None
        self._caller = threading.current_thread()

    @contextmanager
    def installed(self) -> Iterator[None]:
        before = sys.getprofile()
        threading.setprofile(self._called)
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(before)
            threading.setprofile(before)

    @contextmanager
    def record(self) -> Iterator[Trace]:
        calls: dict[str, list[str]] = {"caller": [], "sender": []}
        self._calls = calls
        yield Trace(**calls)
        self._calls = None

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        calls, name = self._calls, frame.f_code.co_filename
        if calls is None or event != "call" or not name.startswith(f"{PACKAGE}/") or "/testing/" in name:
            return
        thread = threading.current_thread()
        if thread is self._caller or thread.name.startswith("kafka-producer-network-thread"):
            calls["caller" if thread is self._caller else "sender"].append(
                f"{name.removeprefix(f'{PACKAGE}/')}:{frame.f_code.co_qualname}"
            )


@pytest.fixture(scope="module")
def traces() -> list[Trace]:
    tracer, rows = Tracer(), []
    with TestBroker() as broker, tracer.installed():
        broker.create_topic("t", partitions=2)
        with KafkaProducer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0}) as producer:
            for _ in range(1 + ROWS):
                with tracer.record() as trace:
                    producer.send_columns("t", key=pa.array([b"key"]), value=pa.array([b"value"]))
                    producer.flush()
                    time.sleep(0.01)  # the sender goes back to sleep
                rows.append(trace)
    return rows[1:]


def left_of(listed: list[str], calls: list[str]) -> list[str]:
    """The rest of ``listed`` from the first name that has no call after those of the names before it."""
    at = 0
    for number, name in enumerate(listed):
        try:
            at = calls.index(name, at) + 1
        except ValueError:
            return listed[number:]
    return []


def test_the_callers_thread_goes_the_listed_way(traces):
    assert CALLER
    assert min((left_of(CALLER, trace.caller) for trace in traces), key=len) == []


def test_the_sender_thread_goes_the_listed_way_down_and_back(traces):
    assert SENDER
    assert min((left_of(SENDER, trace.sender) for trace in traces), key=len) == []


def test_the_way_leads_through_few_files(traces):
    files = min((trace.files for trace in traces), key=len)
    assert len(files) <= MOST_FILES, "\n".join(["", *sorted(files)])
