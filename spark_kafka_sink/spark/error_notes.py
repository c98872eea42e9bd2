"""What the errors of a write get on their way to Spark: its names of options, and notes on what is behind them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import TaskContext

from spark_kafka_sink.errors import AuthenticationError, ConfigError, KafkaError, KafkaTimeoutError, RecordTooLargeError
from spark_kafka_sink.spark.dead_letters.options import DeadLetterOptions, Reason
from spark_kafka_sink.spark.option_names import with_prefix
from spark_kafka_sink.spark.options import SinkOptions

_log = logging.getLogger("spark_kafka_sink.spark")

_SETTINGS = "spark.kafka.clusters."
_ADVICE = (
    "are set, but the delegation tokens that Spark fetches for them are not available in Python workers, so this sink "
    "cannot use them: set kafka.sasl.mechanism and kafka.sasl.jaas.config."
)
_warned = False


_TOO_LARGE = "Raise {}, or {}, so that such rows become dead letters."
_OWN_LIMIT = "that limit (for kafka.max.request.size also the topic's max.message.bytes)"
_BROKERS_LIMIT = "the topic's max.message.bytes"


@contextmanager
def explained(options: SinkOptions) -> Iterator[None]:
    """An error names the producer's options as Spark's, with ``kafka.``. One that comes from a failed connection
    attempt gets a note: step, option, and the command to check it; a record that is too large, or a topic that the
    brokers do not have, what helps.
    """
    try:
        yield
    except KafkaError as error:
        from spark_kafka_sink.network.diagnosis import check_command, diagnosis
        from spark_kafka_sink.producer.append.receipt import is_refusal

        if isinstance(error, ConfigError):
            error.faults = tuple(with_prefix(fault, error) for fault in error.faults)
        if error.args:
            error.args = (with_prefix(str(error.args[0]), error), *error.args[1:])
        refused = is_refusal(error)
        if (refused or isinstance(error, RecordTooLargeError)) and (remedy := _remedy(options.dead_letters)):
            error.add_note(_TOO_LARGE.format(_BROKERS_LIMIT if refused else _OWN_LIMIT, remedy))
        if isinstance(error, KafkaTimeoutError) and error.missing_topic is not None:
            from spark_kafka_sink.spark.topic_creation import note_on_missing

            if note := note_on_missing(error.missing_topic, options):
                error.add_note(note)
        if note := diagnosis(error, check_command(options.producer, options.topic)):
            error.add_note(with_prefix(note, error))
        raise


def _remedy(letters: DeadLetterOptions | None) -> str:
    if letters is None:
        return "set deadLetterTopic"
    name = Reason.RECORD_TOO_LARGE.value
    return "" if Reason.RECORD_TOO_LARGE in letters.reasons else f"add {name} to deadLetterOn"


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
