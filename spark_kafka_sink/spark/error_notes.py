"""Notes that the errors of a write get: the connection attempt behind them, and Spark's delegation tokens."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import TaskContext

from spark_kafka_sink.errors import AuthenticationError, KafkaError
from spark_kafka_sink.spark.options import SinkOptions

_log = logging.getLogger("spark_kafka_sink.spark")

_SETTINGS = "spark.kafka.clusters."
_ADVICE = (
    "are set, but the delegation tokens that Spark fetches for them are not available in Python workers, so this sink "
    "cannot use them: set kafka.sasl.mechanism and kafka.sasl.jaas.config."
)
_warned = False


@contextmanager
def connection_explained(options: SinkOptions) -> Iterator[None]:
    """An error that comes from a failed connection attempt gets a note: step, option, and the command to check it."""
    try:
        yield
    except KafkaError as error:
        from spark_kafka_sink.network.diagnosis import check_command, diagnosis

        if note := diagnosis(error, check_command(options.producer, options.topic)):
            error.add_note(note)
        raise


@contextmanager
def delegation_tokens_explained() -> Iterator[None]:
    """Around a task's work. With such settings, an authentication error gets a note; else the worker warns once."""
    global _warned
    settings = _token_settings()
    try:
        yield
    except KafkaError as error:
        if settings and (isinstance(error, AuthenticationError) or isinstance(error.__cause__, AuthenticationError)):
            _warned = True
            error.add_note(f"{', '.join(settings)} {_ADVICE}")
        raise
    if settings and not _warned:
        _warned = True
        _log.warning("%s %s", ", ".join(settings), _ADVICE)


def _token_settings() -> list[str]:
    """Spark copies all settings of a session into its tasks' local properties."""
    context = TaskContext.get()
    properties = getattr(context, "_localProperties", None) or {}
    return sorted(name for name in properties if name.startswith(_SETTINGS))
