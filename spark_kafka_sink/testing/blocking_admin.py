"""A test's requests to a broker, each over a connection of its own. No client keeps running afterwards.

Requests have the versions that all brokers from Kafka 2.1 on know, except for requests that came with KRaft.
"""

from __future__ import annotations

import io
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, BinaryIO

from spark_kafka_sink.errors import BrokerError
from spark_kafka_sink.network.metadata_api import Operation

if TYPE_CHECKING:
    from kio.schema.metadata.v7.response import MetadataResponse

Address = tuple[str, int]

REQUEST_TIMEOUT_S = 10.0
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

    def fields(self, suffix: str, pattern_type: str) -> dict[str, object]:
        """The fields of CreateAcls or DescribeAcls, which have different names for some of them."""
        return {
            f"resource_type{suffix}": ResourceType[self.resource].value,
            f"resource_name{suffix}": self.name,
            pattern_type: _PREFIXED if self.prefixed else _LITERAL,
            f"principal{suffix}": self.principal,
            f"host{suffix}": _ANY_HOST,
            "operation": Operation[self.operation].value,
            "permission_type": _ALLOW,
        }


def metadata(address: Address, topics: Sequence[str]) -> MetadataResponse:
    """Metadata of ``topics`` as this broker sees it, without creating any. ``OSError`` when it is out of reach."""
    wanted = [{"name": topic} for topic in topics]
    response: MetadataResponse = exchange(address, "metadata", 7, topics=wanted, allow_auto_topic_creation=False)
    return response


def create_topic(address: Address, name: str, partitions: int, replication: int, configs: Mapping[str, str]) -> None:
    """CreateTopics of one topic; raises ``BrokerError`` with Kafka's own message."""
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replication,
        "configs": [{"name": key, "value": value} for key, value in configs.items()],
    }
    for result in exchange(address, "create_topics", 3, topics=[topic]).topics:
        _raise_error_of(f"Topic {name} was not created", result)


def delete_topic(address: Address, name: str) -> None:
    """DeleteTopics of one topic; raises ``BrokerError`` with Kafka's own message."""
    timeout_ms = round(REQUEST_TIMEOUT_S * 1000)
    for result in exchange(address, "delete_topics", 3, topic_names=[name], timeout=timeout_ms).responses:
        _raise_error_of(f"Topic {name} was not deleted", result)


def update_feature(address: Address, name: str, level: int) -> None:
    """UpdateFeatures, up or safely down; raises ``BrokerError`` with Kafka's own message."""
    refused: Any = None
    for upgrade_type in (_UPGRADE, _SAFE_DOWNGRADE):
        update = {"feature": name, "max_version_level": level, "upgrade_type": upgrade_type}
        response = exchange(address, "update_features", 1, feature_updates=[update])
        refused = max((response, *response.results), key=lambda each: each.error_code.value != 0)
        if not refused.error_code.value:
            return
    _raise_error_of(f"{name} {level} was not finalized", refused)


def set_quotas(address: Address, client_id: str, quotas: Mapping[str, float]) -> None:
    """AlterClientQuotas of one client id; raises ``BrokerError`` with Kafka's own message."""
    entry = {
        "entity": [{"entity_type": "client-id", "entity_name": client_id}],
        "ops": [{"key": key, "value": value, "remove": False} for key, value in quotas.items()],
    }
    for result in exchange(address, "alter_client_quotas", 1, entries=[entry], validate_only=False).entries:
        _raise_error_of(f"Quotas of client {client_id} were not set", result)


def create_acl(address: Address, acl: Acl) -> None:
    """CreateAcls of one right; raises ``BrokerError`` with Kafka's own message."""
    creation = acl.fields("", "resource_pattern_type")
    for result in exchange(address, "create_acls", 3, creations=[creation]).results:
        _raise_error_of(f"{acl} was not created", result)


def has_acl(address: Address, acl: Acl) -> bool:
    """DescribeAcls: whether this broker applies the right."""
    response = exchange(address, "describe_acls", 3, **acl.fields("_filter", "pattern_type_filter"))
    _raise_error_of(f"{acl} was not found", response)
    return bool(response.resources)


def transaction_coordinator(address: Address, transactional_id: str) -> int:
    """FindCoordinator; -1 while there is none."""
    return int(exchange(address, "find_coordinator", 2, key=transactional_id, key_type=_TRANSACTION).node_id)


def _raise_error_of(what: str, result: Any) -> None:
    """Raises if ``result``, a response or a part of one, has an error."""
    code = result.error_code
    if code.value:
        name = code.name.upper()
        reason = getattr(result, "error_message", None)  # DeleteTopics has none before v5
        raise BrokerError(code.value, name, f"{name}: {what}{f': {reason}' if reason else ''}")


def exchange(address: Address, api: str, version: int, /, **fields: object) -> Any:
    """One request of ``api`` on a connection of its own. API, fields and response are named as by kio."""
    from kio.index import load_request_schema, load_response_schema
    from kio.serial import entity_reader, entity_writer

    from spark_kafka_sink.network.messages import API_KEYS
    from spark_kafka_sink.testing.broker.wire import build

    key = API_KEYS[api]
    request, response = load_request_schema(key, version), load_response_schema(key, version)
    names = {"request_api_key": key, "request_api_version": version, "correlation_id": 1, "client_id": "local-kafka"}
    frame = io.BytesIO()
    entity_writer(request.__header_schema__)(frame, build(request.__header_schema__, names))
    entity_writer(request)(frame, build(request, fields))
    with socket.create_connection(address, REQUEST_TIMEOUT_S) as connection, connection.makefile("rb") as stream:
        connection.sendall(struct.pack(">i", frame.tell()) + frame.getvalue())
        (size,) = struct.unpack(">i", _read(stream, 4))
        received = _read(stream, size)
    _, body = entity_reader(response.__header_schema__)(received, 0)
    read, _ = entity_reader(response)(received, body)
    return read


def _read(stream: BinaryIO, size: int) -> bytes:
    received = stream.read(size)
    if len(received) < size:
        raise ConnectionResetError("The broker closed the connection.")
    return received
