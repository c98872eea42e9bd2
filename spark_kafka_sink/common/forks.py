"""Forks: a child inherits objects that it must not use, because threads and connections stay with its parent.

The hook costs nothing until a process forks: no call asks for the process id.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet

from spark_kafka_sink.errors import ProducerClosedError


class Inheritable(Protocol):
    def after_fork_in_child(self) -> None:
        """Called in the child, on its only thread. Locks may be held for ever, because the threads that hold them are
        not in the child."""


_inheritable: WeakSet[Inheritable] = WeakSet()

generation = 0
"""The number of forks between the first process and this one. An object of an earlier generation is inherited."""


def on_fork(inheritable: Inheritable) -> None:
    """Registers an object, whose ``after_fork_in_child`` is called in each child of this process as long as the object
    exists."""
    _inheritable.add(inheritable)


def inherited_error() -> ProducerClosedError:
    """The error for every use of an inherited producer."""
    return ProducerClosedError(
        "This producer belongs to the parent process, which opened it before the fork and goes on using it. "
        "Open a new producer in this process."
    )


def pickling_error(producer: object) -> TypeError:
    """The error for a copy to another process, which Spark makes of everything that a function refers to."""
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
