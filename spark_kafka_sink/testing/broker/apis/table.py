"""API name to handler: the whole of what this broker understands."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from spark_kafka_sink.testing.broker.apis import fetch, groups, metadata, offsets, produce, sasl, topics, transactions
from spark_kafka_sink.testing.broker.request_context import Handler

HANDLERS: Final[Mapping[str, Handler]] = MappingProxyType(
    {
        "Produce": produce.produce,
        "Fetch": fetch.fetch,
        "ListOffsets": fetch.list_offsets,
        "Metadata": metadata.metadata,
        "OffsetCommit": offsets.offset_commit,
        "OffsetFetch": offsets.offset_fetch,
        "FindCoordinator": metadata.find_coordinator,
        "JoinGroup": groups.join_group,
        "Heartbeat": groups.heartbeat,
        "LeaveGroup": groups.leave_group,
        "SyncGroup": groups.sync_group,
        "DescribeGroups": groups.describe_groups,
        "ListGroups": groups.list_groups,
        "SaslHandshake": sasl.sasl_handshake,
        "ApiVersions": metadata.api_versions,
        "CreateTopics": topics.create_topics,
        "DeleteTopics": topics.delete_topics,
        "InitProducerId": transactions.init_producer_id,
        "AddPartitionsToTxn": transactions.add_partitions_to_txn,
        "AddOffsetsToTxn": transactions.add_offsets_to_txn,
        "EndTxn": transactions.end_txn,
        "TxnOffsetCommit": offsets.txn_offset_commit,
        "DescribeConfigs": topics.describe_configs,
        "SaslAuthenticate": sasl.sasl_authenticate,
        "CreatePartitions": topics.create_partitions,
        "DescribeCluster": metadata.describe_cluster,
        "DescribeTransactions": transactions.describe_transactions,
        "DescribeTopicPartitions": metadata.describe_topic_partitions,
        "ListTransactions": transactions.list_transactions,
    }
)
