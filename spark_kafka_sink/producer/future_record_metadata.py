"""``FutureRecordMetadata``, the future of one record, and ``ProduceRequestResult``, the outcome shared by many records.
A future has its record's number in ``SentRecords``, which finds the result once the sender thread has encoded the
record.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from itertools import count
from operator import itemgetter
from types import TracebackType
from typing import Any, Literal, NamedTuple, Never, TypeAlias

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.common.model import NO_TIMESTAMP, UNKNOWN_OFFSET, TopicPartition
from spark_kafka_sink.common.waiting import Waiters
from spark_kafka_sink.errors import KafkaTimeoutError, own_copy
from spark_kafka_sink.producer.callbacks import Callbacks
from spark_kafka_sink.producer.producer_batch import BatchListener, ProducerBatch, RecordRange
from spark_kafka_sink.producer.record import RecordMetadata
from spark_kafka_sink.records.arrays import Int32Array, Int64Array

Callback = Callable[[RecordMetadata | None, Exception | None], object]


class CompletedRange(NamedTuple):
    """Rows ``start .. end - 1`` of a result, in the order they were encoded, that one batch completed.

    ``offset``: of row ``start``; the other fields are those of ``ProducerBatch``. ``partition`` None: the rows reached
    no batch. ``trace``: where the traceback of each caller's copy of the error begins.
    """

    start: int
    end: int
    partition: TopicPartition | None
    offset: int
    log_append_time: int
    error: Exception | None
    trace: TracebackType | None = None

    def own_error(self) -> Exception | None:
        """The error of the rows; a new exception for each caller. None if they are in the log."""
        return None if self.error is None else own_copy(self.error, self.trace)


_start = itemgetter(0)

Watcher: TypeAlias = Callable[[CompletedRange], object]


class _Watchers:
    """The calls that wait for a record's outcome, by the record's number. A caller adds a call, then looks for the
    outcome. The sender thread sets the outcome, then takes the calls. One of them sees the other, and the thread that
    takes a call out runs it.
    """

    def __init__(self) -> None:
        self._calls: dict[int, list[Watcher]] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, number: int, call: Watcher, look: Callable[[], CompletedRange | None]) -> CompletedRange | None:
        """Adds a call. Returns the outcome that ``look`` finds, in which case the sender thread will not run the call;
        None if it will."""
        calls = self._calls.setdefault(number, [])
        calls.append(call)
        outcome = look()
        if outcome is not None:
            try:
                calls.remove(call)
            except ValueError:
                return None
        return outcome

    def take(self, number: int) -> list[Watcher]:
        """The calls of a record, which the sender thread runs."""
        calls, taken = self._calls.pop(number, None), []
        while calls:
            with suppress(IndexError):  # the caller that added it has taken it back
                taken.append(calls.pop(0))
        return taken


class SentRecords:
    """Records of one topic, numbered as they are sent, and what the sender thread has encoded of them.

    The inbox has numbers instead of futures, so a future that its caller drops is freed at once and costs the garbage
    collector nothing.
    """

    def __init__(self, name: str, callbacks: Callbacks) -> None:
        self.name = name
        self.callbacks = callbacks
        self.next_number = count().__next__
        self.changed = Waiters(callbacks.sender)
        """Threads that wait for an outcome."""
        self.watchers = _Watchers()
        self._results: list[ProduceRequestResult] = []  # of records that follow each other
        self._scattered: dict[int, tuple[ProduceRequestResult, int]] = {}

    def encoded(self, result: ProduceRequestResult) -> None:
        """Notes the result of records that are encoded, or have failed. Called by the sender thread."""
        numbers = result.numbers
        end = numbers[0] + len(numbers)
        if numbers[-1] == end - 1 and sorted(numbers) == numbers:  # each once: so they follow each other
            result.numbers = range(numbers[0], end)
            self._results = [*self._results, result]  # replaced, because other threads go through it
        else:  # several threads, or a signal handler, have put them in another order than they were numbered
            self._scattered.update((number, (result, index)) for index, number in enumerate(numbers))

    def find(self, number: int) -> tuple[ProduceRequestResult, int] | None:
        """The record's result, and its index in that result; None while the record is not encoded."""
        for result in self._results:
            if number in result.numbers:
                return result, number - result.numbers[0]
        return self._scattered.get(number)

    def watch(self, number: int, call: Watcher) -> CompletedRange | None:
        """Has the sender thread run ``call`` when the record completes. Returns the outcome if it has completed
        already."""
        return self.watchers.add(number, call, lambda: self.outcome(number))

    def outcome(self, number: int) -> CompletedRange | None:
        """The range that the record is in; None while it is incomplete."""
        found = self.find(number)
        return None if found is None else found[0].outcome(found[1])


class ProduceRequestResult(BatchListener):
    """The outcome of records that were encoded together; a future holds it and an index (Java: one per batch).

    Filled by the sender thread, read by any thread. ``numbers``: those of the records in ``SentRecords``, by index.
    ``timestamps``: one if all are the same. ``key_sizes`` and ``value_sizes``: None where all are null. ``order``:
    record ``i`` of a ``RecordRange`` is record ``order[i]`` of the result; None: the same one.
    """

    def __init__(self, records: SentRecords, numbers: Sequence[int]) -> None:
        self.numbers = numbers
        self.timestamps: Int64Array | int = NO_TIMESTAMP
        self.key_sizes: Int32Array | Sequence[int] | None = None
        self.value_sizes: Int32Array | Sequence[int] | None = None
        self.order: npt.NDArray[np.intp] | None = None
        self._topic, self._callbacks = records.name, records.callbacks  # the records themselves would be a cycle
        self._changed, self._watchers = records.changed, records.watchers
        self._ranks: npt.NDArray[np.intp] | None = None
        self._ranges: list[CompletedRange] = []
        self._failure: CompletedRange | None = None

    def fail(self, error: Exception) -> None:
        """Sets the error of all records, none of which reached a batch."""
        trace = error.__traceback__  # a partitioner's, for example
        self._failure = CompletedRange(0, len(self.numbers), None, UNKNOWN_OFFSET, NO_TIMESTAMP, error, trace)
        self._ended(self._failure)

    def batch_completed(self, batch: ProducerBatch, rows: RecordRange) -> None:
        """Implements ``BatchListener``."""
        start, offset = rows.start, UNKNOWN_OFFSET
        if batch.base_offset != UNKNOWN_OFFSET:
            offset = batch.base_offset + rows.first
        done = CompletedRange(start, start + rows.rows, batch.partition, offset, batch.log_append_time, batch.error)
        ranges = self._ranges.copy()  # replaced whole, because a reader looks for a range, then takes it
        ranges.insert(bisect_right(ranges, start, key=_start), done)
        self._ranges = ranges
        self._ended(done)

    def metadata(self, index: int, done: CompletedRange) -> RecordMetadata:
        """The metadata of record ``index``, which is in ``done``."""
        assert done.partition is not None
        offset, timestamp = done.offset, done.log_append_time
        if offset != UNKNOWN_OFFSET:
            offset += self._rank(index) - done.start
        if timestamp == NO_TIMESTAMP:
            timestamp = self.timestamps if isinstance(self.timestamps, int) else int(self.timestamps[index])
        key_size, value_size = (
            -1 if sizes is None else int(sizes[index]) for sizes in (self.key_sizes, self.value_sizes)
        )
        return RecordMetadata(*done.partition, offset, timestamp, key_size, value_size)

    def _rank(self, index: int) -> int:
        """The position of record ``index`` among the rows as they were encoded, sorted by partition."""
        if self.order is None:
            return index
        if self._ranks is None:
            ranks = np.empty(len(self.order), np.intp)
            ranks[self.order] = np.arange(len(self.order))
            self._ranks = ranks
        return int(self._ranks[index])

    def outcome(self, index: int) -> CompletedRange | None:
        """The range that record ``index`` is in; None while it is incomplete."""
        if self._failure is not None:
            return self._failure
        rank, ranges = self._rank(index), self._ranges
        position = bisect_right(ranges, rank, key=_start) - 1
        return None if position < 0 or rank >= ranges[position].end else ranges[position]

    def _ended(self, done: CompletedRange) -> None:
        """Takes the watchers of records that have their outcome."""
        taken: list[Watcher] = []
        if self._watchers:
            rows = slice(done.start, done.end)
            numbers: Iterable[int] = self.numbers[rows]
            if self.order is not None:
                numbers = map(self.numbers.__getitem__, self.order[rows])
            taken = [call for number in numbers for call in self._watchers.take(number)]
        if done.error is not None and not (taken or self._changed.waiting):
            self._callbacks.note_unheard(self._topic, done.error, done.end - done.start)
        self._changed.notify_all()
        if taken:
            self._callbacks.add(taken, done)


class _NoLock:
    """The condition of a future that ``concurrent.futures`` cannot wait for. It acquires the conditions of all futures
    before it reads a ``_state``, and releases them after an error there."""

    def acquire(self) -> None:
        pass

    release = acquire


class FutureRecordMetadata:
    """The record's ``RecordMetadata``, or the error, once it is complete (Java's class of this name).

    It has the methods of ``concurrent.futures.Future`` and can be awaited, but not cancelled or given to ``wait`` and
    ``as_completed`` of that package.
    """

    # No __init__: in Python it takes three times as long as setting the field, once per record.
    __slots__ = ("__weakref__", "_number", "_records")

    _records: SentRecords
    _number: int

    def done(self) -> bool:
        return self._outcome() is not None

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """The metadata, waiting up to ``timeout`` seconds (None: delivery.timeout.ms is the deadline).

        Raises the error that the record failed with, ``KafkaTimeoutError`` after ``timeout``, and ``IllegalStateError``
        in a callback, where it would wait for itself.
        """
        outcome = self._wait(timeout)
        if (error := outcome.own_error()) is not None:
            raise error
        return self._metadata(outcome)

    def exception(self, timeout: float | None = None) -> Exception | None:
        return self._wait(timeout).own_error()

    def partition(self) -> int | None:
        """The partition of a complete record, even if it failed; None while the record is incomplete, or if it reached
        no batch."""
        outcome = self._outcome()
        return None if outcome is None or outcome.partition is None else outcome.partition.partition

    def cancel(self) -> Literal[False]:
        return False

    def cancelled(self) -> Literal[False]:
        return False

    def running(self) -> bool:
        return not self.done()

    def add_done_callback(self, call: Callable[[FutureRecordMetadata], object]) -> None:
        """Run ``call(future)`` on the sender thread, even when the record is complete already."""
        self._call_back(lambda _: call(self))

    def add_callback(self, callback: Callback) -> None:
        """Run ``callback(metadata, error)``, of which one is None, on the sender thread."""

        def completed(outcome: CompletedRange) -> None:
            error = outcome.own_error()
            callback(self._metadata(outcome) if error is None else None, error)

        self._call_back(completed)

    def _call_back(self, call: Watcher) -> None:
        records = self._records
        if records.changed.notifiers_gone:
            records.changed.check()
        if (outcome := records.watch(self._number, call)) is not None:
            records.callbacks.add((call,), outcome)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        import asyncio

        loop = asyncio.get_running_loop()
        awaited: asyncio.Future[RecordMetadata] = loop.create_future()

        def complete(outcome: CompletedRange, error: Exception | None) -> None:
            if awaited.done():
                return
            if error is not None:
                awaited.set_exception(error)
            else:
                awaited.set_result(self._metadata(outcome))

        def tell(outcome: CompletedRange) -> None:
            error = outcome.own_error()  # read here: close may hold up the loop
            with suppress(RuntimeError):  # the loop has ended, and the awaiting task with it
                loop.call_soon_threadsafe(complete, outcome, error)

        if (outcome := self._outcome()) is None:
            self._records.changed.check()
            outcome = self._records.watch(self._number, tell)
        if outcome is not None:
            complete(outcome, outcome.own_error())
        return awaited.__await__()

    _condition = _NoLock()

    @property
    def _state(self) -> Never:
        raise TypeError(
            "concurrent.futures cannot wait for the future of a record: call result() of each future, or flush(), or "
            "await it."
        )

    def _outcome(self) -> CompletedRange | None:
        return self._records.outcome(self._number)

    def _wait(self, timeout: float | None) -> CompletedRange:
        ms = None if timeout is None else timeout * 1000.0
        self._records.changed.wait_for(lambda: self._outcome() is not None, ms)
        if (outcome := self._outcome()) is None:
            raise KafkaTimeoutError(f"The record was not acknowledged within {timeout} s")
        return outcome

    def _metadata(self, outcome: CompletedRange) -> RecordMetadata:
        found = self._records.find(self._number)
        assert found is not None
        result, index = found
        return result.metadata(index, outcome)
