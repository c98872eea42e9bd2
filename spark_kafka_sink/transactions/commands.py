"""What the user of a transactional producer asks for, on its way to the sender thread."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from spark_kafka_sink.transactions.messages import Offsets
from spark_kafka_sink.transactions.states import Step
from spark_kafka_sink.transactions.values import ConsumerGroupMetadata, TransactionalIdentity


class CommandListener(Protocol):
    def answered(self, result: object, error: Exception | None) -> None:
        """Called once, on the sender thread (or on the thread that closes the producer). Must not block."""


@dataclass(frozen=True, slots=True, eq=False)
class Command:
    """``step`` is one of the user's calls. ``offsets`` and ``group`` go with SEND_OFFSETS, ``fence`` with ADOPT,
    ``transactional_id`` with INIT_AS.
    """

    step: Step
    listener: CommandListener
    offsets: Offsets = field(default_factory=dict)
    group: ConsumerGroupMetadata | None = None
    fence: TransactionalIdentity | None = None
    transactional_id: str | None = None
