"""The requests of a transactional producer, and where their responses have error codes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from types import ModuleType
from typing import Any

from spark_kafka_sink.common.model import NO_IDENTITY, ProducerIdentity, TopicPartition
from spark_kafka_sink.network.calls import Call, CallHandler, CodeAt, Coordinator, CoordinatorType
from spark_kafka_sink.network.messages import MakeEntity, camel_case
from spark_kafka_sink.producer.transactions.values import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    TransactionalIdentity,
)

INIT_PRODUCER_ID = (3, 5)  # 6 is KIP-939's, unstable up to Kafka 4.3
ADD_PARTITIONS = (3, 3)
"""From version 4 on only brokers send it."""

ADD_OFFSETS = (3, 4)
TXN_OFFSET_COMMIT_V1 = (3, 4)
TXN_OFFSET_COMMIT_V2 = (5, 5)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


def transaction_key(transactional_id: str) -> Coordinator:
    return Coordinator(CoordinatorType.TRANSACTION, transactional_id)


def _call(
    identity: TransactionalIdentity, api: str, versions: tuple[int, int], make: MakeEntity, on_end: CallHandler | None
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
        return module.InitProducerIdRequest(
            transactional_id=None,
            transaction_timeout=timedelta(milliseconds=2**31 - 1),
            producer_id=NO_IDENTITY.producer_id,
            producer_epoch=NO_IDENTITY.epoch,
        )

    def codes(body: Any) -> tuple[CodeAt, ...]:
        return (CodeAt("InitProducerId", body.error_code),)

    return Call("init_producer_id", INIT_PRODUCER_ID, None, make, codes, on_end)


def init_producer_id(
    identity: TransactionalIdentity, transaction_timeout_ms: int, on_end: CallHandler | None = None
) -> Call:
    """Fence other producers with the id and abort their open transaction. An identity must be the latest (KIP-360)."""

    def make(module: ModuleType, version: int) -> Any:
        timeout = timedelta(milliseconds=transaction_timeout_ms)
        return module.InitProducerIdRequest(transaction_timeout=timeout, **_fields(identity))

    return _call(identity, "init_producer_id", INIT_PRODUCER_ID, make, on_end)


def add_partitions(
    identity: TransactionalIdentity, partitions: Iterable[TopicPartition], on_end: CallHandler | None = None
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
    return Call("add_partitions_to_txn", ADD_PARTITIONS, key, make, codes, on_end)


def add_offsets(identity: TransactionalIdentity, group: ConsumerGroupMetadata, on_end: CallHandler) -> Call:
    def make(module: ModuleType, version: int) -> Any:
        return module.AddOffsetsToTxnRequest(group_id=group.group_id, **_fields(identity))

    return _call(identity, "add_offsets_to_txn", ADD_OFFSETS, make, on_end)


def txn_offset_commit(
    identity: TransactionalIdentity,
    versions: tuple[int, int],
    offsets: Offsets,
    group: ConsumerGroupMetadata,
    on_end: CallHandler,
) -> Call:
    """TxnOffsetCommit, for the group coordinator. Version 5 also adds the offsets to the transaction."""

    def make(module: ModuleType, version: int) -> Any:
        return module.TxnOffsetCommitRequest(
            group_id=group.group_id,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=_offset_topics(module, offsets),
            **_fields(identity),
        )

    def codes(body: Any) -> Iterator[CodeAt]:
        for topic in body.topics:
            for each in topic.partitions:
                where = f"TxnOffsetCommit of {topic.name}-{each.partition_index} for group {group.group_id}"
                yield CodeAt(where, each.error_code)

    key = Coordinator(CoordinatorType.GROUP, group.group_id)
    return Call("txn_offset_commit", versions, key, make, codes, on_end)


def _offset_topics(module: ModuleType, offsets: Offsets) -> tuple[Any, ...]:
    by_topic: dict[str, list[Any]] = {}
    for (topic, partition), each in offsets.items():
        by_topic.setdefault(topic, []).append(
            module.request.TxnOffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=each.offset,
                committed_leader_epoch=each.leader_epoch,
                committed_metadata=each.metadata,
            )
        )
    topic_class = module.request.TxnOffsetCommitRequestTopic
    return tuple(topic_class(name=name, partitions=tuple(partitions)) for name, partitions in by_topic.items())


def end_txn(identity: TransactionalIdentity, commit: bool, on_end: CallHandler | None = None) -> Call:
    def make(module: ModuleType, version: int) -> Any:
        return module.EndTxnRequest(committed=commit, **_fields(identity))

    return _call(identity, "end_txn", (identity.end_txn_version, identity.end_txn_version), make, on_end)


def identity_after(body: Any, before: ProducerIdentity) -> ProducerIdentity:
    """The identity of the next transaction: from version 5 on an EndTxn response may have a new one."""
    producer_id = getattr(body, "producer_id", -1)
    return before if producer_id < 0 else ProducerIdentity(int(producer_id), int(body.producer_epoch))
