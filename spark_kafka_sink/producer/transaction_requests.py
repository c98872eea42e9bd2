"""The requests of a transactional producer with the places of error codes in their responses, and the values in them:
identities, prepared transactions and consumer offsets, all frozen and picklable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import ModuleType
from typing import Any, Final

from spark_kafka_sink.common.model import (
    LARGEST_INT16,
    LARGEST_INT32,
    LARGEST_INT64,
    NO_IDENTITY,
    NO_LEADER_EPOCH,
    ProducerIdentity,
    TopicPartition,
    check_number,
    check_text,
)
from spark_kafka_sink.network.api_versions import (
    END_TXN_OF_TRANSACTIONS_V1,
    END_TXN_OF_TRANSACTIONS_V2,
    INIT_PRODUCER_ID,
    INIT_PRODUCER_ID_FIRST_WITH_IDENTITY,
    INIT_PRODUCER_ID_WITH_IDENTITY,
    TXN_OFFSET_COMMIT_V1,
    TXN_OFFSET_COMMIT_V1_OF_MEMBER,
    TXN_OFFSET_COMMIT_V2,
    VersionRange,
    camel_case,
    every,
)
from spark_kafka_sink.network.calls import Call, CallHandler, CodeAt, Coordinator, CoordinatorType
from spark_kafka_sink.network.messages import MakeEntity

END_TXN_V1: Final = 3
"""The number of the first transaction protocol, in which EndTxn has versions up to 4. Ledgers have this number."""

END_TXN_V2: Final = 5
"""Version of EndTxn in the second protocol (KIP-890), whose response has the producer id and epoch of the next
transaction.
"""

_TRANSACTION_VERSION: Final = "transaction.version"
"""The finalized feature of a cluster that chooses the protocol: the second one from level 2 on."""


def end_txn_version(features: Mapping[str, int]) -> int:
    """The protocol of a cluster with these finalized features."""
    return END_TXN_V2 if features.get(_TRANSACTION_VERSION, 0) >= 2 else END_TXN_V1


@dataclass(frozen=True, slots=True)
class TransactionalIdentity:
    """A transactional id with the producer id and epoch from InitProducerId, which fences earlier producers.

    ``end_txn_version``: the protocol of its transactions, ``END_TXN_V1`` or ``END_TXN_V2``.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    end_txn_version: int

    def __post_init__(self) -> None:
        """Raises ``ValueError`` for a field that no request can carry."""
        check_text("transactional_id", self.transactional_id)
        check_number("producer_id", self.producer_id, -1, LARGEST_INT64)
        check_number("epoch", self.epoch, -1, LARGEST_INT16)
        if self.end_txn_version not in (END_TXN_V1, END_TXN_V2):
            raise ValueError(
                f"Invalid end_txn_version: it must be {END_TXN_V1} or {END_TXN_V2}, but is {self.end_txn_version!r}."
            )

    @property
    def identity(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.epoch)

    @property
    def key(self) -> tuple[str, int, int]:
        """Identifies a transaction regardless of ``end_txn_version``. A listed transaction has the driver's version and
        a reported one its task's, which differ if transaction.version has changed in between."""
        return self.transactional_id, self.producer_id, self.epoch


@dataclass(frozen=True, slots=True)
class PreparedTransaction(TransactionalIdentity):
    """An open transaction with all its records in the log. Any process may commit or abort it, until
    ``transaction.timeout.ms`` after its first record or until the next InitProducerId for its id.

    ``end_txn_version``: the protocol of every attempt of EndTxn; a retry in the other protocol fails. ``is_empty``:
    whether it has neither records nor offsets. Then no broker knows of it, and there is nothing to end.
    """

    is_empty: bool = False


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """``offset`` of the next record to read, as a consumer commits it. ``leader_epoch`` -1: unknown.

    Raises ``ValueError`` for a field that no request can carry.
    """

    offset: int
    metadata: str | None = ""
    leader_epoch: int = NO_LEADER_EPOCH

    def __post_init__(self) -> None:
        check_number("offset", self.offset, -LARGEST_INT64, LARGEST_INT64)
        if self.offset < 0:
            raise ValueError(f"Invalid negative offset: {self.offset}")  # Java's text
        check_number("leader_epoch", self.leader_epoch, -1, LARGEST_INT32)
        if self.metadata is not None:
            check_text("metadata", self.metadata)


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """The consumer of a transaction's input. The defaults do not fence zombie members (KIP-447).

    ``group_instance_id``: the id of a static member. Raises ``ValueError`` for a field that no request can carry.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None

    def __post_init__(self) -> None:
        check_text("group_id", self.group_id)
        check_text("member_id", self.member_id)
        check_number("generation_id", self.generation_id, -1, LARGEST_INT32)
        if self.group_instance_id is not None:
            check_text("group_instance_id", self.group_instance_id)


_FIRST_WITH_COMMITTED_EPOCHS: Final = 2

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


def transaction_key(transactional_id: str) -> Coordinator:
    return Coordinator(CoordinatorType.TRANSACTION, transactional_id)


def _call(
    identity: TransactionalIdentity, api: str, versions: VersionRange, make: MakeEntity, on_end: CallHandler | None
) -> Call:
    """A call to the transaction coordinator whose response has one error code."""
    where = f"{camel_case(api)} for transactional.id {identity.transactional_id}"

    def codes(body: Any) -> tuple[CodeAt, ...]:
        return (CodeAt(where, body.error_code),)

    return Call(api, versions, transaction_key(identity.transactional_id), make, codes, on_end)


def _fields(identity: TransactionalIdentity) -> dict[str, object]:
    return {
        "transactional_id": identity.transactional_id,
        "producer_id": identity.producer_id,
        "producer_epoch": identity.epoch,
    }


def producer_id(on_end: CallHandler) -> Call:
    """InitProducerId of an idempotent producer without transactions, to any broker."""

    def make(module: ModuleType, version: int) -> Any:
        timeout = timedelta(milliseconds=2**31 - 1)
        identity = _identity(NO_IDENTITY, version)
        return module.InitProducerIdRequest(transactional_id=None, transaction_timeout=timeout, **identity)

    def codes(body: Any) -> tuple[CodeAt, ...]:
        return (CodeAt("InitProducerId", body.error_code),)

    return Call("init_producer_id", INIT_PRODUCER_ID, None, make, codes, on_end)


def init_producer_id(
    identity: TransactionalIdentity, transaction_timeout_ms: int, on_end: CallHandler | None = None
) -> Call:
    """Fence other producers with the id and abort their open transaction. An identity must be the latest (KIP-360)."""

    def make(module: ModuleType, version: int) -> Any:
        return module.InitProducerIdRequest(
            transactional_id=identity.transactional_id,
            transaction_timeout=timedelta(milliseconds=transaction_timeout_ms),
            **_identity(identity.identity, version),
        )

    versions = INIT_PRODUCER_ID if identity.identity == NO_IDENTITY else INIT_PRODUCER_ID_WITH_IDENTITY
    return _call(identity, "init_producer_id", versions, make, on_end)


def _identity(identity: ProducerIdentity, version: int) -> dict[str, object]:
    """The fields of InitProducerId."""
    if version < INIT_PRODUCER_ID_FIRST_WITH_IDENTITY:
        return {}
    return {"producer_id": identity.producer_id, "producer_epoch": identity.epoch}


def add_partitions(
    identity: TransactionalIdentity, partitions: Sequence[TopicPartition], on_end: CallHandler | None = None
) -> Call:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)

    def make(module: ModuleType, version: int) -> Any:
        topic_class = module.request.AddPartitionsToTxnTopic
        return module.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=identity.transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=tuple(
                topic_class(name=name, partitions=tuple(indexes)) for name, indexes in by_topic.items()
            ),
        )

    def codes(body: Any) -> Iterator[CodeAt]:
        for topic in body.results_by_topic_v3_and_below:
            for result in topic.results_by_partition:
                where = f"AddPartitionsToTxn of {topic.name}-{result.partition_index}"
                yield CodeAt(where, result.partition_error_code)

    key = transaction_key(identity.transactional_id)
    asked = {f"AddPartitionsToTxn of {partition}" for partition in partitions}
    return Call("add_partitions_to_txn", every("add_partitions_to_txn"), key, make, codes, on_end, asked)


def add_offsets(identity: TransactionalIdentity, group: ConsumerGroupMetadata, on_end: CallHandler) -> Call:
    def make(module: ModuleType, version: int) -> Any:
        return module.AddOffsetsToTxnRequest(group_id=group.group_id, **_fields(identity))

    return _call(identity, "add_offsets_to_txn", every("add_offsets_to_txn"), make, on_end)


def txn_offset_commit(
    identity: TransactionalIdentity,
    offsets: Offsets,
    group: ConsumerGroupMetadata,
    on_end: CallHandler,
) -> Call:
    """TxnOffsetCommit, for the group coordinator. Version 5 also adds the offsets to the transaction.

    ``UnsupportedVersionError`` ends it if the group has a member and the coordinator is older than KIP-447.
    """

    def make(module: ModuleType, version: int) -> Any:
        member = {
            "generation_id": group.generation_id,
            "member_id": group.member_id,
            "group_instance_id": group.group_instance_id,
        }
        return module.TxnOffsetCommitRequest(
            group_id=group.group_id,
            topics=_offset_topics(module, version, offsets),
            **(member if version >= TXN_OFFSET_COMMIT_V1_OF_MEMBER.lowest else {}),
            **_fields(identity),
        )

    def codes(body: Any) -> Iterator[CodeAt]:
        for topic in body.topics:
            for partition in topic.partitions:
                where = f"TxnOffsetCommit of {topic.name}-{partition.partition_index} for group {group.group_id}"
                yield CodeAt(where, partition.error_code)

    versions = (
        TXN_OFFSET_COMMIT_V1 if group == ConsumerGroupMetadata(group.group_id) else TXN_OFFSET_COMMIT_V1_OF_MEMBER
    )
    if identity.end_txn_version >= END_TXN_V2:
        versions = TXN_OFFSET_COMMIT_V2
    key = Coordinator(CoordinatorType.GROUP, group.group_id)
    asked = {f"TxnOffsetCommit of {partition} for group {group.group_id}" for partition in offsets}
    return Call("txn_offset_commit", versions, key, make, codes, on_end, asked)


def _offset_topics(module: ModuleType, version: int, offsets: Offsets) -> tuple[Any, ...]:
    by_topic: dict[str, list[Any]] = {}
    for (topic, partition), each in offsets.items():
        epoch = {"committed_leader_epoch": each.leader_epoch} if version >= _FIRST_WITH_COMMITTED_EPOCHS else {}
        by_topic.setdefault(topic, []).append(
            module.request.TxnOffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=each.offset,
                committed_metadata=each.metadata,
                **epoch,
            )
        )
    topic_class = module.request.TxnOffsetCommitRequestTopic
    return tuple(topic_class(name=name, partitions=tuple(partitions)) for name, partitions in by_topic.items())


def end_txn(identity: TransactionalIdentity, commit: bool, on_end: CallHandler | None = None) -> Call:
    def make(module: ModuleType, version: int) -> Any:
        return module.EndTxnRequest(committed=commit, **_fields(identity))

    versions = END_TXN_OF_TRANSACTIONS_V2 if identity.end_txn_version >= END_TXN_V2 else END_TXN_OF_TRANSACTIONS_V1
    return _call(identity, "end_txn", versions, make, on_end)


def identity_after(body: Any, before: ProducerIdentity) -> ProducerIdentity:
    """The identity of the next transaction: from version 5 on an EndTxn response may have a new one."""
    producer_id = getattr(body, "producer_id", -1)
    return before if producer_id < 0 else ProducerIdentity(int(producer_id), int(body.producer_epoch))
