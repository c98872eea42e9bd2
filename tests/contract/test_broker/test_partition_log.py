"""Producers, offsets and contents of a partition."""

import pytest
from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.compression import CODEC_IDS
from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.records.batch import TRANSACTIONAL
from spark_kafka_sink.testing import StoredRecord, TestBroker
from spark_kafka_sink.testing.broker.state.producers import ProducerStates, SequenceRange, last_sequence
from tests.contract.plain_client import PlainClient, batch

LAST_SEQUENCE = 2**31 - 1


def test_sequences_wrap_around_to_0():
    states = ProducerStates()
    last = last_sequence(LAST_SEQUENCE - 1, 3)
    states.appended(7, 0, SequenceRange(LAST_SEQUENCE - 1, last, 0, 0))

    assert last == 0
    assert states.check(7, 0, 1) is ErrorCode.none
    assert states.check(7, 0, 2) is ErrorCode.out_of_order_sequence_number


@pytest.mark.parametrize(("refuse", "expected"), [(False, ["none", "none"]), (True, ["unknown_producer_id", "none"])])
def test_a_forgotten_producer_may_go_on_or_not(broker, client, refuse, expected):
    producer = client.init_producer_id()
    client.produce("t", batch([b"x"], producer=producer, sequence=0))
    broker.drop_producer_state("t", 0, refuse_unknown=refuse)

    errors = [
        client.produce("t", batch([b"x"], producer=who, sequence=sequence)).error_code.name
        for who, sequence in ((producer, 1), (client.init_producer_id(), 0))
    ]

    assert errors == expected


def test_stored_batches_carry_offset_and_leader_epoch(broker, client):
    client.produce("t", batch([b"a", b"b"]))
    broker.move_leader("t", 0, to=1)
    client.produce("t", batch([b"c"], timestamp=5))

    headers = [stored.header for stored in broker.topic("t").batches(0)]

    assert [(header.base_offset, header.partition_leader_epoch) for header in headers] == [(0, 0), (2, 1)]
    assert broker.topic("t").records()[-1] == StoredRecord(0, 2, 5, None, b"c", ())


def test_deleted_records_move_the_start(broker, client):
    for values in ([b"a"], [b"b", b"c"]):
        client.produce("t", batch(values))
    broker.delete_records("t", 0, before=2)

    assert broker.topic("t").values() == [b"c"]
    asked = [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -2}]}]
    (partition,) = client.ask("ListOffsets", 1, replica_id=-1, topics=asked).topics[0].partitions
    assert int(partition.offset) == 2


def test_the_brokers_codec_is_the_default_of_topics():
    with TestBroker(config={"compression.type": "zstd"}) as broker, PlainClient(broker.bootstrap_servers) as client:
        broker.create_topic("t")
        broker.create_topic("u", configs={"compression.type": "producer"})
        for topic in ("t", "u"):
            client.produce(topic, batch([b"x"]))
        assert [broker.topic(topic).batches(0)[0].header.codec_id for topic in ("t", "u")] == [CODEC_IDS["zstd"], 0]
        assert broker.topic("t").values() == broker.topic("u").values() == [b"x"]


def test_a_transactional_batch_stays_transactional_and_its_marker_as_it_is(broker, client):
    broker.set_topic_configs("t", {"compression.type": "zstd"})
    producer_id, epoch = client.init_producer_id("tx")
    records = batch([b"x"], producer=(producer_id, epoch), sequence=0, attributes=TRANSACTIONAL)
    client.produce("t", records, version=12, transactional_id="tx")
    ended = {"transactional_id": "tx", "producer_id": producer_id, "producer_epoch": epoch, "committed": True}
    client.ask("EndTxn", 5, **ended)

    stored, marker = broker.topic("t").batches(0)

    assert stored.header.attributes == TRANSACTIONAL | CODEC_IDS["zstd"]
    assert (marker.header.is_control, marker.header.codec_id) == (True, 0)
    assert broker.topic("t").values() == [b"x"]


def test_a_codec_that_the_broker_does_not_know_is_refused():
    with pytest.raises(ConfigError, match="compression.type='zip' is none of uncompressed, zstd"):
        TestBroker(config={"compression.type": "zip"})
