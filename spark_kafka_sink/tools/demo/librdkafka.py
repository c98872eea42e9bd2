"""The security options as librdkafka's, for the commands that read with confluent-kafka."""

from __future__ import annotations

import ssl

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.network.login.credentials import user_credentials
from spark_kafka_sink.network.security.stores import key_pair, read_files, trusted_certificates

_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def librdkafka_options(config: ProducerConfig) -> dict[str, str]:
    """Servers, TLS and SASL. Stores are handed over in PEM, whatever they are. Holds secrets.

    Raises ``ConfigError``. Versions and ciphers of TLS are librdkafka's own.
    """
    protocol = config.security_protocol
    servers = ",".join(f"{host}:{port}" for host, port in config.bootstrap_servers)
    options = {"bootstrap.servers": servers, "security.protocol": protocol}
    if protocol.endswith("SSL"):
        options |= _tls(config)
    if protocol.startswith("SASL_"):
        if config.sasl_mechanism not in _MECHANISMS:
            raise ConfigError([
                f"sasl.mechanism={config.sasl_mechanism}: this command reads with librdkafka, which logs in here with "
                f"{', '.join(_MECHANISMS)}."
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
