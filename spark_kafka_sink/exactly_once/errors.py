"""Errors of the exactly-once protocol."""

from __future__ import annotations

import pickle

from spark_kafka_sink.errors import KafkaError


class ExactlyOnceError(KafkaError):
    """Continuing would break the exactly-once guarantee. The message names the write, the batch and what to do."""


class PlanningError(ExactlyOnceError, pickle.PickleError):
    """An exactly-once write cannot be planned. A ``PickleError``, because Spark passes these on unchanged."""


class ReceiptsPathError(KafkaError, pickle.PickleError):
    """``receiptsPath`` cannot be written. A ``PickleError``, as ``PlanningError``."""


class ReplayMismatchError(ExactlyOnceError):
    """The replay of a batch has other rows, or another number of tasks, than the decided batch."""


class LostRowsError(ExactlyOnceError):
    """Rows of a decided batch are lost, because their transactions were aborted."""


class NotDecidedError(ExactlyOnceError):
    """A batch was not decided and will not be: the EndTxn of its intent was not sent, or the first one was refused."""
