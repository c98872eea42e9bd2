"""Faults by functions: what to do to which requests, once by default.

>>> broker.faults.answer("Produce", "NOT_LEADER_OR_FOLLOWER", topic="t")          # one response
>>> broker.faults.drop_after("Produce", times=2)                                  # appended, no response, twice
>>> slow = broker.faults.delay("Metadata", 200, times=KEPT)                       # until slow.remove()

A request takes at most one fault of each kind, the oldest that fits: two ``answer`` faults meet two requests, while a
``delay`` and a ``drop_after`` meet the same request. The test's thread adds and removes faults, the broker's thread
takes them. The list is replaced, never changed, so no lock is needed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypedDict, Unpack

from kio.schema.errors import ErrorCode

from spark_kafka_sink.testing.broker.wire import ReceivedRequest

KEPT: Final = None
"""``times=KEPT``: the fault stays until it is removed."""


class FaultType(Enum):
    """The types of faults, in the order in which they act on one request."""

    RUN = "run"
    DELAY = "delay"
    DROP_BEFORE = "drop before"
    ANSWER = "answer"
    DELAY_ANSWER = "delay answer"
    DROP_AFTER = "drop after"
    LOSE_ANSWER = "lose answer"
    THROTTLE = "throttle"
    MANGLE = "mangle"
    CUT = "cut"
    REORDER = "reorder"


class Scope(TypedDict, total=False):
    """The requests that a fault meets. Every function of ``Faults`` takes these arguments by name.

    ``node``: only requests at this node. ``only``: only requests for which this function is true (it runs on the
    broker's thread). ``times``: the number of requests, 1 by default, ``KEPT`` for all until the fault is removed.
    """

    node: int | None
    only: Callable[[ReceivedRequest], bool] | None
    times: int | None


class PartitionScope(Scope, total=False):
    """The partitions that an ``answer`` meets: only this topic, and only this partition of it."""

    topic: str | None
    partition: int | None


@dataclass(eq=False, slots=True)
class Fault:
    """One fault in the script. ``hits`` counts the requests it met."""

    kind: FaultType
    api: str
    amount: int = 0
    error: ErrorCode = ErrorCode.none
    change: Callable[[bytes], bytes] | None = None
    action: Callable[[], object] | None = None
    topic: str | None = None
    partition: int | None = None
    node: int | None = None
    only: Callable[[ReceivedRequest], bool] | None = None
    times: int | None = 1
    hits: int = 0
    _hit: threading.Event = field(default_factory=threading.Event)

    @property
    def is_spent(self) -> bool:
        return self.times is not None and self.hits >= self.times

    def fits(self, request: ReceivedRequest) -> bool:
        return (
            self.api == request.api
            and not self.is_spent
            and self.node in (None, request.node)
            and (self.only is None or self.only(request))
        )

    def fits_partition(self, topic: str | None, partition: int | None) -> bool:
        return self.topic in (None, topic) and self.partition in (None, partition)

    def take(self) -> None:
        self.hits += 1
        self._hit.set()

    def remove(self) -> None:
        """Let the fault meet no more requests."""
        self.times = 0

    def wait(self, timeout_s: float = 60.0) -> None:
        """Wait until the fault has met its first request. Raises ``TimeoutError`` if none comes."""
        if not self._hit.wait(timeout_s):
            raise TimeoutError(f"no {self.api} request met the fault {self.kind.value!r} within {timeout_s} s")


class Faults:
    """The script of one broker. ``apis``: the names of the APIs that it handles."""

    def __init__(self, apis: Collection[str]) -> None:
        self._apis = apis
        self._faults: tuple[Fault, ...] = ()

    def answer(self, api: str, error: str | int | ErrorCode, **scope: Unpack[PartitionScope]) -> Fault:
        """Respond ``error`` (Kafka's name or number) instead of handling the request."""
        return self._add(Fault(FaultType.ANSWER, api, error=error_code(error), **scope))

    def drop_before(self, api: str, **scope: Unpack[Scope]) -> Fault:
        """Close the connection instead of handling the request."""
        return self._add(Fault(FaultType.DROP_BEFORE, api, **scope))

    def drop_after(self, api: str, **scope: Unpack[Scope]) -> Fault:
        """Handle the request, then close the connection instead of responding."""
        return self._add(Fault(FaultType.DROP_AFTER, api, **scope))

    def lose_answer(self, api: str, **scope: Unpack[Scope]) -> Fault:
        """Handle the request, never respond, keep the connection open: the client must apply request.timeout.ms."""
        return self._add(Fault(FaultType.LOSE_ANSWER, api, **scope))

    def delay(self, api: str, ms: int, **scope: Unpack[Scope]) -> Fault:
        """Let a handler of the pool wait ``ms`` before it handles the request."""
        return self._add(Fault(FaultType.DELAY, api, amount=ms, **scope))

    def delay_answer(self, api: str, ms: int, **scope: Unpack[Scope]) -> Fault:
        """Handle the request at once and respond ``ms`` later."""
        return self._add(Fault(FaultType.DELAY_ANSWER, api, amount=ms, **scope))

    def cut(self, api: str, after_bytes: int, **scope: Unpack[Scope]) -> Fault:
        """Send only the first bytes of the response's frame (4 are its length), then close the connection."""
        return self._add(Fault(FaultType.CUT, api, amount=after_bytes, **scope))

    def reorder(self, api: str, **scope: Unpack[Scope]) -> Fault:
        """Hold the response back and send it after the connection's next response, which no real broker does."""
        return self._add(Fault(FaultType.REORDER, api, **scope))

    def throttle(self, api: str, ms: int, **scope: Unpack[Scope]) -> Fault:
        """Respond at once with ``throttle_time_ms``, then read nothing from the connection for that time (KIP-219).

        As for a client over its quota, a Fetch response has no topics; every other request is handled and gets a full
        response.
        """
        return self._add(Fault(FaultType.THROTTLE, api, amount=ms, **scope))

    def mangle(self, api: str, change: Callable[[bytes], bytes], **scope: Unpack[Scope]) -> Fault:
        """Send ``change(frame)`` instead of the response's frame: any bytes of a hostile broker."""
        return self._add(Fault(FaultType.MANGLE, api, change=change, **scope))

    def run(self, api: str, action: Callable[[], object], **scope: Unpack[Scope]) -> Fault:
        """Call ``action`` on the broker's thread just before the request is handled: move a leader, kill a node."""
        return self._add(Fault(FaultType.RUN, api, action=action, **scope))

    def clear(self) -> None:
        """Take every fault out of the script."""
        self._faults = ()

    def take(self, kind: FaultType, request: ReceivedRequest) -> Fault | None:
        """The oldest fault of this kind that fits, counted as met. Broker's thread only."""
        for fault in self._faults:
            if fault.kind is kind and fault.fits(request):
                fault.take()
                return fault
        return None

    def answers(self, request: ReceivedRequest) -> tuple[Fault, ...]:
        """The ``answer`` faults that may meet this request. The caller calls ``take`` of the fault that it applies."""
        return tuple(fault for fault in self._faults if fault.kind is FaultType.ANSWER and fault.fits(request))

    def _add(self, fault: Fault) -> Fault:
        if fault.api not in self._apis:
            raise ValueError(f"{fault.api!r} is not an API of TestBroker; it has {', '.join(sorted(self._apis))}")
        self._faults = (*(fault for fault in self._faults if not fault.is_spent), fault)
        return fault


def error_code(error: str | int | ErrorCode) -> ErrorCode:
    """The error code by Kafka's name (any case), by its number, or kio's own."""
    if isinstance(error, str):
        try:
            return ErrorCode[error.lower()]
        except KeyError:
            raise ValueError(f"{error!r} is not the name of a Kafka error") from None
    return ErrorCode(error)
