"""Requests to brokers that neither ``LocalKafka`` nor librdkafka's admin client has."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from kio.schema.alter_partition_reassignments.v0.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kio.schema.alter_partition_reassignments.v0.response import AlterPartitionReassignmentsResponse
from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.api_versions.v4.response import ApiVersionsResponse
from kio.schema.describe_quorum.v1.request import DescribeQuorumRequest, PartitionData, TopicData
from kio.schema.describe_quorum.v1.response import DescribeQuorumResponse
from kio.schema.elect_leaders.v2.request import ElectLeadersRequest, TopicPartitions
from kio.schema.elect_leaders.v2.response import ElectLeadersResponse
from kio.schema.list_transactions.v0.request import ListTransactionsRequest
from kio.schema.list_transactions.v0.response import ListTransactionsResponse
from kio.schema.metadata.v10.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v10.response import MetadataResponse
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i32Timedelta

from spark_kafka_sink.testing.blocking_admin import Address, exchange

_METADATA = "__cluster_metadata"
_PREFERRED = 0
_TIMEOUT = i32Timedelta.parse(timedelta(seconds=10))


class RefusedError(Exception):
    """A broker has refused the request."""


def reorder_replicas(address: Address, topic: str, partition: int, replicas: Sequence[int]) -> None:
    """The first of ``replicas`` becomes the preferred leader; the set of them stays the same."""
    moved = ReassignablePartition(partition_index=i32(partition), replicas=tuple(map(BrokerId, replicas)))
    topics = (ReassignableTopic(name=TopicName(topic), partitions=(moved,)),)
    request = AlterPartitionReassignmentsRequest(timeout=_TIMEOUT, topics=topics)
    response = exchange(address, request, AlterPartitionReassignmentsResponse)
    results = [each for told in response.responses for each in told.partitions]
    _check(f"{topic}-{partition} was not reassigned", response, *results)


def elect_preferred_leader(address: Address, topic: str, partition: int) -> None:
    chosen = TopicPartitions(topic=TopicName(topic), partitions=(i32(partition),))
    request = ElectLeadersRequest(election_type=i8(_PREFERRED), topic_partitions=(chosen,), timeout=_TIMEOUT)
    response = exchange(address, request, ElectLeadersResponse)
    results = [each for told in response.replica_election_results for each in told.partition_result]
    _check(f"{topic}-{partition} has no new leader", response, *results)


def topic_id(address: Address, topic: str) -> str:
    """The id under which this broker knows the topic, "" if it does not know it. A topic that is created again has
    another id."""
    asked = (MetadataRequestTopic(topic_id=None, name=TopicName(topic)),)
    request = MetadataRequest(
        topics=asked,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    (found,) = exchange(address, request, MetadataResponse).topics
    if found.error_code.name == "unknown_topic_or_partition":
        return ""
    _check(f"{topic} has no id", found)
    return str(found.topic_id)


def quorum_leader(address: Address) -> int:
    """The node whose controller is the active one, as far as this broker's controller knows."""
    partitions = (PartitionData(partition_index=i32(0)),)
    request = DescribeQuorumRequest(topics=(TopicData(topic_name=TopicName(_METADATA), partitions=partitions),))
    response = exchange(address, request, DescribeQuorumResponse)
    (found,) = (each for topic in response.topics for each in topic.partitions)
    _check("the quorum is unknown", response, found)
    return int(found.leader_id)


def transactional_ids(address: Address) -> list[str]:
    """Those whose coordinator this broker is."""
    response = exchange(address, ListTransactionsRequest(), ListTransactionsResponse)
    _check("the transactions are unknown", response)
    return [each.transactional_id for each in response.transaction_states]


def features(address: Address) -> dict[str, int]:
    """The highest level of each feature that this broker supports."""
    request = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
    response = exchange(address, request, ApiVersionsResponse)
    _check("the features are unknown", response)
    return {each.name: int(each.max_version) for each in response.supported_features}


def _check(what: str, *results) -> None:
    for result in results:
        if result.error_code.value and result.error_code.name != "election_not_needed":
            raise RefusedError(f"{what}: {result.error_code.name} {getattr(result, 'error_message', None) or ''}")
