"""Signal handlers that raise wait where a change must not be divided: ``with uninterrupted():``.

Ctrl-C and the timeouts of Airflow, Celery and pytest raise from a signal handler, between any two lines of the main
thread. The block puts a recorder in place of these handlers. When it ends, it restores them and runs each that was
recorded, once and in order; ``signal.siginterrupt`` of theirs is lost. On other threads, where Python runs no signal
handlers, it does nothing. An exception that another thread sets (``PyThreadState_SetAsyncExc``) still strikes.

It takes 4 to 12 µs, so it belongs around a slice of rows and not around a record. Waits in it (``Sleeper.wait``) and a
user's code are ``interruptible``: they run with the program's own handlers.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # signal.getsignal takes 20 µs in CPython 3.11: it looks for an Enum
import os
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from threading import get_ident, main_thread
from types import FrameType
from typing import Final, Protocol, TypeAlias
from weakref import WeakSet

from spark_kafka_sink.errors import ProducerClosedError

_NAMES = ("SIGINT", "SIGTERM", "SIGALRM", "SIGHUP", "SIGUSR1", "SIGUSR2")
_SIGNALS: Final[tuple[int, ...]] = tuple(getattr(_signal, name) for name in _NAMES if hasattr(_signal, name))

Handler: TypeAlias = Callable[[int, FrameType | None], object]


class _Shield:
    """The main thread's shield. A signal may strike at each line that runs while it is not in place."""

    def __init__(self) -> None:
        self._handlers: dict[int, Handler] = {}
        """The program's handlers that the recorder replaces now."""
        self._recorded: deque[tuple[Handler, int, FrameType | None]] = deque()
        self._recorder = self._record

    @property
    def in_place(self) -> bool:
        return bool(self._handlers)

    def put_in_place(self) -> None:
        try:
            for number in _SIGNALS:
                handler = _signal.getsignal(number)
                if callable(handler):
                    self._handlers[number] = handler
                    _signal.signal(number, self._recorder)
        except BaseException as error:
            try:
                self.remove()
            finally:
                self.run_recorded()
            if not str(error).startswith("signal only works in main thread"):  # this is another interpreter
                raise

    def remove(self) -> None:
        """Has no effect if it is not in place."""
        try:
            while self._handlers:
                number, handler = next(iter(self._handlers.items()))
                if _signal.getsignal(number) is self._recorder:
                    _signal.signal(number, handler)
                del self._handlers[number]
        except BaseException:
            self.remove()
            raise

    def run_recorded(self) -> None:
        """Raises what the last of the handlers has raised, with that of an earlier one as its context."""
        raised: BaseException | None = None
        try:
            while self._recorded:
                try:
                    handler, number, frame = self._recorded.popleft()
                    handler(number, frame)
                except BaseException as error:
                    if error is not raised and error.__context__ is None:
                        error.__context__ = raised
                    raised = error
        except BaseException:  # of a signal that struck between two of these lines
            self.run_recorded()
            raise
        if raised is not None:
            raise raised

    def after_fork_in_child(self) -> None:
        """Another thread may have forked while this process's main thread, which the child lacks, was in a block."""
        self._recorded.clear()
        self.remove()

    def _record(self, number: int, frame: FrameType | None) -> None:
        self._recorded.append((self._handlers[number], number, frame))


class _Uninterrupted:
    __slots__ = ("_outermost",)

    def __enter__(self) -> None:
        self._outermost = not _shield.in_place
        if self._outermost:
            _shield.put_in_place()

    def __exit__(self, *_error: object) -> None:
        if self._outermost:
            try:
                _shield.remove()
            finally:
                _shield.run_recorded()


class _Interruptible:
    """A signal that strikes as the block ends leaves the shield off, so what undoes the work has a block of its own."""

    __slots__ = ("_lifted",)

    def __enter__(self) -> None:
        self._lifted = _shield.in_place
        if self._lifted:
            try:
                _shield.remove()
                _shield.run_recorded()
            except BaseException:
                _shield.put_in_place()
                raise

    def __exit__(self, *_error: object) -> None:
        if self._lifted:
            _shield.put_in_place()


_shield: Final = _Shield()
_NOTHING: Final = nullcontext()
os.register_at_fork(after_in_child=_shield.after_fork_in_child)


def uninterrupted() -> AbstractContextManager[None]:
    """In the block no signal handler runs on this thread; after it those run that would have. Blocks may be nested."""
    return _Uninterrupted() if get_ident() == main_thread().ident else _NOTHING


def interruptible() -> AbstractContextManager[None]:
    """Within an ``uninterrupted`` block: for a wait or for code of the user, which a signal may end at any line."""
    return _Interruptible() if _shield.in_place and get_ident() == main_thread().ident else _NOTHING


# What the child of a fork inherits and must not use: threads and connections stay with its parent. The hook costs
# nothing until a process forks: no call asks for the process id.


class Inheritable(Protocol):
    def after_fork_in_child(self) -> None:
        """Called in the child, on its only thread. Locks may be held for ever, by threads that the child lacks."""


_inheritable: WeakSet[Inheritable] = WeakSet()

generation = 0
"""Number of forks between the first process and this one. An object of an earlier generation is inherited."""


def on_fork(inheritable: Inheritable) -> None:
    """Has its ``after_fork_in_child`` called in each child of this process, for as long as the object exists."""
    _inheritable.add(inheritable)


def inherited_error() -> ProducerClosedError:
    """The one error of every use of an inherited producer."""
    return ProducerClosedError(
        "This producer belongs to the parent process, which opened it before the fork and goes on using it. "
        "Open a new producer in this process."
    )


def pickling_error(producer: object) -> TypeError:
    """The error of a copy to another process, as Spark makes one of what a function refers to."""
    name = type(producer).__name__
    return TypeError(
        f"A {name} cannot be pickled, because its connections belong to this process. In Spark, write with "
        f'df.write.format("pykafka"), or open a {name} in the function that runs there, as in foreachPartition.'
    )


def _in_child() -> None:
    global generation
    generation += 1
    for item in tuple(_inheritable):
        item.after_fork_in_child()


os.register_at_fork(after_in_child=_in_child)
