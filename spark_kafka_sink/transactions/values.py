"""What names a transaction to other processes, and the offsets that go with one: plain frozen values, picklable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.model import ProducerIdentity

END_TXN_V1: Final = 3
"""EndTxn of the first transaction protocol; version 4 says the same, so every broker can be asked with this one."""

END_TXN_V2: Final = 5
"""EndTxn of the second one (KIP-890): the answer carries the producer id and epoch of the next transaction."""

TRANSACTION_VERSION_FEATURE: Final = "transaction.version"
"""The cluster's finalized feature that chooses the protocol: KIP-890's from level 2 on."""


@dataclass(frozen=True, slots=True)
class TransactionalIdentity:
    """A transactional id with the producer id and epoch InitProducerId gave for it: whoever held it before is fenced.

    ``end_txn_version`` is 5 where the cluster has finalized ``transaction.version`` 2 (KIP-890), else 3: transactions
    under this fence are ended with it.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    end_txn_version: int

    @property
    def identity(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.epoch)


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """A transaction whose records are all in the log and that is still open. Any process may commit or abort it, until
    ``transaction.timeout.ms`` has passed since its first record, or until somebody initialises the id again.

    ``end_txn_version`` is the version of EndTxn to use for it, in every attempt: a retry in another version fails.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    end_txn_version: int

    @property
    def identity(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.epoch)


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """The offset of the next record to read, as a consumer commits it. ``leader_epoch`` -1: not known."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """Who reads what a transaction consumes. With the defaults zombies of the group's members are not fenced (KIP-447).

    ``generation_id`` and ``member_id`` are the consumer's, ``group_instance_id`` that of a static member.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
