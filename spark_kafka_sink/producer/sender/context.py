"""``SenderContext``: the objects that the sender works on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from spark_kafka_sink.common.backoff import ExponentialBackoff
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.network.calls import Calls
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.metadata import Metadata
from spark_kafka_sink.producer.accumulator.accumulator import RecordAccumulator
from spark_kafka_sink.producer.sender.caller_calls import CallerCalls
from spark_kafka_sink.producer.transactions.manager import TransactionManager
from spark_kafka_sink.producer.transactions.sequences import Sequences


class Pending(Protocol):
    """Records of ``send`` that are not in the accumulator yet (``append.pending``)."""

    def publish_due(self, now: float) -> float:
        """Append those whose linger.ms is over; returns when the next are due (monotonic ms)."""

    def abort(self, error: KafkaError) -> None:
        """Fail all of them."""


@dataclass(frozen=True, slots=True)
class SenderContext:
    """The objects a sender works on. ``transactions``: None without transactional.id. ``soon``: the backoff while the
    coordinator completes the previous transaction.
    """

    accumulator: RecordAccumulator
    metadata: Metadata
    client: NetworkClient
    calls: Calls
    backoff: ExponentialBackoff
    soon: ExponentialBackoff
    sequences: Sequences
    pending: Pending
    caller_calls: CallerCalls
    transactions: TransactionManager | None = None
