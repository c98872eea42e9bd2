"""What a test asks a broker for, each over a connection of its own; no client keeps running behind it.

The versions of requests are those that brokers from Kafka 2.1 on have in common, except for what KRaft brought.
"""

from __future__ import annotations

import io
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from spark_kafka_sink.errors import BrokerError
from spark_kafka_sink.network.metadata_api import Operation

if TYPE_CHECKING:
    from kio.schema.metadata.v7.response import MetadataResponse

Address = tuple[str, int]

REQUEST_TIMEOUT_S = 10.0
_CORRELATION_ID = 1
_TRANSACTION = 1
_UPGRADE, _SAFE_DOWNGRADE = 1, 2
_ALLOW = 3
_LITERAL, _PREFIXED = 3, 4
_ANY_HOST = "*"


class ResourceType(IntEnum):
    """Kafka: ``org.apache.kafka.common.resource.ResourceType``."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


@dataclass(frozen=True, slots=True)
class Acl:
    """A right: ``operation`` and ``resource`` by Kafka's names."""

    principal: str
    operation: str
    resource: str
    name: str
    prefixed: bool

    @property
    def resource_type(self) -> int:
        return ResourceType[self.resource].value

    @property
    def operation_code(self) -> int:
        return Operation[self.operation].value

    @property
    def pattern_type(self) -> int:
        return _PREFIXED if self.prefixed else _LITERAL


def metadata(address: Address, topics: Sequence[str]) -> MetadataResponse:
    """Metadata of ``topics`` as this broker sees it, without creating any. ``OSError`` when it is out of reach."""
    from kio.schema.metadata.v7.request import MetadataRequest, MetadataRequestTopic
    from kio.schema.metadata.v7.response import MetadataResponse
    from kio.schema.types import TopicName

    wanted = None
    if topics is not None:
        wanted = tuple(MetadataRequestTopic(name=TopicName(topic)) for topic in topics)
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
    response: MetadataResponse = exchange(address, request, MetadataResponse)
    return response


def create_topic(address: Address, name: str, partitions: int, replication: int, configs: Mapping[str, str]) -> None:
    """CreateTopics of one topic; raises ``BrokerError`` with Kafka's own message."""
    from kio.schema.create_topics.v3.request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
    from kio.schema.create_topics.v3.response import CreateTopicsResponse
    from kio.schema.types import TopicName
    from kio.static.primitive import i16, i32

    topic = CreatableTopic(
        name=TopicName(name),
        num_partitions=i32(partitions),
        replication_factor=i16(replication),
        assignments=(),
        configs=tuple(CreatableTopicConfig(name=key, value=value) for key, value in configs.items()),
    )
    response: CreateTopicsResponse = exchange(address, CreateTopicsRequest(topics=(topic,)), CreateTopicsResponse)
    for result in response.topics:
        _raise_error_of(f"Topic {name} was not created", result)


def delete_topic(address: Address, name: str) -> None:
    """DeleteTopics of one topic; raises ``BrokerError`` with Kafka's own message."""
    from kio.schema.delete_topics.v3.request import DeleteTopicsRequest
    from kio.schema.delete_topics.v3.response import DeleteTopicsResponse
    from kio.schema.types import TopicName
    from kio.static.primitive import i32Timedelta

    request = DeleteTopicsRequest(
        topic_names=(TopicName(name),),
        timeout=i32Timedelta.parse(timedelta(seconds=REQUEST_TIMEOUT_S)),
    )
    response: DeleteTopicsResponse = exchange(address, request, DeleteTopicsResponse)
    for result in response.responses:
        _raise_error_of(f"Topic {name} was not deleted", result)


def update_feature(address: Address, name: str, level: int) -> None:
    """UpdateFeatures, up or safely down; raises ``BrokerError`` with Kafka's own message."""
    from kio.schema.update_features.v1.request import FeatureUpdateKey, UpdateFeaturesRequest
    from kio.schema.update_features.v1.response import UpdateFeaturesResponse
    from kio.static.primitive import i8, i16

    refused: Any = None
    for upgrade_type in (_UPGRADE, _SAFE_DOWNGRADE):
        update = FeatureUpdateKey(feature=name, max_version_level=i16(level), upgrade_type=i8(upgrade_type))
        request = UpdateFeaturesRequest(feature_updates=(update,))
        response: UpdateFeaturesResponse = exchange(address, request, UpdateFeaturesResponse)
        results: tuple[Any, ...] = (response, *response.results)
        refused = max(results, key=lambda each: each.error_code.value != 0)
        if not refused.error_code.value:
            return
    _raise_error_of(f"{name} {level} was not finalized", refused)


def set_quotas(address: Address, client_id: str, quotas: Mapping[str, float]) -> None:
    """AlterClientQuotas of one client id; raises ``BrokerError`` with Kafka's own message."""
    from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest, EntityData, EntryData, OpData
    from kio.schema.alter_client_quotas.v1.response import AlterClientQuotasResponse
    from kio.static.primitive import f64

    entity = EntityData(entity_type="client-id", entity_name=client_id)
    ops = tuple(OpData(key=key, value=f64(value), remove=False) for key, value in quotas.items())
    request = AlterClientQuotasRequest(entries=(EntryData(entity=(entity,), ops=ops),), validate_only=False)
    response: AlterClientQuotasResponse = exchange(address, request, AlterClientQuotasResponse)
    for entry in response.entries:
        _raise_error_of(f"Quotas of client {client_id} were not set", entry)


def create_acl(address: Address, acl: Acl) -> None:
    """CreateAcls of one right; raises ``BrokerError`` with Kafka's own message."""
    from kio.schema.create_acls.v3.request import AclCreation, CreateAclsRequest
    from kio.schema.create_acls.v3.response import CreateAclsResponse
    from kio.static.primitive import i8

    creation = AclCreation(
        resource_type=i8(acl.resource_type),
        resource_name=acl.name,
        resource_pattern_type=i8(acl.pattern_type),
        principal=acl.principal,
        host=_ANY_HOST,
        operation=i8(acl.operation_code),
        permission_type=i8(_ALLOW),
    )
    response: CreateAclsResponse = exchange(address, CreateAclsRequest(creations=(creation,)), CreateAclsResponse)
    for result in response.results:
        _raise_error_of(f"{acl} was not created", result)


def has_acl(address: Address, acl: Acl) -> bool:
    """DescribeAcls: whether this broker applies the right."""
    from kio.schema.describe_acls.v3.request import DescribeAclsRequest
    from kio.schema.describe_acls.v3.response import DescribeAclsResponse
    from kio.static.primitive import i8

    request = DescribeAclsRequest(
        resource_type_filter=i8(acl.resource_type),
        resource_name_filter=acl.name,
        pattern_type_filter=i8(acl.pattern_type),
        principal_filter=acl.principal,
        host_filter=_ANY_HOST,
        operation=i8(acl.operation_code),
        permission_type=i8(_ALLOW),
    )
    response: DescribeAclsResponse = exchange(address, request, DescribeAclsResponse)
    _raise_error_of(f"{acl} was not found", response)
    return bool(response.resources)


def transaction_coordinator(address: Address, transactional_id: str) -> int:
    """FindCoordinator; -1 while there is none."""
    from kio.schema.find_coordinator.v2.request import FindCoordinatorRequest
    from kio.schema.find_coordinator.v2.response import FindCoordinatorResponse
    from kio.static.primitive import i8

    request = FindCoordinatorRequest(key=transactional_id, key_type=i8(_TRANSACTION))
    response: FindCoordinatorResponse = exchange(address, request, FindCoordinatorResponse)
    return int(response.node_id)


def _raise_error_of(what: str, result: Any) -> None:
    """Raises if ``result``, a response or a part of one, has an error."""
    code = result.error_code
    if code.value:
        name = code.name.upper()
        reason = getattr(result, "error_message", None)  # DeleteTopics has none before v5
        raise BrokerError(code.value, name, f"{name}: {what}{f': {reason}' if reason else ''}")


def exchange(address: Address, request: Any, response_type: Any) -> Any:
    """One request on a connection of its own."""
    from kio.serial import entity_reader, entity_writer
    from kio.static.primitive import i16, i32

    header = request.__header_schema__(
        request_api_key=i16(request.__api_key__),
        request_api_version=i16(request.__version__),
        correlation_id=i32(_CORRELATION_ID),
        client_id="local-kafka",
    )
    frame = io.BytesIO()
    entity_writer(type(header))(frame, header)
    entity_writer(type(request))(frame, request)
    with socket.create_connection(address, REQUEST_TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">i", frame.tell()) + frame.getvalue())
        (size,) = struct.unpack(">i", _read(connection, 4))
        received = _read(connection, size)
    _, body = entity_reader(response_type.__header_schema__)(received, 0)
    response, _ = entity_reader(response_type)(received, body)
    return response


def _read(connection: socket.socket, size: int) -> bytes:
    deadline = time.monotonic() + REQUEST_TIMEOUT_S
    received = bytearray()
    while len(received) < size:
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        chunk = connection.recv(size - len(received))
        if not chunk:
            raise ConnectionResetError("The broker closed the connection.")
        received += chunk
    return bytes(received)
