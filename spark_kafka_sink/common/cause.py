"""``Cause``: what keeps something from its end. Timeouts and warnings say it, so that nobody has to guess.

``NetworkClient`` knows the cause of each node, ``Metadata`` those of topics and partitions, ``Calls`` those of calls,
and ``Sender`` those of batches, each by a method ``why_waiting(what, now)``, which any thread may call.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeVar

from spark_kafka_sink.errors import FailedStep, KafkaError, KafkaTimeoutError, clause

_Timeout = TypeVar("_Timeout", bound=KafkaTimeoutError)


class Cause(NamedTuple):
    """The ``text`` is a sentence or more, perhaps without the last full stop. ``error``: the one behind it, if any.

    ``failed_step``: the step, and the node, of a connection attempt that has had no response; otherwise the ``error``
    has it.
    """

    text: str
    error: KafkaError | None = None
    failed_step: FailedStep | None = None

    @classmethod
    def of(cls, error: KafkaError) -> Cause:
        return cls(str(error), error)

    def after(self, text: str) -> Cause:
        """The same cause, its text behind another sentence."""
        return self._replace(text=f"{clause(text)}. {self.text}")

    def attached_to(self, error: _Timeout) -> _Timeout:
        """The timeout with the error and the step behind it, so that ``diagnosis`` finds them."""
        error.__cause__, error.failed_step = self.error, self.failed_step
        return error


def timed_out(text: str, why: Cause | None) -> KafkaTimeoutError:
    """The error of something that has waited in vain: what it was, then why, unless ``text`` says so already."""
    if why is None:
        return KafkaTimeoutError(text)
    return why.attached_to(KafkaTimeoutError(text if why.text in text else why.after(text).text))


class Explains(Protocol):
    """The sender, for those of lower layers that wait for it."""

    def why_waiting(self, what: None, now: float) -> Cause | None:
        """What keeps the oldest rows from their acknowledgement; None if nothing is known."""
