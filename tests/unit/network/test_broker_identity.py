"""ApiVersions v5 and the check behind ``metadata.cluster.check.enable`` (KIP-1242)."""

from datetime import timedelta
from random import Random

import pytest
from kio.schema.api_versions.v0 import response as v0
from kio.schema.api_versions.v4.response import ApiVersion, ApiVersionsResponse
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import ClusterSnapshot, Node
from spark_kafka_sink.errors import NetworkError, RebootstrapRequiredError
from spark_kafka_sink.network.broker_identity import VERSION, ApiVersionsRequest, BrokerIdentity
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.handshake import ChannelBuilder, negotiate_api_versions
from spark_kafka_sink.network.messages import encode_request
from spark_kafka_sink.network.metadata import Metadata, MetadataUpdater
from spark_kafka_sink.testing.scripted_network import ScriptedTransport, response_frame

IDENTITY = BrokerIdentity("c", 7)
NODE = Node(7, "h", 9092)


def response(highest: int, error: ErrorCode = ErrorCode.none) -> memoryview:
    """A response of v4 from a broker that speaks ApiVersions up to ``highest``: what follows the correlation id."""
    keys = (ApiVersion(api_key=18, min_version=0, max_version=highest),)
    entity = ApiVersionsResponse(error_code=error, api_keys=keys, throttle_time=timedelta(0))
    return memoryview(response_frame(1, entity))[8:]


def config(**options: str) -> ProducerConfig:
    names = {name.replace("_", "."): value for name, value in options.items()}
    return ProducerConfig.parse({"bootstrap.servers": "boot:9092", **names})


def finish(handshake, highest):
    """The first request of a handshake with a broker that speaks ApiVersions up to ``highest``."""
    first = next(handshake)
    with pytest.raises(StopIteration):
        handshake.send(response(highest))
    return first


def test_the_request_has_kafkas_bytes():
    # As ApiVersionsRequestData of kafka-clients 4.4.0 writes it: name n, version v, cluster c, node 7.
    request = ApiVersionsRequest(client_software_name="n", client_software_version="v", cluster_id="c", node_id=i32(7))
    assert encode_request(request, 1, "").endswith(bytes.fromhex("02 6e 02 76 02 63 00 00 00 07 00"))


def test_a_broker_that_checks_is_told_whom_the_connection_is_meant_for():
    channels = ChannelBuilder(config())
    first = finish(channels.handshake(Node(-1, "boot", 9092)), highest=VERSION)
    assert first.__version__ < VERSION
    second = finish(channels.handshake(NODE, "c"), highest=VERSION)
    assert (second.__version__, second.cluster_id, second.node_id) == (VERSION, "c", 7)


@pytest.mark.parametrize(
    ("highest", "node", "cluster", "options"),
    [
        (VERSION - 1, NODE, "c", {}),
        (VERSION, NODE, None, {}),
        (VERSION, Node(-1, "boot", 9092), "c", {}),
        (VERSION, Node(7 + 2**31, "h", 9092), "c", {}),
        (VERSION, NODE, "c", {"metadata_cluster_check_enable": "false"}),
        (VERSION, NODE, "c", {"metadata_recovery_strategy": "none"}),
    ],
    ids=["older-broker", "no-cluster-yet", "bootstrap-server", "further-connection", "disabled", "no-rebootstrap"],
)
def test_otherwise_nobody_is_named(highest, node, cluster, options):
    channels = ChannelBuilder(config(**options))
    finish(channels.handshake(Node(-1, "boot", 9092)), highest)
    assert finish(channels.handshake(node, cluster), highest).__version__ < VERSION


def test_a_broker_that_was_downgraded_gets_the_version_that_it_speaks():
    handshake = negotiate_api_versions("h", IDENTITY)
    assert next(handshake).__version__ == VERSION
    keys = (v0.ApiVersion(api_key=18, min_version=0, max_version=VERSION - 1),)
    refusal = v0.ApiVersionsResponse(error_code=ErrorCode.unsupported_version, api_keys=keys)
    again = handshake.send(memoryview(response_frame(1, refusal))[8:])
    assert again.__version__ == VERSION - 1


def test_another_broker_refuses():
    handshake = negotiate_api_versions("h:9092 (id: 7)", IDENTITY)
    next(handshake)
    with pytest.raises(RebootstrapRequiredError, match=r"h:9092 \(id: 7\) is not node 7 of cluster c \(REBOOTSTRAP_RE"):
        handshake.send(response(VERSION, ErrorCode.rebootstrap_required))


def known(cluster_id: str) -> Metadata:
    metadata = Metadata(config(), Random(1))
    metadata.updated(ClusterSnapshot(nodes={7: NODE}, cluster_id=cluster_id), 0)
    return metadata


def test_after_a_refusal_the_bootstrap_servers_are_asked_over_new_connections():
    metadata = known("c")
    transport = ScriptedTransport(accept_all=True)
    client = NetworkClient(config(), transport, Random(1))
    assert not client.ready(Node(8, "h8", 9092), 0)
    assert not client.ready(NODE, 0)
    updater = MetadataUpdater(metadata)
    updater.maybe_update(client, 0)
    assert client.cluster_id == "c"
    metadata.note_connection_error(NODE, RebootstrapRequiredError("no"), 1)
    assert metadata.candidates(1) == metadata.bootstrap_nodes
    updater.maybe_update(client, 1)
    assert client.cluster_id is None


def test_disconnect_closes_every_connection():
    transport = ScriptedTransport(accept_all=True)
    client = NetworkClient(config(), transport, Random(1))
    for node in (NODE, Node(8, "h8", 9092)):
        client.ready(node, 0)
    client.disconnect(NetworkError("starts again"))
    assert not transport.open


def test_an_id_that_was_escaped_for_the_log_is_not_sent():
    assert known("MkU3OEVBNTcwNTJENDM2Qk").cluster_id == "MkU3OEVBNTcwNTJENDM2Qk"
    assert known("a\\x00b").cluster_id is None
