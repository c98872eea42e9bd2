"""A signal whose handler raises, at each line that a call passes: what other calls sent arrives once, the interrupted
call's rows arrive once or not at all, memory is free, and the producer goes on.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import count, cycle, product
from random import Random
from types import CodeType, FrameType
from typing import Any, ClassVar

import numpy as np
import pytest

import spark_kafka_sink
from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.errors import IllegalStateError, KafkaError, TransactionAbortableError
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.testing import TestBroker
from tests.unit.interrupts import traced

PACKAGE = os.path.dirname(spark_kafka_sink.__file__)
OURS = tuple(os.path.join(PACKAGE, name) for name in ("producer", "network", "records", "common"))
SIGNALS = (signal.SIGINT, signal.SIGALRM, signal.SIGUSR1)
OUT_OF_TIME = (signal.SIGUSR1,)
APPENDS = ("accumulator", "append", "buffer_pool", "claim", "pending_records", "producer_batch", "send_buffer")
PARTITIONS = 2
MAX_LOG = 500
TIMEOUT_MS = 20_000

Line = tuple[CodeType, int]


class Interrupted(BaseException):
    """What the handler raises: like Airflow's and pytest's timeouts no ``KeyboardInterrupt``."""


class OutOfTimeError(Exception):
    """What Celery's handler raises (``SoftTimeLimitExceeded``): an ``Exception``."""


RAISED = {signal.SIGINT: KeyboardInterrupt, signal.SIGALRM: Interrupted, signal.SIGUSR1: OutOfTimeError}


def raises(number: int, frame: FrameType | None) -> None:
    raise RAISED[signal.Signals(number)]


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
        self.producer = self.opened()

    def make_topic(self) -> None:
        self.topic = f"topic{next(self.names)}"
        self.broker.create_topic(self.topic, partitions=PARTITIONS)
        self.sent: Counter[bytes] = Counter()

    def opened(self) -> KafkaProducer:
        return KafkaProducer(self.options)

    def send(self, size: int = 10, key: bytes | None = None, **fields: Any) -> None:
        value = b"%d " % next(self.names) + b"x" * size
        self.unsure = [value]
        future = self.producer.send(ProducerRecord(self.topic, value, key, **fields))
        self.futures.append(future)
        self.sent[value] += 1
        self.unsure = []

    def send_columns(self, rows: int, size: int) -> None:
        self.unsure = [b"%d " % next(self.names) + b"y" * size for _ in range(rows)]
        receipt = self.producer.send_columns(self.topic, value=self.unsure)
        self.futures.append(receipt)
        self.sent.update(self.unsure)
        self.unsure = []

    def check(self) -> None:
        self.producer.flush(TIMEOUT_MS)
        for future in self.futures:
            future.result(0) if hasattr(future, "result") else future.wait(0)
        self.futures = []
        self.check_log()
        free = self.producer.metrics()["producer-metrics"]["buffer-available-bytes"]
        assert free == self.options["buffer.memory"], f"{free} bytes are free"

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
    program.send_columns(3, 100)
    program.send_columns(1, 1_000)


def without_memory(program: Program) -> None:
    program.send_columns(3, 1_400)
    program.send_columns(2, 1_400)
    program.send(1_400)


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


@pytest.mark.parametrize(
    ("act", "kind", "options"),
    [
        (sends, Program, {}),
        pytest.param(sends, Transactional, {}, marks=pytest.mark.slow),
        (columns, Program, {}),
        pytest.param(columns, Transactional, {}, marks=pytest.mark.slow),
        pytest.param(columns, Program, {"compression.type": "lz4"}, marks=pytest.mark.slow),
        (without_memory, Program, {"buffer.memory": 8_000}),
        (flush, Program, {}),
        (commit, Transactional, {}),
        (close, Closed, {}),
        (new_topic, Program, {}),
    ],
)
def test_a_signal_at_each_line_of(broker, act, kind, options):
    program = kind(broker, **options)
    strike_all(program, act, OURS, SIGNALS)


def test_incident_a_timeout_while_flush_appended_a_record_of_send_became_that_records_error(broker):
    strike_all(Program(broker), flush, tuple(os.path.join(PACKAGE, "producer", name) for name in APPENDS), OUT_OF_TIME)


class InterruptedPartitioner:
    signals: ClassVar[list[int]] = []

    def partition(self, topic: str, columns: RecordColumns, *_: object) -> Any:
        if self.signals:
            signal.raise_signal(self.signals.pop())
        return np.zeros(len(columns), np.int32)


def test_ctrl_c_ends_the_partitioner_of_a_user_and_the_records_are_sent_later(broker):
    options = {"partitioner.class": f"{__name__}:InterruptedPartitioner", "linger.ms": 3_600_000}
    program = Program(broker, **options)
    program.send()
    program.send()
    InterruptedPartitioner.signals.append(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        program.producer.flush(TIMEOUT_MS)
    program.check()
    program.close()


@pytest.mark.parametrize("act", ["send", "send_columns", "flush"])
def test_incident_a_finalizer_that_sent_in_the_middle_of_send_waited_for_ever_for_its_own_thread(broker, act):
    """A finalizer, like a logging handler, may run at any line of a call. Its own call works, or raises at once."""
    program = Program(broker, **{"max.block.ms": 3_600_000})
    refused: list[str] = []

    def finalizer(frame: FrameType) -> None:
        value, producer = b"%d" % next(program.names), program.producer
        try:
            if act == "flush":
                producer.flush(TIMEOUT_MS)
                return
            if act == "send":
                sent: Any = producer.send(ProducerRecord(program.topic, value))
            else:
                sent = producer.send_columns(program.topic, value=[value])
        except IllegalStateError as error:
            refused.append(str(error))
        else:
            program.futures.append(sent)
            program.sent[value] += 1

    for line in lines_of(program, sends, (os.path.join(PACKAGE, "producer", "send_buffer.py"),)):
        left = [line]
        with traced(
            lambda code, line=line: code is line[0],
            lambda frame, left=left: line_of(frame) in left and (left.clear(), finalizer(frame)),
        ):
            sends(program)
        program.check()
    assert set(refused) == {refused[0]}
    assert "in the middle of its own send" in refused[0]
    program.close()


def strike_all(program: Program, act: Callable[[Any], None], files: tuple[str, ...], signals: Sequence[int]) -> None:
    """``act`` again and again, each time with a signal at the next one of its lines in ``files``."""
    lines = lines_of(program, act, files)
    before = {number: signal.signal(number, raises) for number in SIGNALS}
    failed: list[str] = []
    try:
        for line, number in zip(lines, cycle(signals)):
            failed += [
                f"{line[0].co_qualname}, line {line[1]}: {error}" for error in struck(program, act, number, line)
            ]
            if len(failed) == 5:
                break
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert not failed, "\n".join(failed)
    program.close()


@pytest.mark.skipif(
    sys.version_info[:2] == (3, 14),
    reason="CPython 3.14 leaves a lock locked if an interrupt strikes as a with block begins (gh-148874)",
)
def test_a_signal_at_a_random_moment_of_a_call():
    """In the middle of a line, and of a wait."""
    random, struck = Random(1), 0
    before = signal.signal(signal.SIGALRM, raises)
    try:
        for linger_ms, codec in product([0, 5] * 5, ["none", "lz4"]):
            with TestBroker() as broker:
                program = Program(broker, **{"linger.ms": linger_ms, "compression.type": codec})
                for _ in range(40):
                    try:
                        signal.setitimer(signal.ITIMER_REAL, 10 ** random.uniform(-5, -2))
                        random.choice([sends, columns, without_memory, flush])(program)
                        signal.setitimer(signal.ITIMER_REAL, 0)
                    except Interrupted:
                        struck += 1
                        program.check()
                program.check()
                program.close()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert struck > 40, "hardly a call was interrupted"


def lines_of(program: Program, act: Callable[[Any], None], files: tuple[str, ...]) -> dict[Line, None]:
    """The lines in ``files`` that ``act`` comes to."""
    lines: dict[Line, None] = {}
    for _ in range(3):
        with traced(lambda code: code.co_filename.startswith(files), lambda frame: lines.setdefault(line_of(frame))):
            act(program)
        program.check()
    return lines


def line_of(frame: FrameType) -> Line:
    return frame.f_code, frame.f_lineno


def struck(program: Program, act: Callable[[Any], None], number: int, line: Line) -> Iterator[str]:
    left = [line]

    def strike(frame: FrameType) -> None:
        if left and line_of(frame) == line:
            left.clear()
            signal.raise_signal(number)

    try:
        with traced(lambda code: code is line[0], strike), suppress(*RAISED.values(), KafkaError):
            act(program)
        program.check()
    except Exception as error:
        yield repr(error)
