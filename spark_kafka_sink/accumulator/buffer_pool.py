"""The budget of ``buffer.memory``: an account of bytes, not a store of buffers (Arrow allocates).

Any thread may call anything here. The pool's lock is never held together with another one.

An interrupt (Ctrl-C) strikes between two statements. What moves bytes from one place to another is one statement, so
that no byte is ever in neither or in both.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable

from spark_kafka_sink.accumulator.batch import ProducerBatch
from spark_kafka_sink.clock import Clock
from spark_kafka_sink.errors import BufferExhaustedError, RecordTooLargeError
from spark_kafka_sink.metrics import BufferCounters
from spark_kafka_sink.waiting import Sleeper


class Reservation:
    """Bytes granted for rows and not kept by a batch yet.

    Its owner gives them to batches and cancels what is left, always, and again where it cannot know that it has.
    """

    __slots__ = ("size",)

    def __init__(self) -> None:
        self.size = 0


class _Waiter(Sleeper):
    """Waits for ``size`` bytes."""

    __slots__ = ("granted", "reservation", "size")

    def __init__(self, reservation: Reservation, size: int) -> None:
        super().__init__()
        self.reservation = reservation
        self.size = size
        self.granted = False


class BufferPool:
    """Grants bytes first come, first served (Kafka: ``BufferPool``).

    ``total`` in bytes. Waiting ends with ``BufferExhaustedError`` after the caller's deadline, or with the error given
    to ``close``.
    """

    def __init__(self, total: int, clock: Clock) -> None:
        self.total = total
        self.counters = BufferCounters()
        self._clock = clock
        self._lock = threading.Lock()
        self._available = total
        self._waiters: deque[_Waiter] = deque()
        self._closed_by: Exception | None = None

    @property
    def available(self) -> int:
        return self._available

    def gauges(self) -> dict[str, Callable[[], float]]:
        """What the metrics say of it now, by Kafka's names."""
        return {
            "buffer-total-bytes": lambda: self.total,
            "buffer-available-bytes": lambda: self._available,
            "waiting-threads": lambda: len(self._waiters),
        }

    @property
    def exhausted(self) -> bool:
        """Whether somebody waits for memory; read without the lock by the sender, who then sends what is open."""
        return bool(self._waiters)

    def reserve(
        self, reservation: Reservation, size: int, max_wait_ms: float, before_waiting: Callable[[], None]
    ) -> bool:
        """Add ``size`` bytes to ``reservation``, waiting up to ``max_wait_ms`` for others to release theirs.

        Says whether it had to wait.
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
            waiter.wait(remaining)
        with self._lock:
            self.counters.waited_s += (self._clock.now() - started) / 1000.0
            if waiter.granted:
                return
            if self._closed_by is not None:
                raise self._closed_by
            self.counters.exhausted += 1
            raise BufferExhaustedError(
                f"Failed to allocate {waiter.size} bytes within max.block.ms (waited {max_wait_ms:.0f} ms): "
                f"{self._available} of buffer.memory's {self.total} bytes are free. The brokers take the records more "
                "slowly than they are produced: raise buffer.memory or max.block.ms, or look at the brokers."
            )

    def cancel(self, reservation: Reservation) -> None:
        """Free what is left of it, and wait for no more. Harmless when nothing is left."""
        with self._lock:
            if self._waiters:
                self._waiters = deque(waiter for waiter in self._waiters if waiter.reservation is not reservation)
            self._available, reservation.size = self._available + reservation.size, 0
            self._grant()

    def charge(self, batch: ProducerBatch, size: int) -> None:
        """``batch`` keeps ``size`` bytes of its own instead of what it kept."""
        with self._lock:
            self._let_go(batch)
            self._available, batch.own = self._available - size, size
            self._grant()

    def release(self, batches: Iterable[ProducerBatch]) -> None:
        """Give back what batches kept. Shared slices become free with their last batch."""
        with self._lock:
            for batch in batches:
                self._let_go(batch)
            self._grant()

    def close(self, error: Exception) -> None:
        """Wake every waiter, now and later, with ``error``."""
        with self._lock:
            self._closed_by = error
            for waiter in self._waiters:
                waiter.wake()

    def _let_go(self, batch: ProducerBatch) -> None:
        hold = batch.hold
        if hold is None:
            self._available, batch.own = self._available + batch.own, 0
        else:
            freed = batch.own if hold.users > 1 else batch.own + hold.size
            self._available, batch.own, batch.hold, hold.users = self._available + freed, 0, None, hold.users - 1

    def _grant(self) -> None:
        """To the first in line as long as there is enough; goes on where an interrupted one stopped."""
        while self._waiters:
            waiter = self._waiters[0]
            size, reservation = waiter.size, waiter.reservation
            if not waiter.granted:
                if self._available < size:
                    return
                self._available, reservation.size, waiter.granted = (
                    self._available - size,
                    reservation.size + size,
                    True,
                )
            waiter.wake()
            self._waiters.popleft()
