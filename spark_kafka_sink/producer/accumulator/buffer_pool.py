"""The budget of ``buffer.memory``: an account of bytes, not a store of buffers, because Arrow allocates.

Any thread may call any method. The pool's lock is never held together with another lock.

An interrupt (Ctrl-C) strikes between two statements. A move of bytes is therefore one statement: every byte is free, in
one reservation or in one batch.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.common.metrics import BufferCounters
from spark_kafka_sink.common.waiting import SendingThread, Sleeper, Waiters
from spark_kafka_sink.errors import BufferExhaustedError, RecordTooLargeError


class Reservation:
    """Bytes that the pool granted to an append and that no batch has taken yet.

    The append must cancel it, also after an error; a second cancel has no effect.
    """

    __slots__ = ("size",)

    def __init__(self) -> None:
        self.size = 0


class SharedBuffer:
    """One buffer of encoded rows that several batches hold slices of. Its bytes become free with the last of them.

    Guarded by the pool's lock once a batch is published.
    """

    __slots__ = ("size", "users")

    def __init__(self, size: int) -> None:
        self.size = size
        self.users = 0


class HeldBuffer:
    """An Arrow buffer that batches keep allocated after the calls that brought it. It counts as a ``whole``: ``used``
    bytes in the ``users``, the batches that are not done, and ``size``, the rest. Guarded by the pool's lock.
    """

    __slots__ = ("size", "used", "users", "whole")

    def __init__(self, whole: int) -> None:
        self.whole = whole
        self.size = self.used = self.users = 0


class PinnedBuffer:
    """An Arrow buffer that batches refer to, with the values of one call (ADR 25). ``data``: its bytes; ``address`` and
    ``size``: what stays allocated until the last of the values is sent.

    While the call runs, its caller holds the buffer anyway, so a batch counts the bytes of its own rows (``own_bytes``)
    and nothing else. When the call returns, ``BufferPool.settle`` makes it one of a ``HeldBuffer``.

    ``data`` and ``batches`` belong to the caller's thread, which empties them when the call returns. The pool's lock
    guards ``held``.
    """

    __slots__ = ("address", "batches", "data", "held", "size")

    def __init__(self, data: memoryview, address: int, size: int) -> None:
        self.data = data
        self.address = address
        self.size = size
        self.batches: dict[MemoryHolder, None] = {}
        self.held: HeldBuffer | None = None


class PinnedValues(NamedTuple):
    """``size`` bytes of ``buffer`` that a batch refers to; they count in its ``own_bytes``."""

    buffer: PinnedBuffer
    size: int


class MemoryHolder(Protocol):
    """A batch, as the pool sees it: ``own_bytes`` of its own, its part of a ``shared_buffer``, and the values that it
    has not copied.
    """

    own_bytes: int
    shared_buffer: SharedBuffer | None
    pinned: tuple[PinnedValues, ...]

    def copy_values(self, data: memoryview, /) -> None:
        """Copy the slices of ``data``."""


class _Waiter(Sleeper):
    """Waits for ``size`` bytes."""

    __slots__ = ("granted", "reservation", "size")

    def __init__(self, reservation: Reservation, size: int) -> None:
        super().__init__()
        self.reservation = reservation
        self.size = size
        self.granted = False


class Obstacles(Protocol):
    def obstacle(self, now: float) -> str | None:
        """What keeps batches from their acknowledgement, and so their memory from becoming free."""


class BufferPool:
    """Grants ``total`` bytes first come, first served (Java: ``BufferPool``). ``sender`` explains long waits."""

    sender: Obstacles | None = None

    def __init__(self, total: int, clock: Clock, sender: SendingThread | None = None) -> None:
        self.total = total
        self.counters = BufferCounters()
        self._clock = clock
        self._lock = threading.Lock()
        self._freed = Waiters(sender)  # _waiters are served in order
        self._available = total
        self._waiters: deque[_Waiter] = deque()
        self._held: dict[tuple[int, int], HeldBuffer] = {}  # by address and size
        self._closed_by: Exception | None = None

    @property
    def available(self) -> int:
        return self._available

    @property
    def waiting(self) -> int:
        """Number of callers that wait for memory."""
        return len(self._waiters)

    @property
    def exhausted(self) -> bool:
        """Whether a caller waits for memory. The sender reads it without the lock, and then sends open batches."""
        return bool(self._waiters)

    def reserve(
        self, reservation: Reservation, size: int, max_wait_ms: float, before_waiting: Callable[[], None]
    ) -> bool:
        """Add ``size`` bytes to ``reservation``; returns whether the caller had to wait for them.

        Raises ``BufferExhaustedError`` after ``max_wait_ms``, or the error given to ``close``.
        """
        if size > self.total:
            raise RecordTooLargeError(
                f"The rows need {size} bytes at once, more than buffer.memory holds ({self.total} bytes). "
                "Raise buffer.memory."
            )
        try:
            with self._lock:
                if self._closed_by is not None:
                    raise self._closed_by
                if not self._waiters and self._available >= size:
                    self._available, reservation.size = self._available - size, reservation.size + size
                    return False
                waiter = _Waiter(reservation, size)
                self._waiters.append(waiter)
            before_waiting()
            self._await_grant(waiter, max_wait_ms)
            return True
        except BaseException:
            self.cancel(reservation)
            raise

    def _await_grant(self, waiter: _Waiter, max_wait_ms: float) -> None:
        started = self._clock.now()
        deadline = started + max_wait_ms
        while not waiter.granted and self._closed_by is None:
            remaining = deadline - self._clock.now()
            if remaining <= 0:
                break
            self._freed.check()
            waiter.wait(remaining)
        obstacle = None if waiter.granted or self.sender is None else self.sender.obstacle(self._clock.now())
        with self._lock:
            self.counters.memory_waited_ns += round((self._clock.now() - started) * 1e6)
            if waiter.granted:
                return
            if self._closed_by is not None:
                raise self._closed_by
            self.counters.exhausted += 1
            raise BufferExhaustedError(
                f"Failed to allocate {waiter.size} bytes within max.block.ms (waited {max_wait_ms:.0f} ms): "
                f"{self._available} of buffer.memory's {self.total} bytes are free. The brokers take the records more "
                "slowly than they are produced: raise buffer.memory or max.block.ms, or look at the brokers."
                + (f" {obstacle}" if obstacle else "")
            )

    def cancel(self, reservation: Reservation) -> None:
        """Free the rest of ``reservation`` and drop its wait, if any."""
        with self._lock:
            if self._waiters:
                self._waiters = deque(waiter for waiter in self._waiters if waiter.reservation is not reservation)
            self._available, reservation.size = self._available + reservation.size, 0
            self._grant()

    def reduce(self, reservation: Reservation, size: int) -> None:
        """Free what ``reservation`` has above ``size`` bytes."""
        with self._lock:
            if reservation.size > size:
                self._available, reservation.size = self._available + reservation.size - size, size
                self._grant()

    def charge(self, batch: MemoryHolder, size: int) -> None:
        """Replace all that ``batch`` holds by ``size`` bytes of its own."""
        with self._lock:
            self._free(batch)
            self._available, batch.own_bytes = self._available - size, size
            self._grant()

    def settle(self, pinned: PinnedBuffer) -> bool:
        """The call that brought the buffer ends: count it as a whole while batches refer to it. False if there is no
        memory for that, or others wait for memory: then the caller copies the values. A second call has no effect.
        """
        with self._lock:
            counts = pinned.held is not None or self._settle(pinned)
            self._grant()
            return counts

    def release(self, batches: Iterable[MemoryHolder]) -> None:
        """Free what the batches hold."""
        with self._lock:
            for batch in batches:
                self._free(batch)
            self._grant()

    def close(self, error: Exception) -> None:
        """Every wait, now and later, raises ``error``."""
        with self._lock:
            self._closed_by = error
            for waiter in self._waiters:
                waiter.wake()

    def _settle(self, pinned: PinnedBuffer) -> bool:
        sizes = [each.size for batch in pinned.batches for each in batch.pinned if each.buffer is pinned]
        if not sizes:
            return True
        place = pinned.address, pinned.size
        held = self._held.get(place)
        if held is None or not held.users:
            held = HeldBuffer(pinned.size)
        used = held.used + sum(sizes)
        left = max(0, held.whole - used)
        more = left - held.size
        if more > 0 and (self._waiters or more > self._available):
            return False
        self._held[place] = held
        self._available, held.size, held.used, held.users, pinned.held = (
            self._available - more, left, used, held.users + len(sizes), held,
        )  # fmt: skip
        return True

    def _unpin(self, batch: MemoryHolder) -> None:
        """A held buffer counts as a whole, or as its users if they have more, until the last one is done."""
        (buffer, size), *others = batch.pinned
        held = buffer.held
        if held is None:
            batch.pinned = tuple(others)
            return
        used, users = held.used - size, held.users - 1
        left = max(0, held.whole - used) if users else 0
        self._available, batch.pinned, batch.own_bytes, held.size, held.used, held.users = (
            self._available + size + held.size - left, tuple(others), batch.own_bytes - size, left, used, users,
        )  # fmt: skip
        if not users:
            self._held.pop((buffer.address, buffer.size), None)

    def _free(self, batch: MemoryHolder) -> None:
        while batch.pinned:
            self._unpin(batch)
        shared = batch.shared_buffer
        if shared is None:
            self._available, batch.own_bytes = self._available + batch.own_bytes, 0
        else:
            freed = batch.own_bytes if shared.users > 1 else batch.own_bytes + shared.size
            self._available, batch.own_bytes, batch.shared_buffer, shared.users = (
                self._available + freed, 0, None, shared.users - 1,
            )  # fmt: skip

    def _grant(self) -> None:
        """Serve waiters in order while memory lasts. After an interrupt, the next call resumes."""
        while self._waiters:
            waiter = self._waiters[0]
            size, reservation = waiter.size, waiter.reservation
            if not waiter.granted:
                if self._available < size:
                    return
                self._available, reservation.size, waiter.granted = (
                    self._available - size, reservation.size + size, True,
                )  # fmt: skip
            waiter.wake()
            self._waiters.popleft()
