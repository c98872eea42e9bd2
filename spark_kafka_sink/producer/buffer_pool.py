"""The budget of ``buffer.memory``: an account of bytes, not a store of buffers, because Arrow allocates.

Any thread may call any method. The pool's lock is never held together with another lock. Callers shield their calls
from signals (``uninterrupted``); only the wait for memory lets them through.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.common.waiting import SendingThread, Waiters
from spark_kafka_sink.errors import BufferExhaustedError, KafkaError, RecordTooLargeError, clause, own_copy


@dataclass(slots=True)
class BufferCounters:
    """Counters of waits for buffer.memory. Guarded by the buffer pool's lock."""

    memory_waited_ns: int = 0
    exhausted: int = 0


@dataclass(slots=True, eq=False)
class Reservation:
    """Bytes that the pool granted to an append and that no batch has taken yet.

    The append must cancel it, also after an error; a second cancel has no effect.
    """

    size: int = 0


@dataclass(slots=True, eq=False)
class SharedBuffer:
    """One buffer of encoded rows that several batches hold slices of. Its bytes become free with the last of them.

    Guarded by the pool's lock once a batch is published.
    """

    size: int
    users: int = 0


class MemoryHolder(Protocol):
    """A batch as the pool sees it, with ``own_bytes`` of memory, and its part of a ``shared_buffer``."""

    own_bytes: int
    shared_buffer: SharedBuffer | None


class _Waiter(Waiters):
    """A caller that waits for ``size`` bytes. Each has its own, because they are served in order."""

    __slots__ = ("granted", "reservation", "size")

    def __init__(self, sender: SendingThread | None, reservation: Reservation, size: int) -> None:
        super().__init__(sender)
        self.reservation = reservation
        self.size = size
        self.granted = False


class Obstacles(Protocol):
    def obstacle(self, now: float) -> str | None:
        """What keeps batches from their acknowledgement, and so their memory from becoming free."""

    def connection_error(self) -> KafkaError | None:
        """The last error of a broker that cannot be reached; None if there is none."""


class BufferPool:
    """Grants ``total`` bytes first come, first served (Java: ``BufferPool``). ``sender`` explains long waits."""

    sender: Obstacles | None = None

    def __init__(self, total: int, clock: Clock, sender: SendingThread | None = None) -> None:
        self.total = total
        self.counters = BufferCounters()
        self._clock = clock
        self._lock = threading.Lock()
        self._sender_thread = sender
        self._available = total
        self._waiters: deque[_Waiter] = deque()
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
        with self._lock:
            if self._closed_by is not None:
                raise own_copy(self._closed_by)
            if not self._waiters and self._available >= size:
                self._available -= size
                reservation.size += size
                return False
            waiter = _Waiter(self._sender_thread, reservation, size)
            self._waiters.append(waiter)
        try:
            before_waiting()
            self._await_grant(waiter, max_wait_ms)
        except BaseException:
            self.cancel(reservation)
            raise
        return True

    def _await_grant(self, waiter: _Waiter, max_wait_ms: float) -> None:
        started = self._clock.now()
        waiter.wait_for(lambda: waiter.granted or self._closed_by is not None, max_wait_ms)
        obstacle = None if waiter.granted or self.sender is None else self.sender.obstacle(self._clock.now())
        with self._lock:
            self.counters.memory_waited_ns += round((self._clock.now() - started) * 1e6)
            if waiter.granted:
                return
            if self._closed_by is not None:
                raise own_copy(self._closed_by)
            self.counters.exhausted += 1
            why = "The brokers take the records more slowly than they are produced: "
            if obstacle:
                why = f"The others wait for brokers. {clause(obstacle)}. If the brokers are only slow, "
            error = BufferExhaustedError(
                f"Failed to allocate {waiter.size} bytes within max.block.ms (waited {max_wait_ms:.0f} ms): "
                f"{self._available} of buffer.memory's {self.total} bytes are free. {why}raise buffer.memory or "
                "max.block.ms."
            )
            error.__cause__ = None if self.sender is None else self.sender.connection_error()
            raise error

    def cancel(self, reservation: Reservation) -> None:
        """Free the rest of ``reservation`` and drop its wait, if any."""
        with self._lock:
            if self._waiters:
                self._waiters = deque(waiter for waiter in self._waiters if waiter.reservation is not reservation)
            self._available += reservation.size
            reservation.size = 0
            self._grant()

    def reduce(self, reservation: Reservation, size: int) -> None:
        """Free what ``reservation`` has above ``size`` bytes."""
        with self._lock:
            if reservation.size > size:
                self._available += reservation.size - size
                reservation.size = size
                self._grant()

    def charge(self, batch: MemoryHolder, size: int) -> None:
        """Replace all that ``batch`` holds by ``size`` bytes of its own."""
        with self._lock:
            self._free(batch)
            self._available -= size
            batch.own_bytes = size
            self._grant()

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
                waiter.notify_all()

    def _free(self, batch: MemoryHolder) -> None:
        self._available += batch.own_bytes
        batch.own_bytes = 0
        shared, batch.shared_buffer = batch.shared_buffer, None
        if shared is not None:
            shared.users -= 1
            if not shared.users:
                self._available += shared.size

    def _grant(self) -> None:
        """Serve waiters in order while memory lasts."""
        while self._waiters and self._waiters[0].size <= self._available:
            waiter = self._waiters.popleft()
            self._available -= waiter.size
            waiter.reservation.size += waiter.size
            waiter.granted = True
            waiter.notify_all()
