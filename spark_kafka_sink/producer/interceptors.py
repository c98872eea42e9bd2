"""``ProducerInterceptor``: the user's code that sees each record before it is sent and its acknowledgement (KIP-42)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.rules import check_given, instance
from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.producer.partitioner import Plugin
from spark_kafka_sink.producer.record import ProducerRecord, RecordMetadata

_log = logging.getLogger("spark_kafka_sink.producer")

_UNKNOWN = -1


class ProducerInterceptor(Plugin, Protocol):
    """An item of ``KafkaProducer(interceptors=…)``, or a class that ``interceptor.classes`` names.

    A class may inherit the methods it does not need.
    """

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Returns the record to send instead. Called on the caller's thread, before serializers and partitioner."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """Called when the record is in the log, or failed with ``error``. Runs on the sender thread, so it must not
        block.

        When ``send`` itself raises, it is called on the caller's thread, as in Java. ``metadata`` of a failed record
        has its topic and its partition, -1 if none was chosen yet; the rest is -1.
        """
        return


class InterceptorChain:
    """Calls interceptors in order; logs an exception of one and goes on (Java: ``ProducerInterceptors``)."""

    def __init__(self, interceptors: Sequence[ProducerInterceptor] = ()) -> None:
        self._interceptors = tuple(interceptors)

    @classmethod
    def load(cls, config: ProducerConfig, given: Sequence[ProducerInterceptor]) -> InterceptorChain:
        """Instances of the classes that ``config`` names, then those ``given``. Raises ``ConfigError``."""
        if not isinstance(given, Iterable):
            raise ConfigError([f"interceptors must be a list of ProducerInterceptors, not {given!r:.80}."])
        option, base = "interceptor.classes", "ProducerInterceptor"
        methods = ("configure", "on_send", "on_acknowledgement", "close")
        given = [*given]
        for each in given:
            check_given("interceptors", each, methods, base)
        return cls([*(instance(option, name, methods, base) for name in config.interceptor_classes), *given])

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def configure(self, config: Mapping[str, object]) -> None:
        """Configures the interceptors. Raises an interceptor's error, so that no producer is made."""
        for interceptor in self._interceptors:
            interceptor.configure(config)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record after all interceptors. Each gets the record that the one before it returned; an interceptor that
        fails is skipped."""
        for interceptor in self._interceptors:
            try:
                changed = interceptor.on_send(record)
                if not isinstance(changed, ProducerRecord):
                    raise TypeError(f"on_send must return a ProducerRecord, not {changed!r:.80}")
                record = changed
            except Exception:
                _log.warning(
                    "%s failed in on_send for topic %s; the record is sent without it",
                    type(interceptor).__name__, record.topic, exc_info=True,
                )  # fmt: skip
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        for interceptor in self._interceptors:
            with _errors_logged(interceptor, "on_acknowledgement"):
                interceptor.on_acknowledgement(metadata, error)

    def on_send_error(self, record: ProducerRecord, error: Exception, partition: int | None = None) -> None:
        """Called when the record failed, in ``send`` or later (Java: ``ProducerInterceptors.onSendError``).
        ``partition``: its batch's; None if it reached no batch.
        """
        if partition is None:
            partition = _UNKNOWN if record.partition is None else record.partition
        self.on_acknowledgement(RecordMetadata(record.topic, partition, _UNKNOWN, _UNKNOWN, _UNKNOWN, _UNKNOWN), error)

    def close(self) -> None:
        for interceptor in self._interceptors:
            with _errors_logged(interceptor, "close"):
                interceptor.close()


@contextmanager
def _errors_logged(interceptor: ProducerInterceptor, method: str) -> Iterator[None]:
    try:
        yield
    except Exception:
        _log.warning("%s failed in %s", type(interceptor).__name__, method, exc_info=True)
