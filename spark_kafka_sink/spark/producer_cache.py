"""One producer per configuration in a Python worker, kept from one micro-batch to the next.

As Spark's own sink does in its JVM (``InternalKafkaProducerPool``). Nothing depends on a producer being kept: a worker
may end after any task.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from spark_kafka_sink.config import ProducerConfig

IDLE_MS = 600_000.0
"""Time an unused producer is kept: the default of Spark's ``spark.kafka.producer.cache.timeout``."""


class Closable(Protocol):
    """What the cache needs to know of a producer."""

    def is_alive(self) -> bool: ...

    def close(self, timeout_ms: float) -> None: ...


P = TypeVar("P", bound=Closable)


class ProducerCache(Generic[P]):
    """Keeps what ``open_producer`` opens. Any thread may lease; a leased producer belongs to its task alone."""

    def __init__(self, open_producer: Callable[[ProducerConfig], P], idle_ms: float = IDLE_MS) -> None:
        self._open_producer = open_producer
        self._idle_ms = idle_ms
        self._lock = threading.Lock()
        self._idle: dict[ProducerConfig, tuple[P, threading.Timer]] = {}
        self._closed = False
        self._abandoned: list[dict[ProducerConfig, tuple[P, threading.Timer]]] = []
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self.close)

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
            self._closed = True
            kept, self._idle = self._idle, {}
        for producer, timer in kept.values():
            timer.cancel()
            producer.close(0)

    def _lease(self, config: ProducerConfig) -> P:
        with self._lock:
            producer, timer = self._idle.pop(config, (None, None))
        if timer is not None:
            timer.cancel()
        if producer is not None and not producer.is_alive():
            producer.close(0)
            producer = None
        return self._open_producer(config) if producer is None else producer

    def _give_back(self, config: ProducerConfig, producer: P) -> None:
        timer = threading.Timer(self._idle_ms / 1000, self._expire, (config, producer))
        timer.daemon = True
        with self._lock:
            kept = not self._closed and config not in self._idle
            if kept:
                self._idle[config] = (producer, timer)
        if kept:
            timer.start()
        else:  # another task returned its own meanwhile
            producer.close(0)

    def _expire(self, config: ProducerConfig, producer: P) -> None:
        """On the timer's thread. A lease may have come first: then the producer is not idle any more."""
        with self._lock:
            expired = self._idle.get(config, (None, None))[0] is producer
            if expired:
                del self._idle[config]
        if expired:
            producer.close(0)

    def _forget(self) -> None:
        """In the child of a fork. What was kept is the parent's, sockets and timers; so may the lock be, held."""
        self._abandoned.append(self._idle)  # without a reference their finalisers would run on the parent's sockets
        self._lock = threading.Lock()
        self._idle = {}
        self._closed = False
