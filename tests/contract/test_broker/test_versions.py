"""Every version that is offered and that kio can read is answered, also where the handler raises: then the error is
UNKNOWN_SERVER_ERROR in the form of the API, and the connection stays open."""

import logging
import uuid

import pytest
from kio.index import UnknownEntity, load_request_schema

from spark_kafka_sink.errors import BrokerError, ConfigError
from spark_kafka_sink.testing import TestBroker
from spark_kafka_sink.testing.broker.apis.table import APIS as HANDLED
from spark_kafka_sink.testing.broker.apis.table import RELEASES
from spark_kafka_sink.testing.broker.emulation import APIS, BROKER_CONFIGS, TOPIC_CONFIGS, EmulationStatus
from spark_kafka_sink.testing.broker.state.config import BROKER_DEFAULTS, TOPIC_DEFAULTS
from spark_kafka_sink.testing.broker.wire import API_KEYS
from tests.contract.plain_client import API_KEYS as KAFKAS
from tests.contract.plain_client import PlainClient, batch


def has_version(api_key, version):
    """Whether kio can read this version at all."""
    try:
        load_request_schema(api_key, version)
    except UnknownEntity:
        return False
    return True


OFFERED = [
    (api, version)
    for api, versions in RELEASES["4.1"].versions.items()
    for version in range(versions.lowest, versions.highest + 1)
    if has_version(API_KEYS[api], version)
]
PARTITIONS = [0]
IDENTITY = {"producer_id": 7, "producer_epoch": 0, "transactional_id": "tx"}
MEMBER = {"group_id": "without members", "member_id": "nobody", "generation_id": 1}
V3_AND_BELOW = {"v3_and_below_transactional_id": "tx", "v3_and_below_producer_id": 7, "v3_and_below_producer_epoch": 0}


def requests(topic_id):
    """One request of each API with the fields of every version; versions take what they know."""
    topic = {"name": "t", "topic": "t", "topic_id": topic_id}
    produced = {**topic, "partition_data": [{"index": 0, "records": batch([b"x"])}]}
    fetched = {**topic, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]}
    listed = {**topic, "partitions": [{"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}]}
    offset = {**topic, "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]}
    asked_offsets = {**topic, "partition_indexes": PARTITIONS}
    added = [{"name": "t", "partitions": PARTITIONS}]
    created = {"name": "u", "num_partitions": 1, "replication_factor": 1}
    return {
        "Produce": {"acks": 1, "timeout": 1000, "topic_data": [produced]},
        "Fetch": {"max_wait": 0, "min_bytes": 0, "topics": [fetched], "session_epoch": -1},
        "ListOffsets": {"replica_id": -1, "topics": [listed]},
        "Metadata": {"topics": [{"name": "t"}], "allow_auto_topic_creation": False},
        "OffsetCommit": {"group_id": "g", "generation_id_or_member_epoch": -1, "topics": [offset]},
        "OffsetFetch": {
            "group_id": "g",
            "topics": [asked_offsets],
            "groups": [{"group_id": "g", "topics": [asked_offsets]}],
        },
        "FindCoordinator": {"key": "g", "key_type": 0, "coordinator_keys": ["g"]},
        "JoinGroup": {
            **MEMBER,
            "session_timeout": 10_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
        "SyncGroup": MEMBER,
        "Heartbeat": MEMBER,
        "LeaveGroup": {**MEMBER, "members": [MEMBER]},
        "DescribeGroups": {"groups": ["without members"]},
        "ListGroups": {},
        "SaslHandshake": {"mechanism": "PLAIN"},
        "SaslAuthenticate": {"auth_bytes": b""},
        "ApiVersions": {"client_software_name": "test", "client_software_version": "1"},
        "CreateTopics": {"topics": [created], "timeout": 1000},
        "DeleteTopics": {"topics": [{"name": "t"}], "topic_names": ["t"], "timeout": 1000},
        "InitProducerId": {"transactional_id": None, "transaction_timeout": 1000},
        "AddPartitionsToTxn": {
            **V3_AND_BELOW,
            "v3_and_below_topics": added,
            "transactions": [{**IDENTITY, "topics": added}],
        },
        "AddOffsetsToTxn": {**IDENTITY, "group_id": "g"},
        "EndTxn": {**IDENTITY, "committed": True},
        "TxnOffsetCommit": {**IDENTITY, "group_id": "g", "topics": [offset]},
        "DescribeConfigs": {"resources": [{"resource_type": 2, "resource_name": "t", "configuration_keys": None}]},
        "CreatePartitions": {"topics": [{"name": "t", "count": 2, "assignments": None}], "timeout": 1000},
        "DescribeCluster": {"include_cluster_authorized_operations": True},
        "DescribeTransactions": {"transactional_ids": ["tx"]},
        "DescribeTopicPartitions": {"topics": [{"name": "t"}], "response_partition_limit": 1, "cursor": None},
        "ListTransactions": {"state_filters": ["Ongoing", "nope"]},
    }


UNKNOWN_ID = "invalid_producer_id_mapping"
"""No transactional id was initialised: what these APIs have to find out."""

EXPECTED_ERRORS: dict[object, set[str]] = {
    "SaslHandshake": {"illegal_sasl_state"},
    "SaslAuthenticate": {"illegal_sasl_state"},
    "AddPartitionsToTxn": {UNKNOWN_ID},
    "AddOffsetsToTxn": {UNKNOWN_ID},
    "EndTxn": {UNKNOWN_ID},
    "TxnOffsetCommit": {UNKNOWN_ID},
    "DescribeTransactions": {"transactional_id_not_found"},
    "JoinGroup": {"unknown_member_id"},
    "SyncGroup": {"unknown_member_id"},
    "Heartbeat": {"unknown_member_id"},
    "LeaveGroup": {"unknown_member_id"},
    ("DescribeGroups", 6): {"group_id_not_found"},
}


def errors(answer):
    """Every error code anywhere in an answer."""
    for name in getattr(answer, "__slots__", ()):
        value = getattr(answer, name)
        if name in {"error_code", "partition_error_code"}:
            yield value.name
        for nested in value if isinstance(value, tuple) else (value,):
            yield from errors(nested)


@pytest.fixture(scope="module")
def shared():
    with TestBroker() as broker:
        yield broker


@pytest.mark.parametrize(("api", "version"), OFFERED)
def test_every_offered_version_is_answered(shared, api, version):
    shared.create_topic("t")
    with PlainClient(shared.bootstrap_servers) as client:
        topic_id = client.ask("Metadata", 12, topics=[{"name": "t"}]).topics[0].topic_id
        answer = client.ask(api, version, **requests(topic_id)[api])
    for topic in shared.topics:
        shared.delete_topic(topic)

    assert set(errors(answer)) - {"none"} == EXPECTED_ERRORS.get((api, version), EXPECTED_ERRORS.get(api, set()))


def test_every_api_has_a_handler_and_a_row_in_each_release():
    before_2_8 = {"DescribeCluster", "DescribeTransactions", "ListTransactions", "DescribeTopicPartitions"}
    younger = {
        "2.1": before_2_8,
        "2.4": before_2_8,
        "2.8": {"DescribeTransactions", "ListTransactions", "DescribeTopicPartitions"},
        "3.5": {"DescribeTopicPartitions"},
    }
    for name, release in RELEASES.items():
        assert set(release.versions) | younger.get(name, set()) == set(HANDLED)


def test_an_api_younger_than_the_release_is_hung_up_on():
    with TestBroker(like="2.8") as broker, PlainClient(broker.bootstrap_servers) as client:
        client.tell("ListTransactions", 0)
        assert client.is_hung_up()


def test_an_api_younger_than_the_release_cannot_be_narrowed():
    with pytest.raises(ConfigError, match=r"api_versions names ListTransactions; TestBroker like='2.8' has Produce, "):
        TestBroker(like="2.8", api_versions={"ListTransactions": (0, 0)})


RECORDS = batch([b"x"])
TOPIC_ID = uuid.UUID(int=7)


def produce(acks):
    partitions = [{"index": index, "records": RECORDS} for index in (0, 1)]
    return {"acks": acks, "timeout": 10_000, "topic_data": [{"name": "t", "partition_data": partitions}]}


def fail():
    raise ArithmeticError("a handler that divides by zero")


@pytest.mark.parametrize(("api", "version"), OFFERED)
def test_a_handler_that_raises_is_answered_in_the_form_of_its_api(broker, client, api, version):
    broker.faults.run(api, fail)

    answer = client.ask(api, version, **requests(TOPIC_ID)[api])

    said = answer.topics[0] if api == "Metadata" else answer  # its own code, since version 13, is another matter
    assert set(errors(said)) == {"unknown_server_error"}
    assert client.ask("Metadata", 9, topics=[]).brokers


def test_with_acks_0_a_handler_that_raises_closes_the_connection(broker, client):
    broker.faults.run("Produce", fail)
    client.tell("Produce", 9, **produce(0))

    assert client.is_hung_up()


def test_an_error_with_acks_0_is_logged_as_kafka_logs_it(caplog):
    caplog.set_level(logging.INFO, "spark_kafka_sink.testing.broker")
    with TestBroker(like="3.9") as broker, PlainClient(broker.bootstrap_servers) as client:
        broker.create_topic("t")
        correlation_id = client.tell("Produce", 9, **produce(0))
        assert client.is_hung_up()

    assert [record.getMessage() for record in caplog.records] == [
        f"Closing connection due to error during produce request with correlation id {correlation_id} from client id "
        "plain with ack=0\nTopic and partition to exceptions: "
        "t-0 -> null, t-1 -> org.apache.kafka.common.errors.UnknownTopicOrPartitionException"
    ]


# docs/test-broker.md says of each API and each setting whether TestBroker emulates, ignores or refuses it.

API_NAMES = {key: name for name, key in KAFKAS.items()}


def names(entries, *statuses):
    return sorted(name for entry in entries if not statuses or entry.status in statuses for name in entry.names)


def test_every_api_of_kafka_is_listed():
    assert names(APIS) == sorted(API_NAMES.values())


def test_the_announced_apis_are_those_that_are_not_refused(broker, client):
    answer = client.ask("ApiVersions", 3, client_software_name="test", client_software_version="1")
    announced = sorted(API_NAMES[each.api_key] for each in answer.api_keys)
    assert announced == names(APIS, EmulationStatus.EMULATED, EmulationStatus.NO_EFFECT)


def test_the_topic_settings_it_takes_are_those_that_are_not_refused():
    assert names(TOPIC_CONFIGS, EmulationStatus.EMULATED, EmulationStatus.NO_EFFECT) == sorted(TOPIC_DEFAULTS)


@pytest.mark.parametrize("name", names(TOPIC_CONFIGS, EmulationStatus.REFUSED))
def test_a_refused_topic_setting_is_an_error(broker, name):
    with pytest.raises(BrokerError, match=f"Unknown topic config name: {name}"):
        broker.create_topic("u", configs={name: "1"})


def test_every_broker_setting_it_takes_is_listed():
    assert names(BROKER_CONFIGS) == sorted(BROKER_DEFAULTS)
    with pytest.raises(ConfigError, match=r"log.retention.ms is not a setting of TestBroker"):
        TestBroker(config={"log.retention.ms": 1})
