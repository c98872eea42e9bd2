"""Errors of the exactly-once protocol."""

from __future__ import annotations

import pickle

from spark_kafka_sink.errors import KafkaError


class ExactlyOnceError(KafkaError):
    """Going on would break the guarantee. The message names batch, partitions, name and what to do."""


class PlanningError(ExactlyOnceError, pickle.PickleError):
    """Raised while Spark pickles a writer: Spark passes a ``PickleError`` on unchanged."""


class ReceiptsPathError(KafkaError, pickle.PickleError):
    """receiptsPath cannot be written. Raised while Spark pickles a writer, as ``PlanningError``."""


class ReplayMismatchError(ExactlyOnceError):
    """A replayed batch has other rows, or other tasks, than the decided one."""


class LostRowsError(ExactlyOnceError):
    """Rows of a decided batch are lost, because their transactions were aborted."""


class NotDecidedError(ExactlyOnceError):
    """The EndTxn of a decision was never sent."""
