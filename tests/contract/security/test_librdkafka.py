"""librdkafka, with options made from the producer's, reads through TLS and SASL; so does the exporter."""

from contextlib import closing
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.exactly_once.receipts import WriteReceipt
from spark_kafka_sink.testing import Listener
from spark_kafka_sink.tools.exporter import TopicReceipts
from spark_kafka_sink.tools.librdkafka import librdkafka_options
from tests.contract.brokers import broker_with
from tests.contract.security.librdkafka import HUNG_UP

RECEIPT = WriteReceipt("q", 1, 0, "t", 1, 10, 14, 5, 50, 1000, 1010)
LISTENERS = {
    "MUTUAL": Listener("SSL", client_auth="required"),
    "SASL": Listener("SASL_PLAINTEXT"),
    "SASL_TLS": Listener("SASL_SSL"),
    "ELSEWHERE": Listener("SSL", host_names=("elsewhere.example",)),
}
broker = broker_with("receipts", listeners=LISTENERS)


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
def test_receipts_are_read_through_each_listener(broker, listener, tmp_path):
    options = broker.client_options(listener)
    if listener == "MUTUAL":
        options = pkcs12_keystore(options, tmp_path)
    if listener == "ELSEWHERE":
        options["ssl.endpoint.identification.algorithm"] = ""
    assert written(options)
    with closing(TopicReceipts(ProducerConfig.parse(options), "receipts", SystemClock())) as reader:
        assert [*reader.read()] == [RECEIPT]
    assert {attempt.error for attempt in broker.authentications.failed()} <= {HUNG_UP}


def test_a_mechanism_that_librdkafka_is_not_given_is_refused(broker):
    config = replace(ProducerConfig.parse(broker.client_options("SASL")), sasl_mechanism="OTHER")
    with pytest.raises(ConfigError, match="sasl.mechanism=OTHER: librdkafka logs in here with PLAIN"):
        librdkafka_options(config)
