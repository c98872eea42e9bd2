"""Receipts are read as a read_committed consumer would, once each, and followed; through TLS and SASL by librdkafka,
with options made from the producer's."""

import dataclasses
from contextlib import closing
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12

from examples.demo.librdkafka import librdkafka_options
from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import ConfigError, KafkaError
from spark_kafka_sink.exactly_once.receipts import WriteReceipt, receipt_columns
from spark_kafka_sink.producer.receipt import SendReceipt
from spark_kafka_sink.testing import Listener
from spark_kafka_sink.tools.exporter import TopicReceipts
from tests.contract.brokers import broker_with
from tests.contract.security.librdkafka import HUNG_UP

TOPIC = "read"
broker = broker_with(TOPIC, partitions=3)
RECEIPTS = [WriteReceipt(f"q{n}", n, 0, "t", 0, 5 * n, 5 * n + 4, 5, 50, 1000, 1010) for n in range(8)]


@pytest.fixture
def options(broker):
    return {"bootstrap.servers": broker.bootstrap_servers, "compression.type": "zstd"}


@pytest.fixture
def reader(broker):
    config = ProducerConfig.parse({"bootstrap.servers": broker.bootstrap_servers})
    reader = TopicReceipts(config, TOPIC, SystemClock())
    yield reader
    reader.close()


def send(producer, receipts):
    receipt = SendReceipt()
    producer._core.append_columns(TOPIC, receipt_columns(receipts), None, receipt)
    producer.flush()
    receipt.wait(10_000)


def read(reader):
    return sorted(reader.read(), key=lambda each: each.query)


def test_all_partitions_are_read_once_and_then_what_is_new(options, reader):
    with KafkaProducer(options) as producer:
        send(producer, RECEIPTS[:5])
        assert read(reader) == RECEIPTS[:5]
        assert read(reader) == []
        send(producer, RECEIPTS[5:])
        assert read(reader) == RECEIPTS[5:]


def test_aborted_receipts_are_left_out_and_open_ones_are_hidden(options, reader):
    with KafkaProducer({**options, "transactional.id": "tx"}) as producer:
        producer.init_transactions()
        expected = []
        for number, end in enumerate((producer.abort_transaction, producer.commit_transaction) * 2):
            producer.begin_transaction()
            part = [dataclasses.replace(each, batch=number) for each in RECEIPTS[:4]]
            send(producer, part)
            end()
            expected += part if number % 2 else []
        producer.begin_transaction()
        send(producer, RECEIPTS[4:])
        assert sorted(reader.read(), key=lambda each: (each.batch, each.query)) == expected
        producer.commit_transaction()
        assert read(reader) == RECEIPTS[4:]


def test_foreign_records_are_counted_and_left_out(options, reader):
    with KafkaProducer(options) as producer:
        producer.send(ProducerRecord(TOPIC, b"\xff{}", partition=1))
        producer.send(ProducerRecord(TOPIC, None, partition=1))
        producer.send(ProducerRecord(TOPIC, RECEIPTS[0].line().encode(), partition=1))
    assert read(reader) == RECEIPTS[:1]
    assert reader.foreign == 2


def test_a_topic_that_is_not_there_is_an_error(broker):
    reader = TopicReceipts(ProducerConfig.parse({"bootstrap.servers": broker.bootstrap_servers}), "none", SystemClock())
    with pytest.raises(KafkaError, match="receiptsTopic none: there is no such topic. Create it"):
        list(reader.read())
    reader.close()


RECEIPT = WriteReceipt("q", 1, 0, "t", 1, 10, 14, 5, 50, 1000, 1010)
LISTENERS = {
    "MUTUAL": Listener("SSL", client_auth="required"),
    "SASL": Listener("SASL_PLAINTEXT"),
    "SASL_TLS": Listener("SASL_SSL"),
    "ELSEWHERE": Listener("SSL", host_names=("elsewhere.example",)),
}
secured = broker_with("receipts", listeners=LISTENERS)


def written(options):
    producer = Producer({**librdkafka_options(ProducerConfig.parse(options)), "message.timeout.ms": 10_000})
    producer.produce("receipts", RECEIPT.line().encode())
    return producer.flush(15) == 0


def pkcs12_keystore(options, tmp_path):
    """The client's key as a PKCS12 file, which librdkafka gets as PEM."""
    chain = x509.load_pem_x509_certificates(options.pop("ssl.keystore.certificate.chain").encode())
    key = load_pem_private_key(options.pop("ssl.keystore.key").encode(), None)
    file = tmp_path / "keystore.p12"
    file.write_bytes(pkcs12.serialize_key_and_certificates(b"me", key, chain[0], None, BestAvailableEncryption(b"pw")))
    return options | {"ssl.keystore.location": str(file), "ssl.keystore.password": "pw", "ssl.keystore.type": "PKCS12"}


@pytest.mark.parametrize("listener", LISTENERS)
def test_receipts_are_read_through_each_listener(secured, listener, tmp_path):
    options = secured.client_options(listener)
    if listener == "MUTUAL":
        options = pkcs12_keystore(options, tmp_path)
    if listener == "ELSEWHERE":
        options["ssl.endpoint.identification.algorithm"] = ""
    assert written(options)
    with closing(TopicReceipts(ProducerConfig.parse(options), "receipts", SystemClock())) as reader:
        assert [*reader.read()] == [RECEIPT]
    assert {attempt.error for attempt in secured.authentications.failed()} <= {HUNG_UP}


def test_a_mechanism_that_librdkafka_is_not_given_is_refused(secured):
    config = replace(ProducerConfig.parse(secured.client_options("SASL")), sasl_mechanism="OTHER")
    with pytest.raises(ConfigError, match="sasl.mechanism=OTHER: librdkafka logs in here with PLAIN"):
        librdkafka_options(config)
