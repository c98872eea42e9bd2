"""``Cause``: the reason why something has not ended yet, for timeouts and warnings. ``NetworkClient`` knows the causes
of nodes, ``Metadata`` of topics and partitions, ``Calls`` of calls, and ``Sender`` of batches, each by a method
``why_waiting(what, now)``, which any thread may call.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeVar

from spark_kafka_sink.errors import FailedStep, KafkaError, KafkaTimeoutError, clause

_Timeout = TypeVar("_Timeout", bound=KafkaTimeoutError)


class Cause(NamedTuple):
    """A cause. ``text``: one or more sentences, perhaps without the last full stop. ``error``: the error behind it, if
    any. ``failed_step``: the step, and the node, of a connection attempt that has had no response; otherwise the
    ``error`` has it.
    """

    text: str
    error: KafkaError | None = None
    failed_step: FailedStep | None = None

    @classmethod
    def of(cls, error: KafkaError) -> Cause:
        return cls(str(error), error)

    def after(self, text: str) -> Cause:
        """The same cause, with its text after another sentence."""
        return self._replace(text=f"{clause(text)}. {self.text}")

    def attached_to(self, error: _Timeout) -> _Timeout:
        """The timeout with this cause's error and step, so that ``diagnosis`` finds them."""
        error.__cause__, error.failed_step = self.error, self.failed_step
        return error


def timed_out(text: str, why: Cause | None) -> KafkaTimeoutError:
    """The error of a wait that timed out: ``text``, then the cause, unless ``text`` has it already."""
    if why is None:
        return KafkaTimeoutError(text)
    return why.attached_to(KafkaTimeoutError(text if why.text in text else why.after(text).text))


class Explains(Protocol):
    """The sender, as lower layers that wait for it see it."""

    def why_waiting(self, what: None, now: float) -> Cause | None:
        """The cause why the oldest rows are not acknowledged yet; None if nothing is known."""
