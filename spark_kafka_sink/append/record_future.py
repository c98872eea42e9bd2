"""What becomes of staged records, and the futures that ask for it."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Generator, Sequence
from operator import itemgetter
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.accumulator.producer_batch import (
    NO_TIMESTAMP,
    UNKNOWN_OFFSET,
    BatchListener,
    ProducerBatch,
    RecordRange,
)
from spark_kafka_sink.append.record import RecordMetadata
from spark_kafka_sink.errors import KafkaTimeoutError
from spark_kafka_sink.model import TopicPartition
from spark_kafka_sink.sender.callbacks import Callbacks
from spark_kafka_sink.waiting import Waiters

Sizes: TypeAlias = npt.NDArray[np.int32] | Sequence[int]
Callback = Callable[[RecordMetadata | None, Exception | None], object]


class Piece(NamedTuple):
    """Rows ``start .. end - 1`` of a stage, counted as they were encoded, that shared one fate.

    ``offset`` is that of row ``start``; the rest as in ``ProducerBatch``.
    """

    start: int
    end: int
    partition: TopicPartition
    offset: int
    log_append_time: int
    error: Exception | None


_start = itemgetter(0)

Call = Callable[[Piece | Exception], object]
"""Told a record's fate: the piece it is in, or its error."""


class StageOutcome:
    """The fate of all records of one stage; futures hold it and an index, so that nothing is made per record.

    Filled by whoever closes the stage and then by the sender thread, read by any. ``key_sizes`` and ``value_sizes``
    are there once it is encoded, None where all are null.
    """

    __slots__ = (
        "_callbacks",
        "_changed",
        "_error",
        "_laid_out",
        "_lock",
        "_order",
        "_pieces",
        "_ranks",
        "_watched",
        "default_timestamp",
        "key_sizes",
        "timestamps",
        "topic",
        "value_sizes",
    )

    def __init__(self, topic: str, timestamp: int, callbacks: Callbacks) -> None:
        self.topic = topic
        self._callbacks = callbacks
        self.default_timestamp = timestamp
        self.timestamps: Sequence[int] | None = None
        self.key_sizes: Sizes | None = None
        self.value_sizes: Sizes | None = None
        self._lock = threading.Lock()
        # Made by the first who waits: most futures are never asked.
        self._changed: Waiters | None = None
        self._order: npt.NDArray[np.intp] | None = None
        self._ranks: npt.NDArray[np.intp] | None = None
        self._laid_out = False
        self._pieces: list[Piece] = []
        self._error: Exception | None = None
        self._watched: dict[int, list[Call]] = {}

    def listeners(
        self, order: npt.NDArray[np.intp] | None, starts: Sequence[int], rows: int
    ) -> Sequence[BatchListener]:
        with self._lock:
            self._order = order
            self._laid_out = True
        return [_Segment(self, start) for start in starts]

    def fail(self, error: Exception) -> None:
        """No record of the stage got as far as a batch."""
        with self._lock:
            self._error = error
            watchers = [call for index in sorted(self._watched) for call in self._watched[index]]
            self._watched.clear()
            self._wake_waiters()
        if watchers:
            self._callbacks.add(watchers, error)

    def complete(self, start: int, batch: ProducerBatch, share: RecordRange) -> None:
        """The fate of the rows from rank ``start`` on: they are ``share`` of ``batch``."""
        offset = UNKNOWN_OFFSET if batch.base_offset == UNKNOWN_OFFSET else batch.base_offset + share.first
        piece = Piece(start, start + share.rows, batch.partition, offset, batch.log_append_time, batch.error)
        with self._lock:
            place = bisect_right(self._pieces, start, key=_start)
            if place and self._pieces[place - 1].start == start:
                piece = self._pieces[place - 1]  # told again, after an interrupt: what was told first stands
            else:
                self._pieces.insert(place, piece)
            watchers = self._take_watchers(piece) if self._watched else ()
            self._wake_waiters()
        if watchers:
            self._callbacks.add(watchers, piece.error or piece)

    def watch(self, index: int, call: Call) -> Piece | Exception | None:
        """Have the sender thread run ``call`` once record ``index`` is settled; its fate if it is already."""
        with self._lock:
            settled = self._settled(index)
            if settled is None:
                self._watched.setdefault(index, []).append(call)
            return settled

    def call_back(self, index: int, call: Call) -> None:
        """The same for a record that may be settled already: the sender thread runs ``call`` in any case."""
        settled = self.watch(index, call)
        if settled is not None:
            self._callbacks.add((call,), settled)

    def call_at_once(self, index: int, call: Call) -> None:
        """The same, but for a record that is settled already ``call`` runs here."""
        settled = self.watch(index, call)
        if settled is not None:
            self._callbacks.run_here(call, settled)

    def settled(self, index: int) -> Piece | Exception | None:
        """The piece that record ``index`` is in, or its error; None while it is open."""
        with self._lock:
            return self._settled(index)

    def wait(self, index: int, timeout: float | None) -> Piece | Exception:
        with self._lock:
            settled = self._settled(index)
            if settled is None and self._changed is None:
                self._changed = Waiters()
            changed = self._changed
        if settled is None and changed is not None:
            ms = float("inf") if timeout is None else timeout * 1000.0
            changed.wait_for(self._lock, lambda: self._settled(index) is not None, ms)
            settled = self.settled(index)
        if settled is None:
            raise KafkaTimeoutError(f"The record's fate is not known after {timeout} s")
        return settled

    def rank(self, index: int) -> int:
        """The place of record ``index`` among the rows as they were encoded: sorted by partition."""
        if self._order is None:
            return index
        if self._ranks is None:
            ranks = np.empty(len(self._order), np.intp)
            ranks[self._order] = np.arange(len(self._order))
            self._ranks = ranks
        return int(self._ranks[index])

    def place(self, index: int, piece: Piece) -> tuple[int, int]:
        """Offset and timestamp of record ``index``, which is in ``piece``."""
        offset = piece.offset
        if offset != UNKNOWN_OFFSET:
            offset += self.rank(index) - piece.start
        if piece.log_append_time != NO_TIMESTAMP:
            return offset, piece.log_append_time
        return offset, self.default_timestamp if self.timestamps is None else self.timestamps[index]

    def future(self, index: int) -> RecordFuture:
        future = RecordFuture()
        future._stage, future._index = self, index
        return future

    def serialized_sizes(self, index: int) -> tuple[int, int]:
        """Bytes of the key and the value of record ``index``, -1 for null."""
        keys, values = self.key_sizes, self.value_sizes
        return -1 if keys is None else int(keys[index]), -1 if values is None else int(values[index])

    def _wake_waiters(self) -> None:
        if self._changed is not None:
            self._changed.notify_all()

    def _settled(self, index: int) -> Piece | Exception | None:
        if self._error is not None or not self._laid_out:
            return self._error
        rank = self.rank(index)
        place = bisect_right(self._pieces, rank, key=_start) - 1
        if place < 0 or rank >= self._pieces[place].end:
            return None
        piece = self._pieces[place]
        return piece.error or piece

    def _take_watchers(self, piece: Piece) -> list[Call]:
        """The watchers of one piece's records, in the order of these."""
        rows = range(piece.start, piece.end)
        if self._order is not None:
            rows = self._order[piece.start : piece.end].tolist()
        return [call for index in rows if index in self._watched for call in self._watched.pop(index)]


class _Segment:
    """Listens for the rows of one segment of a stage, which begin at rank ``start``."""

    __slots__ = ("_stage", "_start")

    def __init__(self, stage: StageOutcome, start: int) -> None:
        self._stage = stage
        self._start = start

    def batch_completed(self, batch: ProducerBatch, share: RecordRange) -> None:
        self._stage.complete(self._start + share.skipped, batch, share)


class _Waited:
    """``told`` under the ``condition`` and with its ``waiters``: no waiter may hear of a record it found finished."""

    __slots__ = ("condition", "told", "waiters")

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.waiters: list[Any] = []
        self.told = False


class RecordFuture:
    """What ``send`` returns: the record's ``RecordMetadata``, or the error, as soon as it is known.

    Works with ``concurrent.futures.wait`` and ``as_completed`` and can be awaited; it cannot be cancelled.
    """

    # Without a constructor: one in Python takes three times as long as to set the two, and this is once per record.
    __slots__ = ("_index", "_stage", "_waited")

    _index: int
    _stage: StageOutcome

    def done(self) -> bool:
        return self._stage.settled(self._index) is not None

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """The metadata, waiting up to ``timeout`` seconds (None: until delivery.timeout.ms settles it).

        Raises what kept the record from being delivered, ``KafkaTimeoutError`` when it is not known in time.
        """
        settled = self._stage.wait(self._index, timeout)
        if isinstance(settled, Exception):
            raise settled
        return self._metadata(settled)

    def exception(self, timeout: float | None = None) -> Exception | None:
        settled = self._stage.wait(self._index, timeout)
        return settled if isinstance(settled, Exception) else None

    def cancel(self) -> Literal[False]:
        return False

    def cancelled(self) -> Literal[False]:
        return False

    def running(self) -> bool:
        return not self.done()

    def add_done_callback(self, call: Callable[[RecordFuture], object]) -> None:
        """Run ``call(future)`` on the sender thread, or at once when the record is settled already."""
        self._stage.call_at_once(self._index, lambda _: call(self))

    def when_settled(self, callback: Callback) -> None:
        """``callback(metadata, error)``, of which one is None, on the sender thread."""

        def settled(fate: Piece | Exception) -> None:
            if isinstance(fate, Piece):
                callback(self._metadata(fate), None)
            else:
                callback(None, fate)

        self._stage.call_back(self._index, settled)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        import asyncio

        loop = asyncio.get_running_loop()
        answer: asyncio.Future[RecordMetadata] = loop.create_future()

        def settle(fate: Piece | Exception) -> None:
            if answer.done():
                return
            if isinstance(fate, Exception):
                answer.set_exception(fate)
            else:
                answer.set_result(self._metadata(fate))

        settled = self._stage.watch(self._index, lambda fate: loop.call_soon_threadsafe(settle, fate))
        if settled is not None:
            settle(settled)
        return answer.__await__()

    # What concurrent.futures.wait and as_completed use of their own Future; made only for those that are waited for.

    @property
    def _state(self) -> str:
        return "FINISHED" if self._waiting().told else "RUNNING"

    @property
    def _condition(self) -> threading.Condition:
        return self._waiting().condition

    @property
    def _waiters(self) -> list[Any]:
        return self._waiting().waiters

    def _waiting(self) -> _Waited:
        try:
            return self._waited
        except AttributeError:
            self._waited: _Waited = _Waited()
        if self._stage.watch(self._index, self._tell_waiters) is not None:
            self._waited.told = True
        return self._waited

    def _tell_waiters(self, fate: Piece | Exception) -> None:
        waited = self._waited
        with waited.condition:
            waited.told = True
            for waiter in waited.waiters:
                if isinstance(fate, Piece):
                    waiter.add_result(self)
                else:
                    waiter.add_exception(self)

    def _metadata(self, piece: Piece) -> RecordMetadata:
        offset, timestamp = self._stage.place(self._index, piece)
        topic, partition = piece.partition
        return RecordMetadata(topic, partition, offset, timestamp, *self._stage.serialized_sizes(self._index))
