"""API name to handler: the whole of what this broker understands."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from spark_kafka_sink.testing.broker.apis import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    api_versions,
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_topic_partitions,
    describe_transactions,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    list_transactions,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    txn_offset_commit,
)
from spark_kafka_sink.testing.broker.request_context import Handler

HANDLERS: Final[Mapping[str, Handler]] = MappingProxyType(
    {
        "Produce": produce.handle,
        "Fetch": fetch.handle,
        "ListOffsets": list_offsets.handle,
        "Metadata": metadata.handle,
        "OffsetCommit": offset_commit.handle,
        "OffsetFetch": offset_fetch.handle,
        "FindCoordinator": find_coordinator.handle,
        "JoinGroup": join_group.handle,
        "Heartbeat": heartbeat.handle,
        "LeaveGroup": leave_group.handle,
        "SyncGroup": sync_group.handle,
        "DescribeGroups": describe_groups.handle,
        "ListGroups": list_groups.handle,
        "SaslHandshake": sasl_handshake.handle,
        "ApiVersions": api_versions.handle,
        "CreateTopics": create_topics.handle,
        "DeleteTopics": delete_topics.handle,
        "InitProducerId": init_producer_id.handle,
        "AddPartitionsToTxn": add_partitions_to_txn.handle,
        "AddOffsetsToTxn": add_offsets_to_txn.handle,
        "EndTxn": end_txn.handle,
        "TxnOffsetCommit": txn_offset_commit.handle,
        "DescribeConfigs": describe_configs.handle,
        "SaslAuthenticate": sasl_authenticate.handle,
        "CreatePartitions": create_partitions.handle,
        "DescribeCluster": describe_cluster.handle,
        "DescribeTransactions": describe_transactions.handle,
        "DescribeTopicPartitions": describe_topic_partitions.handle,
        "ListTransactions": list_transactions.handle,
    }
)
