"""The requests of a transactional producer, and where their responses have error codes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from types import ModuleType
from typing import Any, Final

from spark_kafka_sink.common.model import NO_IDENTITY, ProducerIdentity, TopicPartition
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
from spark_kafka_sink.producer.transactions.values import (
    END_TXN_V2,
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    TransactionalIdentity,
)

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
    """Fields of InitProducerId."""
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
            for each in topic.results_by_partition:
                where = f"AddPartitionsToTxn of {topic.name}-{each.partition_index}"
                yield CodeAt(where, each.partition_error_code)

    key = transaction_key(identity.transactional_id)
    asked = {f"AddPartitionsToTxn of {each}" for each in partitions}
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
            for each in topic.partitions:
                where = f"TxnOffsetCommit of {topic.name}-{each.partition_index} for group {group.group_id}"
                yield CodeAt(where, each.error_code)

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
