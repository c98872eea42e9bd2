"""``compression.type`` of topics and of the broker."""

from __future__ import annotations

import pytest

from spark_kafka_sink.common.compression import CODEC_IDS
from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.records.batch import TRANSACTIONAL
from spark_kafka_sink.testing import TestBroker
from tests.contract.plain_client import PlainClient, batch

ZSTD = CODEC_IDS["zstd"]


def test_the_brokers_setting_is_the_default_of_topics() -> None:
    with TestBroker(config={"compression.type": "zstd"}) as broker, PlainClient(broker.bootstrap_servers) as client:
        broker.create_topic("t")
        broker.create_topic("u", configs={"compression.type": "producer"})
        for topic in ("t", "u"):
            client.produce(topic, batch([b"x"]))
        assert [broker.topic(topic).batches(0)[0].header.codec_id for topic in ("t", "u")] == [ZSTD, 0]
        assert broker.topic("t").values() == broker.topic("u").values() == [b"x"]


def test_a_transactional_batch_stays_transactional_and_its_marker_as_it_is(
    broker: TestBroker, client: PlainClient
) -> None:
    broker.set_topic_configs("t", {"compression.type": "zstd"})
    producer_id, epoch = client.init_producer_id("tx")
    records = batch([b"x"], producer=(producer_id, epoch), sequence=0, attributes=TRANSACTIONAL)
    client.produce("t", records, version=12, transactional_id="tx")
    ended = {"transactional_id": "tx", "producer_id": producer_id, "producer_epoch": epoch, "committed": True}
    client.ask("EndTxn", 5, **ended)

    stored, marker = broker.topic("t").batches(0)

    assert stored.header.attributes == TRANSACTIONAL | ZSTD
    assert (marker.header.is_control, marker.header.codec_id) == (True, 0)
    assert broker.topic("t").values() == [b"x"]


def test_a_codec_that_the_broker_does_not_know_is_refused() -> None:
    with pytest.raises(ConfigError, match="compression.type='zip' is none of uncompressed, zstd"):
        TestBroker(config={"compression.type": "zip"})
