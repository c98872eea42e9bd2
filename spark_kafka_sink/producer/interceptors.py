"""Code of the user's that sees each record on its way out and each acknowledgement on its way back (KIP-42)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from spark_kafka_sink.append.record import ProducerRecord, RecordMetadata

_log = logging.getLogger("spark_kafka_sink.producer")

_UNKNOWN = -1


class ProducerInterceptor(Protocol):
    """What a producer takes as ``interceptors``; a class may inherit what it does not need."""

    def configure(self, config: Mapping[str, object]) -> None:
        """Called once, before anything else, with the producer's options by Kafka's names."""
        return

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record to send instead, on the thread that sends, before it is serialized or given a partition."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """The record is in the log, or ``error`` says why not. On the sender thread: it must not block.

        Where ``send`` itself raises, on its caller's thread, as in Java. Of a failed record only topic and, if it had
        one, partition are known; the rest of ``metadata`` is -1.
        """
        return

    def close(self) -> None:
        """Called once, when the producer is closed."""
        return


class InterceptorChain:
    """Calls interceptors in their order. Whatever one raises is logged and stops neither the others nor the record."""

    def __init__(self, interceptors: Sequence[ProducerInterceptor] = ()) -> None:
        self._interceptors = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def configure(self, config: Mapping[str, object]) -> None:
        """What this raises is the caller's: a producer that cannot be configured is not made."""
        for each in self._interceptors:
            each.configure(config)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """What the last one made of it. After a failure the next one gets what the previous one gave."""
        for each in self._interceptors:
            try:
                changed = each.on_send(record)
                if not isinstance(changed, ProducerRecord):
                    raise TypeError(f"on_send must return a ProducerRecord, not {changed!r:.80}")
                record = changed
            except Exception:
                _log.warning(
                    "%s failed in on_send for topic %s; the record goes on without it",
                    type(each).__name__, record.topic, exc_info=True,
                )  # fmt: skip
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        for each in self._interceptors:
            _guarded(each, "on_acknowledgement", partial(each.on_acknowledgement, metadata, error))

    def on_send_error(self, record: ProducerRecord, error: Exception) -> None:
        """``send`` raised: the record never reached a batch (Java: ``ProducerInterceptors.onSendError``)."""
        partition = _UNKNOWN if record.partition is None else record.partition
        self.on_acknowledgement(RecordMetadata(record.topic, partition, _UNKNOWN, _UNKNOWN, _UNKNOWN, _UNKNOWN), error)

    def close(self) -> None:
        for each in self._interceptors:
            _guarded(each, "close", each.close)


def _guarded(interceptor: ProducerInterceptor, what: str, call: Callable[[], None]) -> None:
    try:
        call()
    except Exception:
        _log.warning("%s failed in %s", type(interceptor).__name__, what, exc_info=True)
