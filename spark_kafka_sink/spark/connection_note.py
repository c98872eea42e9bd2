"""What an error of a write tells about the connection attempt behind it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.spark.options import SinkOptions


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
