"""Brokers from Kafka 2.1 on, others of their age, and clusters that are being upgraded."""

from itertools import count

import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.errors import UnsupportedVersionError
from spark_kafka_sink.producer.transaction_requests import ConsumerGroupMetadata, OffsetAndMetadata
from spark_kafka_sink.testing import TestBroker
from spark_kafka_sink.testing.broker.faults import KEPT
from tests.support.waiting import DEADLINE_S

LIKE_EVENT_HUBS = {"Metadata": (0, 5), "Produce": (0, 7), "ApiVersions": (0, 1)}
OLDEST = {
    "Metadata": (0, 4), "Produce": (0, 3), "ApiVersions": (0, 0), "FindCoordinator": (0, 1), "InitProducerId": (0, 0),
    "AddPartitionsToTxn": (0, 0), "AddOffsetsToTxn": (0, 0), "TxnOffsetCommit": (0, 0), "EndTxn": (0, 0),
}  # fmt: skip
AGES = [
    ("2.1", {}, {"Produce": 7, "Metadata": 7, "InitProducerId": 1, "ApiVersions": 2}),
    ("2.4", {}, {"Produce": 8, "Metadata": 9, "InitProducerId": 2, "ApiVersions": 3}),
    ("2.8", {}, {"Produce": 9, "Metadata": 11, "InitProducerId": 4, "ApiVersions": 3}),
    ("3.9", {}, {"Produce": 11, "Metadata": 12, "InitProducerId": 5, "ApiVersions": 4}),
    ("4.1", {}, {"Produce": 13, "Metadata": 13, "InitProducerId": 5, "ApiVersions": 4}),
    ("2.1", LIKE_EVENT_HUBS, {"Produce": 7, "Metadata": 5, "InitProducerId": 1, "ApiVersions": 1}),
    ("2.1", OLDEST, {"Produce": 3, "Metadata": 4, "InitProducerId": 0, "ApiVersions": 0}),
]


@pytest.fixture(params=AGES, ids=["2.1", "2.4", "2.8", "3.9", "4.1", "like Event Hubs", "oldest versions"])
def aged(request):
    like, narrowed, used = request.param
    with TestBroker(nodes=2, like=like, api_versions=narrowed) as broker:
        broker.create_topic("t", 3)
        yield broker, used


def config(broker, **more):
    return {"bootstrap.servers": broker.bootstrap_servers, **{name.replace("_", "."): more[name] for name in more}}


def values(broker):
    return broker.topic("t").values()


def versions(broker, api):
    return {each.version for each in broker.requests.of(api)}


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_rows_reach_brokers_of_every_age_in_the_highest_version_that_they_speak(aged, codec):
    broker, used = aged
    sent = [b"v%d" % number for number in range(500)]
    with KafkaProducer(config(broker, compression_type=codec)) as producer:
        futures = [producer.send(ProducerRecord("t", value, partition=0)) for value in sent]
        producer.flush()
        assert [each.result(0).offset for each in futures] == [*range(500)]
    assert values(broker) == sent
    assert {api: versions(broker, api) for api in used if api != "ApiVersions"} == {
        api: {version} for api, version in used.items() if api != "ApiVersions"
    }
    assert used["ApiVersions"] in versions(broker, "ApiVersions")


def test_transactions_are_committed_and_aborted_on_brokers_of_every_age(aged):
    broker, _ = aged
    with KafkaProducer(config(broker, transactional_id="x")) as producer:
        producer.init_transactions()
        for value, commit in ((b"aborted", False), (b"committed", True)):
            producer.begin_transaction()
            producer.send(ProducerRecord("t", value, partition=0))
            offsets = {TopicPartition("t", 1): OffsetAndMetadata(7)}
            producer.send_offsets_to_transaction(offsets, ConsumerGroupMetadata("g"))
            (producer.commit_transaction if commit else producer.abort_transaction)()
    assert values(broker) == [b"committed"]


def test_a_member_of_a_group_needs_kip_447():
    with TestBroker(like="2.4") as broker, KafkaProducer(config(broker, transactional_id="x")) as producer:
        broker.create_topic("t", 3)
        producer.init_transactions()
        producer.begin_transaction()
        offsets = {TopicPartition("t", 1): OffsetAndMetadata(7)}
        with pytest.raises(UnsupportedVersionError, match=r"TxnOffsetCommit in versions 0 to 2.*member and generation"):
            producer.send_offsets_to_transaction(offsets, ConsumerGroupMetadata("g", 1, "m"))


@pytest.mark.parametrize("api", ["Produce", "Metadata"])
def test_an_error_of_an_old_version_has_its_code(api):
    with TestBroker(like="2.1") as broker, KafkaProducer(config(broker, retries=1, retry_backoff_ms=1)) as producer:
        broker.create_topic("t")
        broker.faults.answer(api, "CORRUPT_MESSAGE" if api == "Produce" else "LEADER_NOT_AVAILABLE", topic="t")
        assert producer.send(ProducerRecord("t", b"v")).result(30).offset == 0
        assert len(broker.requests.of(api)) > 1


@pytest.mark.parametrize("options", [{}, {"enable_idempotence": False, "max_in_flight_requests_per_connection": 1}])
def test_a_leader_moves_between_brokers_of_different_age_with_batches_in_flight(options):
    """As in a cluster that is being upgraded: every tenth request finds that its partition has just moved."""
    old = {"Produce": (0, 7), "Metadata": (0, 7), "ApiVersions": (0, 2), "InitProducerId": (0, 1)}
    with TestBroker(nodes=2) as broker:
        broker.set_api_versions(2, old)
        broker.create_topic("t", 1, replication=2)
        seen = count(1)

        def move():
            if next(seen) % 10 == 0:
                broker.move_leader("t", 0, 3 - broker.leader("t", 0))

        broker.faults.run("Produce", move, times=KEPT)
        sent = [b"v%d" % number for number in range(2000)]
        more = {"linger_ms": 0, "batch_size": 200, "retry_backoff_ms": 1, "retry_backoff_max_ms": 5}
        with KafkaProducer(config(broker, **more, **options)) as producer:
            futures = [producer.send(ProducerRecord("t", value, partition=0)) for value in sent]
            producer.flush()
            offsets = [each.result(0).offset for each in futures]
        assert values(broker) == sent
        assert offsets == [*range(len(sent))]
        produced = broker.requests.of("Produce")
    used = {(each.node, each.version) for each in produced}
    assert {version for node, version in used if node == 2} == {7}
    assert {version for node, version in used if node == 1} <= {12, 13}  # topic ids are those of node 1's metadata
    assert {node for node, _ in used} == {1, 2}


def test_an_older_broker_tells_no_topic_ids_and_a_newer_leader_gets_names():
    with TestBroker(api_versions={"Metadata": (0, 9)}) as broker:
        broker.create_topic("t")
        with KafkaProducer(config(broker)) as producer:
            assert producer.send(ProducerRecord("t", b"v")).result(30).offset == 0
        assert versions(broker, "Produce") == {12}


WITHOUT_IDEMPOTENCE = {"InitProducerId": None}


def test_brokers_without_idempotence_get_rows_in_order_with_one_warning(caplog):
    with TestBroker(nodes=2, api_versions=WITHOUT_IDEMPOTENCE) as broker:
        broker.create_topic("t", 4)
        refused = broker.faults.answer("Produce", "NOT_ENOUGH_REPLICAS", topic="t", partition=0, times=3)
        sent = [b"v%d" % number for number in range(300)]
        with KafkaProducer(config(broker, batch_size=200, linger_ms=0, retry_backoff_ms=1)) as producer:
            futures = [producer.send(ProducerRecord("t", value, partition=0)) for value in sent]
            producer.flush()
            assert [each.result(0).offset for each in futures] == [*range(300)]
        assert refused.hits == 3
        assert values(broker) == sent
        assert {batch.header.producer_id for batch in broker.topic("t").batches(0)} == {-1}
        assert versions(broker, "InitProducerId") == set()
    (warning,) = [each.getMessage() for each in caplog.records if "idempotence" in each.getMessage()]
    assert "does not support InitProducerId" in warning
    assert "one request at a time to each broker (max.in.flight.requests.per.connection) keeps their order" in warning


@pytest.mark.parametrize(("in_flight", "kept"), [(1, True), (3, False)])
def test_incident_the_warning_said_that_one_request_in_flight_may_change_the_order(caplog, in_flight, kept):
    with TestBroker(api_versions=WITHOUT_IDEMPOTENCE) as broker:
        broker.create_topic("t")
        with KafkaProducer(config(broker, max_in_flight_requests_per_connection=in_flight)) as producer:
            producer.send(ProducerRecord("t", b"v")).result(30)
    (warning,) = [each.getMessage() for each in caplog.records if "idempotence" in each.getMessage()]
    assert ("max.in.flight.requests.per.connection=1 keeps their order" in warning) is kept
    assert ("and their order may change" in warning) is not kept


@pytest.mark.parametrize(
    ("api_versions", "options", "says"),
    [
        ({"Produce": (0, 6)}, {"compression_type": "zstd"}, r"Produce in versions 0 to 6.*compression.type=zstd"),
        (WITHOUT_IDEMPOTENCE, {"enable_idempotence": True}, "InitProducerId.*enable.idempotence=true needs"),
    ],
    ids=["zstd before Kafka 2.1", "idempotence that was asked for"],
)
def test_what_an_option_needs_and_the_brokers_lack_is_an_error_that_names_it(api_versions, options, says):
    with TestBroker(like="2.1", api_versions=api_versions) as broker:
        broker.create_topic("t")
        with KafkaProducer(config(broker, **options)) as producer:
            future = producer.send(ProducerRecord("t", b"v"))
            with pytest.raises(UnsupportedVersionError, match=says):
                future.result(30)
        assert versions(broker, "Produce") == set()


def test_a_transactional_producer_needs_init_producer_id():
    with (
        TestBroker(api_versions=WITHOUT_IDEMPOTENCE) as broker,
        KafkaProducer(config(broker, transactional_id="x")) as producer,
        pytest.raises(UnsupportedVersionError, match="does not support InitProducerId"),
    ):
        producer.init_transactions()


@pytest.mark.parametrize("transactional", [True, False])
def test_a_broker_that_forgot_a_producer_whose_records_are_deleted_gets_its_next_rows(transactional):
    """Before Kafka 2.5 (KIP-360) it refuses their sequences: UNKNOWN_PRODUCER_ID with the log's new start."""
    with TestBroker(like="2.4") as broker:
        broker.create_topic("t")
        more = {"transactional_id": "x"} if transactional else {}
        with KafkaProducer(config(broker, retry_backoff_ms=1, **more)) as producer:
            if transactional:
                producer.init_transactions()
                producer.begin_transaction()
            producer.send(ProducerRecord("t", b"1")).result(30)
            if transactional:
                producer.commit_transaction()
                producer.begin_transaction()
            end = 2 if transactional else 1  # with the marker
            broker.delete_records("t", 0, end)
            broker.drop_producer_state("t", 0, refuse_unknown=True)
            futures = [producer.send(ProducerRecord("t", b"%d" % number)) for number in (2, 3)]
            if transactional:
                producer.commit_transaction()
            producer.flush()
            assert [each.result(30).offset for each in futures] == [end, end + 1]
        assert values(broker) == [b"2", b"3"]


def test_rows_of_two_topics_with_one_id_went_to_the_wrong_topic():
    """Metadata told one id for both, and Produce 13 names topics by their ids."""
    with TestBroker() as broker:
        broker.create_topic("t")
        broker.create_topic("u")
        topics = broker._started.state.cluster.topics
        topics["u"].id = topics["t"].id
        with KafkaProducer(config(broker)) as producer:
            producer.partitions_for("t")
            producer.partitions_for("u")
            for future in [producer.send(ProducerRecord(name, name.encode())) for name in ("t", "u") * 3]:
                future.result(DEADLINE_S)
        assert broker.topic("t").values() == [b"t"] * 3
        assert broker.topic("u").values() == [b"u"] * 3
        assert max(versions(broker, "Produce")) == 12


@pytest.mark.parametrize("like", ["2.1", "2.4", "4.1"])
def test_incident_a_duplicate_with_a_timestamp_after_the_year_9999_was_reported_as_failed(like):
    """The broker tells a duplicate's timestamp, which the client read into a datetime."""
    late = 253_402_300_800_000
    with TestBroker(like=like) as broker:
        broker.create_topic("t")
        broker.faults.drop_after("Produce")
        options = {"bootstrap.servers": broker.bootstrap_servers, "delivery.timeout.ms": 3_000}
        with KafkaProducer({**options, "request.timeout.ms": 1_000, "linger.ms": 0}) as producer:
            assert producer.send(ProducerRecord("t", b"v", timestamp=late)).result().timestamp == late
        assert [(record.value, record.timestamp) for record in broker.topic("t").records()] == [(b"v", late)]
