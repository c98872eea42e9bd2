"""Signals wherever Python runs their handlers, on the side of the caller. A handler that raises: what other calls sent
arrives once, the interrupted call's rows arrive once or not at all, memory is free, and the producer goes on. One that
flushes and closes: what was sent arrives.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from _thread import interrupt_main
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import count, cycle, product
from random import Random
from types import CodeType, FrameType
from typing import Any, ClassVar
from weakref import ref

import numpy as np
import pyarrow as pa
import pytest

import spark_kafka_sink
from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.errors import IllegalStateError, KafkaError, ProducerClosedError, TransactionAbortableError
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.testing import TestBroker
from tests.unit.interrupts import traced

PACKAGE = os.path.dirname(spark_kafka_sink.__file__)
OF_CALLERS = frozenset(
    os.path.join(PACKAGE, f"{name}.py")
    for name in (
        "common/waiting", "network/metadata", "producer/accumulator", "producer/append", "producer/buffer_pool",
        "producer/callbacks", "producer/columns_call", "producer/core", "producer/future_record_metadata",
        "producer/inbox", "producer/partition_rows", "producer/producer", "producer/producer_batch", "producer/receipt",
        "producer/rows", "producer/send", "producer/sender_thread", "producer/transaction_manager",
    )
)  # fmt: skip
SIGNALS = (signal.SIGINT, signal.SIGALRM, signal.SIGUSR1)
PARTITIONS = 2
MAX_LOG = 500
TIMEOUT_MS = 20_000

Point = tuple[CodeType, int]
Act = Callable[[Any], None]


class Interrupted(BaseException):
    """What the handler raises: like Airflow's and pytest's timeouts no ``KeyboardInterrupt``."""


class OutOfTimeError(Exception):
    """What Celery's handler raises (``SoftTimeLimitExceeded``): an ``Exception``."""


RAISED = {signal.SIGINT: KeyboardInterrupt, signal.SIGALRM: Interrupted, signal.SIGUSR1: OutOfTimeError}


class Strikes:
    """Timers may go off late: then, while ``armed`` is False, their handlers do nothing."""

    armed = True


def raises(number: int, frame: FrameType | None) -> None:
    if Strikes.armed:
        raise RAISED[signal.Signals(number)]


@pytest.fixture(autouse=True)
def handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Python swallows what a handler raises in a weakref's callback; pytest would keep it with its frames and grants.
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    before = {number: signal.signal(number, raises) for number in SIGNALS}
    yield
    Strikes.armed = True
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number, handler in before.items():
        signal.signal(number, handler)


class Program:
    """One that catches what its signal handler raises, and goes on with the same producer."""

    whole = False

    def __init__(self, broker: TestBroker, **options: object) -> None:
        self.broker = broker
        self.options = {
            "bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5, "batch.size": 400, "buffer.memory": 40_000,
        } | options  # fmt: skip
        self.names = count()
        self.make_topic()
        self.unsure: list[bytes] = []
        self.futures: list[Any] = []
        self.columns: list[ref[Any]] = []
        """Of calls that have returned or raised: nothing may refer to them."""
        self.producer = self.opened()

    def make_topic(self) -> None:
        self.topic = f"topic{next(self.names)}"
        self.broker.create_topic(self.topic, partitions=PARTITIONS)
        self.sent: Counter[bytes] = Counter()

    def opened(self) -> KafkaProducer:
        return KafkaProducer(self.options)

    def send(self, size: int = 10, key: bytes | None = None, **fields: Any) -> Any:
        value = b"%d " % next(self.names) + b"x" * size
        return self.sending([value], lambda: self.producer.send(ProducerRecord(self.topic, value, key, **fields)))

    def send_columns(self, rows: int, size: int) -> Any:
        values = [b"%d " % next(self.names) + b"y" * size for _ in range(rows)]
        data, offsets = np.frombuffer(b"".join(values), np.uint8), np.cumsum([0, *map(len, values)], dtype=np.int32)
        self.columns.append(ref(data))
        column = pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
        del data
        return self.sending(values, lambda: self.producer.send_columns(self.topic, value=column))

    def sending(self, values: list[bytes], call: Callable[[], Any]) -> Any:
        """A handler may call it at any point of another call."""
        before, self.unsure = self.unsure, self.unsure + values
        future = call()
        self.futures.append(future)
        self.sent.update(values)
        self.unsure = before
        return future

    def free(self) -> float:
        return self.producer.metrics()["producer-metrics"]["buffer-available-bytes"]

    def check(self) -> None:
        self.producer.flush(TIMEOUT_MS)
        for future in self.futures:
            future.result(0) if hasattr(future, "result") else future.wait(0)
        self.futures = []
        self.check_log()
        if self.free() != self.options["buffer.memory"]:
            gc.collect()  # an exception that struck another one may be in a cycle with its frames
            self.producer.flush(TIMEOUT_MS)
        assert self.free() == self.options["buffer.memory"], f"{self.free()} bytes are free"
        assert all(signal.getsignal(number) is raises for number in SIGNALS), "a handler is not the program's"

    def check_log(self) -> None:
        log = Counter(value for value in self.broker.topic(self.topic).values() if value is not None)
        assert self.sent <= log, f"lost: {self.sent - log}"
        extra = log - self.sent
        assert extra <= Counter(self.unsure), "rows that no call sent, or twice"
        if self.whole:
            assert not extra or extra.total() == len(self.unsure), "committed without rows"
        self.sent, self.unsure = log, []
        if len(log) > MAX_LOG:
            self.make_topic()

    def close(self) -> None:
        self.producer.close(TIMEOUT_MS)


class Transactional(Program):
    """Each act is a transaction: it is whole, or aborted."""

    whole = True

    def opened(self) -> KafkaProducer:
        producer = KafkaProducer(self.options | {"transactional.id": "t"})
        producer.init_transactions()
        producer.begin_transaction()
        return producer

    def check(self) -> None:
        before = Counter(value for value in self.broker.topic(self.topic).values() if value is not None)
        try:
            self.commit()
            super().check()
        except TransactionAbortableError:
            self.producer.abort_transaction()
            assert Counter(self.broker.topic(self.topic).values()) == before
            self.sent, self.futures, self.unsure = before, [], []
        self.producer.begin_transaction()

    def commit(self) -> None:
        """Again after an interrupt, as after a timeout."""
        with suppress(IllegalStateError):  # the interrupt came when all was done
            self.producer.commit_transaction()


class Closed(Program):
    """Each act closes the producer; another one takes its place."""

    def check(self) -> None:
        self.producer.close(TIMEOUT_MS)
        for future in self.futures:
            future.result(0) if hasattr(future, "result") else future.wait(0)
        self.check_log()
        self.futures = []
        self.producer = self.opened()


def sends(program: Program) -> None:
    program.send(key=b"key")
    program.send(key=b"key", partition=1, timestamp=5, headers=(("h", b"v"),))
    program.send()
    program.send(6_000)
    program.send(6_000, b"key")


def columns(program: Program) -> None:
    program.send_columns(9, 100)
    program.send_columns(2, 20)
    program.send_columns(1, 1_000)
    program.send()
    program.send_columns(30, 1_000)


def without_memory(program: Program) -> None:
    program.send_columns(3, 1_400)
    program.send_columns(2, 1_400)
    program.send(1_400)
    program.send_columns(2, 20)


def outcomes(program: Program) -> None:
    future = program.send()
    future.add_done_callback(lambda _: None)
    future.result(TIMEOUT_MS)
    program.send_columns(9, 100).wait(TIMEOUT_MS)


def flush(program: Program) -> None:
    program.send()
    program.send_columns(2, 100)
    program.producer.flush()


def commit(program: Transactional) -> None:
    flush(program)
    program.producer.commit_transaction()


def close(program: Program) -> None:
    program.send()
    program.send_columns(2, 100)
    program.producer.close()


def new_topic(program: Program) -> None:
    program.producer.partitions_for(f"new{next(program.names)}")
    program.send()


@pytest.fixture
def broker():
    with TestBroker() as broker:
        yield broker


@pytest.mark.parametrize("at_once", [1, 2])
@pytest.mark.parametrize(
    ("act", "kind", "options"),
    [
        (sends, Program, {}),
        (sends, Transactional, {}),
        (columns, Program, {}),
        (columns, Transactional, {}),
        pytest.param(columns, Program, {"compression.type": "lz4"}, marks=pytest.mark.slow),
        (without_memory, Program, {"buffer.memory": 8_000}),
        (outcomes, Program, {}),
        (flush, Program, {}),
        (commit, Transactional, {}),
        (close, Closed, {}),
        (new_topic, Program, {}),
    ],
)
def test_signals_whose_handlers_raise(broker, act, kind, options, at_once):
    """With two at a time, the second handler runs as the exception of the first is on its way."""
    program = kind(broker, **options)
    numbers = cycle(SIGNALS)
    failed: list[str] = []
    for point in points_of(program, act):
        failed += struck(program, act, point, [next(numbers) for _ in range(at_once)])
        if len(failed) == 5:
            break
    assert not failed, "\n".join(failed)
    program.close()


def points_of(program: Program, act: Act) -> dict[Point, None]:
    """The points of callers' code that ``act`` comes to."""
    points: dict[Point, None] = {}
    for _ in range(3):
        with traced(of_callers, lambda frame: points.setdefault(point_of(frame))):
            act(program)
        program.check()
    return points


def of_callers(code: CodeType) -> bool:
    return code.co_filename in OF_CALLERS


def point_of(frame: FrameType) -> Point:
    return frame.f_code, frame.f_lasti


def struck(program: Program, act: Act, point: Point, numbers: Sequence[int]) -> Iterator[str]:
    struck_at: list[int] = []

    def strike(frame: FrameType) -> None:
        if not struck_at and point_of(frame) == point:
            struck_at.append(frame.f_lineno)
            raise_together(numbers)

    def run() -> None:
        with traced(lambda code: code is point[0], strike):
            act(program)

    try:
        outlast(run)
        assert all(column() is None for column in program.columns), "something refers to columns"
        program.columns = []
        program.check()
    except Exception as error:
        yield f"{point[0].co_qualname}, line {struck_at}, {numbers}: {error!r}"


def raise_together(numbers: Sequence[int]) -> None:
    """The handler of the first one runs here, that of the next one at the next point."""
    deque(map(interrupt_main, numbers))


def outlast(act: Callable[[], object]) -> None:
    """Make the call, and catch what it and the handlers of late signals raise."""
    for call in (act, int, int):
        try:
            with suppress(*RAISED.values(), KafkaError):
                call()
        except tuple(RAISED.values()):
            pass


@pytest.mark.parametrize("at_once", [1, 2])
def test_timers_whose_handlers_raise(at_once):
    """In the middle of C code too, and of a wait."""
    random, interrupted = Random(at_once), 0
    timers = ((signal.ITIMER_REAL, signal.SIGALRM), (signal.ITIMER_VIRTUAL, signal.SIGVTALRM))[:at_once]
    before = signal.signal(signal.SIGVTALRM, lambda number, frame: raises(signal.SIGINT, frame))
    acts = [sends, columns, without_memory, outcomes, flush]

    def run(program: Program) -> None:
        nonlocal interrupted
        try:
            Strikes.armed = True
            for timer, _ in timers:
                signal.setitimer(timer, 10 ** random.uniform(-5, -2))
            random.choice(acts)(program)
        except tuple(RAISED.values()):
            interrupted += 1
            raise
        finally:
            Strikes.armed = False  # first, and without a call, at which a handler could run
            for timer, _ in timers:
                signal.setitimer(timer, 0)

    try:
        for linger_ms, codec in product([0, 5] * 5, ["none", "lz4"]):
            with TestBroker() as broker:
                program = Program(broker, **{"linger.ms": linger_ms, "compression.type": codec})
                for _ in range(40):
                    outlast(lambda program=program: run(program))
                    program.check()
                program.close()
    finally:
        signal.signal(signal.SIGVTALRM, before)
    assert interrupted > 100, "hardly a call was interrupted"


class InterruptedPartitioner:
    signals: ClassVar[list[int]] = []

    def partition(self, topic: str, columns: RecordColumns, *_: object) -> Any:
        if self.signals:
            signal.raise_signal(self.signals.pop())
        return np.zeros(len(columns), np.int32)


@pytest.mark.parametrize("rows", [2, 30])
def test_ctrl_c_ends_the_partitioner_of_a_user(broker, rows):
    program = Program(broker, **{"partitioner.class": f"{__name__}:InterruptedPartitioner", "linger.ms": 3_600_000})
    program.send()
    InterruptedPartitioner.signals.append(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        program.send_columns(rows, 20)
    program.send()
    program.check()
    assert sum(program.sent.values()) == 2
    program.close()


HANDLERS: Sequence[Act] = (
    lambda program: program.send(),
    lambda program: program.send(3_000),
    lambda program: program.send_columns(9, 100),
    lambda program: program.send_columns(2, 20),
    lambda program: program.producer.flush(TIMEOUT_MS),
)


@pytest.mark.parametrize("act", [sends, columns, outcomes])
def test_incident_a_finalizer_that_sent_in_the_middle_of_send_waited_for_ever_for_its_own_thread(broker, act):
    """A finalizer or a signal handler may run at any point of a call."""
    program = Program(broker)
    for point, handler in zip(points_of(program, act), cycle(HANDLERS)):
        run_at(point, lambda: act(program), lambda handler=handler: handler(program))
        program.check()
    program.close()


def run_at(point: Point, act: Callable[[], object], handler: Callable[[], object]) -> None:
    left = [point]

    def reached(frame: FrameType) -> None:
        if point_of(frame) in left:
            left.clear()
            handler()

    with traced(lambda code: code is point[0], reached):
        act()


@pytest.mark.parametrize("act", [sends, columns, outcomes, flush])
def test_a_handler_that_flushes_and_closes(broker, act):
    """At each point: what returned is delivered, and the interrupted call or the next one raises."""
    program = Program(broker)

    def ends() -> None:
        program.producer.flush(TIMEOUT_MS)
        program.producer.close(TIMEOUT_MS)

    def loop() -> None:
        while True:
            act(program)

    points = points_of(program, act)
    program.close()
    for point in points:
        program.producer = program.opened()
        with suppress(ProducerClosedError):
            run_at(point, loop, ends)
        check_closed(program)


@pytest.mark.parametrize("act", [sends, columns])
def test_a_thousand_times_a_sigterm_handler_that_flushes_and_closes(broker, act):
    random, program = Random(1), Program(broker, **{"linger.ms": 0})
    program.close()

    def ends(number: int, frame: FrameType | None) -> None:
        program.producer.flush(TIMEOUT_MS)
        program.producer.close(TIMEOUT_MS)

    signal.signal(signal.SIGALRM, ends)
    for _ in range(1_000):
        program.producer = program.opened()
        signal.setitimer(signal.ITIMER_REAL, 10 ** random.uniform(-4, -2))
        with suppress(ProducerClosedError):
            while True:
                act(program)
        check_closed(program)


def check_closed(program: Program) -> None:
    """``Program.check`` for one whose producer a handler has closed."""
    for future in program.futures:
        future.result(0) if hasattr(future, "result") else future.wait(0)
    program.futures = []
    program.check_log()
