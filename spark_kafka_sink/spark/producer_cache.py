"""One producer per configuration in a Python worker, kept from one micro-batch to the next.

As Spark's own sink does in its JVM (``InternalKafkaProducerPool``). Nothing depends on a producer being kept: a worker
may end after any task.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Generic, NamedTuple, Protocol, TypeVar

from spark_kafka_sink.clock import SystemClock
from spark_kafka_sink.config import ProducerConfig

IDLE_MS = 600_000.0
"""Time an unused producer is kept: the default of Spark's ``spark.kafka.producer.cache.timeout``."""


class Closable(Protocol):
    """What the cache needs to know of a producer."""

    def is_alive(self) -> bool: ...

    def close(self, timeout_ms: float) -> None: ...


P = TypeVar("P", bound=Closable)


class _Idle(NamedTuple, Generic[P]):
    """A producer nobody has leased; ``until``: when it is closed (monotonic ms)."""

    producer: P
    until: float


class ProducerCache(Generic[P]):
    """Keeps what ``open_producer`` opens. Any thread may lease; a leased producer belongs to its task alone.

    One thread closes what is idle for too long. It wakes when the first may be due, so that a task starts none and
    wakes none, and ends when nothing is kept.
    """

    def __init__(self, open_producer: Callable[[ProducerConfig], P], idle_ms: float = IDLE_MS) -> None:
        self._open_producer = open_producer
        self._idle_ms = idle_ms
        self._clock = SystemClock()
        self._abandoned: list[Mapping[ProducerConfig, _Idle[P]]] = []
        self._begin()
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self.close)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[ProducerConfig, _Idle[P]] = {}
        self._expiring: threading.Thread | None = None
        self._closed = threading.Event()

    @contextmanager
    def leased(self, config: ProducerConfig) -> Iterator[P]:
        """A living producer for the time of the block.

        A block that fails may leave batches behind that nobody waits for; the next task must not send them, so the
        producer is closed at once and not kept.
        """
        producer = self._lease(config)
        try:
            yield producer
        except BaseException:
            producer.close(0)
            raise
        self._give_back(config, producer)

    def close(self) -> None:
        """Closes what is kept. A leased producer is closed when its block ends."""
        with self._lock:
            self._closed.set()
            kept, self._idle = self._idle, {}
        for idle in kept.values():
            idle.producer.close(0)

    def _lease(self, config: ProducerConfig) -> P:
        with self._lock:
            idle = self._idle.pop(config, None)
        if idle is not None and idle.producer.is_alive():
            return idle.producer
        if idle is not None:
            idle.producer.close(0)
        return self._open_producer(config)

    def _give_back(self, config: ProducerConfig, producer: P) -> None:
        with self._lock:
            kept = not self._closed.is_set() and config not in self._idle
            if kept:
                self._idle[config] = _Idle(producer, self._clock.now() + self._idle_ms)
                if self._expiring is None:
                    self._expiring = threading.Thread(target=self._expire, name="pykafka-producer-cache", daemon=True)
                    self._expiring.start()
        if not kept:  # another task returned its own meanwhile
            producer.close(0)

    def _expire(self) -> None:
        """On the thread of its own, from the first producer kept to the last."""
        wait_ms = self._idle_ms
        while not self._closed.wait(wait_ms / 1000):
            with self._lock:
                now = self._clock.now()
                due = [config for config, idle in self._idle.items() if idle.until <= now]
                expired = [self._idle.pop(config) for config in due]
                if not self._idle:
                    self._expiring = None
                wait_ms = min((idle.until for idle in self._idle.values()), default=now) - now
            for idle in expired:
                idle.producer.close(0)
            if not wait_ms:
                return

    def _forget(self) -> None:
        """In the child of a fork. What was kept is the parent's, sockets and thread; so may the lock be, held."""
        self._abandoned.append(self._idle)  # without a reference their finalisers would run on the parent's sockets
        self._begin()
