"""What the exactly-once protocol refuses."""

from __future__ import annotations

import pickle

from spark_kafka_sink.errors import KafkaError


class ExactlyOnceError(KafkaError):
    """The guarantee cannot be kept by going on. The message names batch, partitions, name and what to do."""


class PlanningError(ExactlyOnceError, pickle.PickleError):
    """Raised while a writer is pickled for its tasks: Spark passes a ``PickleError`` on as it is."""


class ReceiptsPathError(KafkaError, pickle.PickleError):
    """receiptsPath cannot be written. Raised as ``PlanningError`` is."""


class ReplayMismatchError(ExactlyOnceError):
    """A replayed batch does not cut its rows as before, so what is missing of it cannot be told."""


class LostRowsError(ExactlyOnceError):
    """Prepared transactions of a decided batch are gone, and with them their rows."""


class NotDecidedError(ExactlyOnceError):
    """A decision whose EndTxn was never sent."""
