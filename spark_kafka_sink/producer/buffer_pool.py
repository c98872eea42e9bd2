"""The budget of ``buffer.memory``: an account of bytes, not a store of buffers, because Arrow allocates.

The sender thread owns the account. Up to half of the budget is ready as *grants* in a deque, as Java's pool keeps
free buffers. A caller that needs memory pops grants, each in one atomic step, without the sender thread. If there are
too few, it waits in line for the sender thread. What a caller has not passed on goes back when its ``Grant`` is
collected, so an interrupt loses no byte.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from weakref import ref

from spark_kafka_sink.common.cause import Explains
from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.common.waiting import SendingThread, Waiters
from spark_kafka_sink.errors import BufferExhaustedError, RecordTooLargeError, clause, own_copy
from spark_kafka_sink.producer.producer_batch import ProducerBatch

_LARGEST_GRANT: Final = 256 << 10
_LEAST_GRANTS: Final = 16
"""The least number of grants that ``buffer.memory`` has room for, even if it is small."""


@dataclass(slots=True)
class BufferCounters:
    """Counters of waits for buffer.memory, which callers add to.

    CPython with a GIL switches threads only at calls and backward jumps, so a sum without either loses nothing.
    """

    memory_waited_ns: int = 0
    exhausted: int = 0


class _Owed(ref["Grant"]):
    """The ``size`` of a grant that is in use."""

    __slots__ = ("size",)
    size: int


class Grant:
    """``size`` bytes of a pool that are in no batch yet. They return to the pool once, at the latest when the grant is
    collected. Made by the sender thread.
    """

    __slots__ = ("__weakref__", "_pool", "owed", "size")

    def __init__(self, pool: BufferPool, size: int, collected: Callable[[_Owed], None]) -> None:
        self._pool = pool
        self.size = size
        self.owed = _Owed(self, collected)
        self.owed.size = size

    def give_back(self) -> None:
        """Called by the sender thread. A second call has no effect."""
        self._pool.returned(self.owed)
        self.size = self.owed.size = 0


class _Waiter(Waiters):
    """A caller that waits for ``size`` bytes. Each has its own, because they are served in order."""

    __slots__ = ("grant", "size")

    def __init__(self, sender: SendingThread | None, size: int) -> None:
        super().__init__(sender)
        self.size = size
        self.grant: Grant | None = None


class BufferPool:
    """Grants ``total`` bytes first come, first served (Java: ``BufferPool``). ``sender`` explains long waits."""

    sender: Explains | None = None

    def __init__(self, total: int, clock: Clock, sender: SendingThread | None = None) -> None:
        self.total = total
        self.counters = BufferCounters()
        self.grant_size = max(1, min(_LARGEST_GRANT, total // _LEAST_GRANTS))
        self._clock = clock
        self._sender_thread = sender
        self._free = total
        self._grants: deque[Grant] = deque()
        self._owed: set[_Owed] = set()
        self._collected: deque[_Owed] = deque()
        self._waiters: deque[_Waiter] = deque()
        self._closed_by: Exception | None = None
        self._refill()

    # Any thread

    @property
    def available(self) -> int:
        """Bytes that are free, including the bytes of ready grants."""
        return (
            self._free
            + sum(grant.size for grant in self._grants.copy())
            + sum(owed.size for owed in self._collected.copy())
        )

    @property
    def waiting(self) -> int:
        """Number of callers that wait for memory. While there are any, the sender thread sends open batches."""
        return len(self._waiters)

    def take(self, size: int, max_wait_ms: float) -> tuple[list[Grant], bool]:
        """Grants of at least ``size`` bytes together, and whether the caller had to wait for them.

        Raises ``RecordTooLargeError`` for more than there is, ``BufferExhaustedError`` after ``max_wait_ms``, and the
        error given to ``close``.
        """
        if size > self.total:
            raise RecordTooLargeError(
                f"The rows need {size} bytes at once, more than buffer.memory holds ({self.total} bytes). "
                "Raise buffer.memory."
            )
        if self._closed_by is not None:
            raise own_copy(self._closed_by)
        grants: list[Grant] = []
        left = size
        with suppress(IndexError):
            while left > 0 and not self._waiters:  # no caller overtakes the line
                grants.append(self._grants.pop())
                left -= grants[-1].size
        if left <= 0:
            return grants, False
        grants.clear()  # the first in line may need them, so a caller that waits holds none
        return [self._wait_in_line(size, max_wait_ms)], True

    def _wait_in_line(self, size: int, max_wait_ms: float) -> Grant:
        """A caller appends its waiter, then reads ``_closed_by`` and the grant. The sender thread sets one of them,
        then wakes the waiter."""
        waiter = _Waiter(self._sender_thread, size)
        started = self._clock.now()
        try:
            self._waiters.append(waiter)
            waiter.wake_sender()
            waiter.wait_for(lambda: waiter.grant is not None or self._closed_by is not None, max_wait_ms)
        finally:
            with suppress(ValueError):  # the sender thread has served it
                self._waiters.remove(waiter)
            waited_ns = round((self._clock.now() - started) * 1e6)
            self.counters.memory_waited_ns += waited_ns
        if waiter.grant is not None:
            return waiter.grant
        if self._closed_by is not None:
            raise own_copy(self._closed_by)
        self.counters.exhausted += 1
        raise self._exhausted_error(size, max_wait_ms)

    def _exhausted_error(self, size: int, max_wait_ms: float) -> BufferExhaustedError:
        why = None if self.sender is None else self.sender.why_waiting(None, self._clock.now())
        reason = "The brokers take the records more slowly than they are produced: "
        if why is not None:
            reason = f"The rest waits for brokers. {clause(why.text)}. If the brokers are only slow, "
        error = BufferExhaustedError(
            f"Failed to allocate {size} bytes within max.block.ms (waited {max_wait_ms:.0f} ms): "
            f"{self.available} of buffer.memory's {self.total} bytes are free. {reason}raise buffer.memory or "
            "max.block.ms."
        )
        return error if why is None else why.attached_to(error)

    # The sender thread

    def returned(self, owed: _Owed) -> None:
        """Takes a grant back."""
        self._owed.discard(owed)
        self._free += owed.size

    def hold(self, size: int) -> None:
        """Counts ``size`` bytes as used by records or batches; negative: as free again."""
        self._free -= size

    def charge(self, batch: ProducerBatch, size: int) -> None:
        """Replace all that ``batch`` holds by ``size`` bytes of its own."""
        self._release(batch)
        self._free -= size
        batch.own_bytes = size

    def release(self, batches: Iterable[ProducerBatch]) -> None:
        """Free what the batches hold."""
        for batch in batches:
            self._release(batch)

    def serve(self) -> bool:
        """Serves the callers in line, then makes new grants. False if a caller waits for memory that is not free."""
        self._take_collected()
        while self._waiters:
            self._take_back()
            with suppress(LookupError, ValueError):  # its deadline has passed just now
                waiter = self._waiters[0]
                if waiter.size > self._free:
                    return False
                self._waiters.remove(waiter)
                self._free -= waiter.size
                waiter.grant = self._grant(waiter.size)
                waiter.notify_all()
        self._refill()
        return True

    def close(self, error: Exception) -> None:
        """Every wait, now and later, raises ``error``."""
        self._closed_by = error
        for waiter in self._waiters.copy():
            waiter.notify_all()

    def _take_back(self) -> None:
        with suppress(IndexError):  # callers take grants meanwhile
            while self._grants:
                self._grants.pop().give_back()
        self._take_collected()

    def _take_collected(self) -> None:
        while self._collected:
            self.returned(self._collected.popleft())

    def _grant(self, size: int) -> Grant:
        """A grant of bytes that ``_free`` no longer counts. Its collection calls a function in C, in which no signal
        handler can strike."""
        grant = Grant(self, size, self._collected.append)
        self._owed.add(grant.owed)  # a weak reference that goes before its object calls nothing
        return grant

    def _refill(self) -> None:
        while self._free >= self.grant_size and 2 * (len(self._grants) + 1) * self.grant_size <= self.total:
            self._free -= self.grant_size
            self._grants.append(self._grant(self.grant_size))

    def _release(self, batch: ProducerBatch) -> None:
        self._free += batch.own_bytes
        batch.own_bytes = 0
        shared, batch.shared_buffer = batch.shared_buffer, None
        if shared is not None:
            shared.users -= 1
            if not shared.users:
                self._free += shared.size
