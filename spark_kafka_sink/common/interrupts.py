"""Signal handlers that raise wait where a change must not be divided: ``with uninterrupted():``.

Ctrl-C and the timeouts of Airflow, Celery and pytest raise from a signal handler, between any two lines of the main
thread. The block puts a recorder in place of these handlers. When it ends, it restores them and runs each that was
recorded, once and in order; ``signal.siginterrupt`` of theirs is lost. On other threads, where Python runs no signal
handlers, it does nothing. An exception that another thread sets (``PyThreadState_SetAsyncExc``) still strikes.

It takes 3 to 10 µs, so it belongs around a slice of rows and not around a record. Waits in it (``Sleeper.wait``) and a
user's code (``interruptible``) let signals through.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # signal.getsignal takes 20 µs in CPython 3.11: it looks for an Enum
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import get_ident, main_thread
from types import FrameType
from typing import Final, TypeAlias

_NAMES = ("SIGINT", "SIGTERM", "SIGALRM", "SIGHUP", "SIGUSR1", "SIGUSR2")
_SIGNALS: Final[tuple[int, ...]] = tuple(getattr(_signal, name) for name in _NAMES if hasattr(_signal, name))

Handler: TypeAlias = Callable[[int, FrameType | None], object]


class _Shield:
    """The main thread's shield. A signal may still strike at each line that runs while it is not ``held``.

    A recorder that such a signal leaves in place calls the handler at once, and the next block removes it.
    """

    def __init__(self) -> None:
        self.raised = False
        """Whether an ``uninterrupted`` block has put the recorder in place."""
        self.held = False
        """Whether signals wait."""
        self._handlers: dict[int, Handler] = {}
        """The program's handlers that the recorder replaces."""
        self._recorded: deque[tuple[Handler, int, FrameType | None]] = deque()
        self._recorder = self._record

    def put_in_place(self) -> None:
        try:
            for number in _SIGNALS:
                handler = _signal.getsignal(number)
                if callable(handler) and handler is not self._recorder:
                    self._handlers[number] = handler
                    _signal.signal(number, self._recorder)
        except BaseException as error:
            self.remove()
            if not str(error).startswith("signal only works in main thread"):  # this is another interpreter
                raise

    def remove(self) -> None:
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
        try:
            while self._recorded:
                handler, number, frame = self._recorded.popleft()
                handler(number, frame)
        except BaseException:
            self.run_recorded()
            raise

    def _record(self, number: int, frame: FrameType | None) -> None:
        self._recorded.append((self._handlers[number], number, frame))
        if not self.held:
            self.run_recorded()


class _Uninterrupted:
    __slots__ = ("_held_before", "_outermost")

    def __enter__(self) -> None:
        self._outermost, self._held_before = not _shield.raised, _shield.held
        if self._outermost:
            _shield.put_in_place()
        _shield.raised = _shield.held = True

    def __exit__(self, *_error: object) -> None:
        try:
            _shield.raised, _shield.held = not self._outermost, self._held_before
            if self._outermost:
                _shield.remove()
        finally:
            if not self._held_before:
                _shield.run_recorded()


_shield: Final = _Shield()
_NOTHING: Final = nullcontext()


def uninterrupted() -> AbstractContextManager[None]:
    """In the block no signal handler runs on this thread; after it those run that would have. Blocks may be nested."""
    return _Uninterrupted() if get_ident() == main_thread().ident else _NOTHING


def interruptible() -> AbstractContextManager[None]:
    """Within an ``uninterrupted`` block: for a wait or for code of the user, which a signal may end at any line."""
    return _let_through() if _shield.held and get_ident() == main_thread().ident else _NOTHING


@contextmanager
def _let_through() -> Iterator[None]:
    try:
        _shield.held = False
        _shield.run_recorded()
        yield
    finally:
        _shield.held = True
