"""The independent reader of selftest and demo: librdkafka (confluent-kafka)."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator, Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka import KafkaError as LibrdkafkaError
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import ConfigError, KafkaError
from spark_kafka_sink.network.login.passwords import user_credentials
from spark_kafka_sink.network.security.stores import key_pair, read_files, trusted_certificates

DEADLINE_S: Final = 30.0
QUIET: Final = {"log_level": 0}
_POLL_S: Final = 0.1
_AT_ONCE: Final = 10_000
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def read_topic(client: Mapping[str, str], topic: str, partitions: int) -> Iterator[list[Message]]:
    """All committed records of the topic, as they come. ``client``: librdkafka's options of servers and security.

    Raises ``KafkaError`` if the topic cannot be read, or no record arrives for 30 s.
    """
    try:
        consumer = Consumer({
            **client, "group.id": topic, "enable.auto.commit": False,
            "enable.partition.eof": True, "check.crcs": True, **QUIET,
        })  # fmt: skip
    except KafkaException as error:  # such as certificates that its OpenSSL refuses
        raise KafkaError(f"{topic} could not be read: {error.args[0].str()}") from None
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        unread = set(range(partitions))
        deadline = time.monotonic() + DEADLINE_S
        while unread:
            messages = consumer.consume(_AT_ONCE, timeout=_POLL_S)
            for message in messages:
                if (end := message.error()) is None:
                    continue
                if end.code() == LibrdkafkaError.GROUP_AUTHORIZATION_FAILED:
                    continue  # it asks for the group's coordinator, though it needs no group
                if end.code() != LibrdkafkaError._PARTITION_EOF:
                    raise KafkaError(f"{topic} could not be read: {end.str()}")
                unread.discard(message.partition())  # a partition that grows meanwhile ends more than once
            if messages:
                deadline = time.monotonic() + DEADLINE_S
            elif time.monotonic() > deadline:
                raise KafkaError(f"{topic} could not be read: no record arrived for {DEADLINE_S:.0f} s.")
            yield [message for message in messages if not message.error()]
    finally:
        consumer.close()


def librdkafka_options(config: ProducerConfig) -> dict[str, str]:
    """librdkafka's options for servers, TLS and SASL, with secrets. Stores of any kind are passed on as PEM. Versions
    and ciphers of TLS are librdkafka's own. Raises ``ConfigError``.
    """
    protocol = config.security_protocol
    servers = ",".join(f"{host}:{port}" for host, port in config.bootstrap_servers)
    options = {"bootstrap.servers": servers, "security.protocol": protocol}
    if protocol.endswith("SSL"):
        options |= _tls(config)
    if protocol.startswith("SASL_"):
        if config.sasl_mechanism not in _MECHANISMS:
            raise ConfigError([
                f"sasl.mechanism={config.sasl_mechanism}: librdkafka logs in here with {', '.join(_MECHANISMS)}."
            ])  # fmt: skip
        username, password, _ = user_credentials(config)
        options |= {"sasl.mechanism": config.sasl_mechanism, "sasl.username": username, "sasl.password": password}
    return options


def _tls(config: ProducerConfig) -> dict[str, str]:
    config = config.with_credentials("ssl_")
    truststore, keystore = read_files(config)
    options = {"ssl.endpoint.identification.algorithm": config.ssl_endpoint_identification_algorithm or "none"}
    trusted = trusted_certificates(config, truststore)
    if trusted is not None:
        options["ssl.ca.pem"] = _pem(trusted)
    pair = key_pair(config, keystore)
    if pair is not None:
        key = pair.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        options |= {"ssl.certificate.pem": _pem(pair.chain), "ssl.key.pem": key.decode()}
    return options


def _pem(certificates: list[bytes]) -> str:
    return "".join(map(ssl.DER_cert_to_PEM_cert, certificates))
