"""Errors of planning a format, on the driver."""

from __future__ import annotations

import pickle

from spark_kafka_sink.errors import KafkaError


class FormatError(KafkaError, pickle.PickleError):
    """A column cannot be encoded as the options say. The message names column, schema and what to do.

    Spark passes a ``PickleError`` on unchanged, as planning runs while it pickles a writer.
    """
