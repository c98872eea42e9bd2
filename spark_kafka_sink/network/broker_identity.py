"""ApiVersions v5, which names the broker that the client means to reach (KIP-1242); kio ends with v4.

A broker from Kafka 4.4 on that is another one answers REBOOTSTRAP_REQUIRED: a name server or a load balancer leads
elsewhere than when the address was learned.
"""

# Not "from __future__ import annotations": kio reads the types of the fields.
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple

from kio.schema.request_header.v2.header import RequestHeader
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32

VERSION: Final = 5


class BrokerIdentity(NamedTuple):
    """Cluster and node that a connection is meant for."""

    cluster_id: str
    node_id: int

    def __str__(self) -> str:
        return f"node {self.node_id} of cluster {self.cluster_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsRequest:
    """The request that kio lacks, with the attributes of kio's entities. Its response is that of version 4."""

    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(VERSION)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(18)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    client_software_name: str = field(metadata={"kafka_type": "string"})
    client_software_version: str = field(metadata={"kafka_type": "string"})
    cluster_id: str | None = field(metadata={"kafka_type": "string"})
    node_id: i32 = field(metadata={"kafka_type": "int32"})
