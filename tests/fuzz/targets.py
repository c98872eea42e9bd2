"""The targets: everything in the package that reads bytes from outside, with the errors that it may raise."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Final

from hypothesis import strategies as st

from spark_kafka_sink.common.config.jaas import JaasError
from spark_kafka_sink.errors import (
    ConfigError,
    CorruptRecordError,
    KafkaError,
    LoginError,
    NetworkError,
    SaslAuthenticationError,
    WrongProtocolError,
)
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.network.login.http import HttpExchangeError
from spark_kafka_sink.schemas.encoding.encoder import InvalidSchemaError, SchemaMismatchError
from spark_kafka_sink.schemas.registry.schema import UnreadableResponseError
from spark_kafka_sink.tools.cli.console_producer import LineError
from tests.fuzz import of_logins, of_records, of_schemas, of_security, of_wire
from tests.fuzz.mutations import inputs
from tests.unit.security.test_stores import SECRET

Read = Callable[[bytes], object]


@dataclass(frozen=True)
class Target:
    """Functions that read the same kind of bytes. Each raises nothing but ``errors``, whose traces lack ``secret``.

    ``make_seeds``: what they read without an error. ``tokens``: words of the format.
    """

    name: str
    reads: tuple[Read, ...]
    make_seeds: Callable[[], Sequence[bytes]]
    errors: tuple[type[Exception], ...] = ()
    tokens: tuple[bytes, ...] = ()
    is_json: bool = False
    secret: str = ""

    @cached_property
    def seeds(self) -> Sequence[bytes]:
        return self.make_seeds()

    @cached_property
    def inputs(self) -> st.SearchStrategy[bytes]:
        return inputs(self.seeds, self.tokens, is_json=self.is_json)

    def read(self, data: bytes) -> list[Exception]:
        """Calls each function. Returns the allowed errors; raises any other."""
        allowed: list[Exception] = []
        for read in self.reads:
            try:
                read(data)
            except self.errors as error:
                allowed.append(error)
        if self.secret:
            shown = "".join(line for error in allowed for line in traceback.format_exception(error))
            assert self.secret not in shown, "an error, or one that caused it, shows the secret"
        return allowed


_STORES: Final = (of_security.trust, of_security.trust_with_password, of_security.pair)

_ALL: Final = (
    # What brokers send.
    Target("frames", (of_wire.frames,), of_wire.frame_seeds, (WrongProtocolError,), (b"HTTP", b"\x15\x03")),
    Target("responses", (of_wire.response,), of_wire.response_seeds, (KafkaError,), (b"name0", *of_wire.CONFIGS)),
    Target("produce-responses", (of_wire.produce_response,), of_wire.produce_seeds, (NetworkError,)),
    Target("handshakes", (of_wire.handshake,), of_wire.handshake_seeds, (KafkaError,)),
    Target(
        "scram", (of_wire.scram,), of_wire.scram_seeds, (SaslAuthenticationError,),
        (b"r=nonce", b"s=", b"i=4096", b"v=", b"e=", b"m=", b",", b"\n"), secret=SECRET,
    ),
    Target(
        "oauth-challenges", (of_logins.challenge,), of_logins.challenge_seeds, (SaslAuthenticationError,),
        secret=SECRET,
    ),
    Target("kerberos-offers", (of_logins.offer,), of_logins.offer_seeds, (SaslAuthenticationError,)),
    Target("batches", of_records.BATCHES, of_records.batch_seeds, (CorruptRecordError,)),
    Target("codecs", (of_records.decompressed,), of_records.codec_seeds, (CorruptRecordError,)),
    # What is in Kafka.
    Target(
        "ledger-records", (of_records.ledger_key, of_records.ledger_entry), of_records.ledger_record_seeds,
        (ExactlyOnceError,), is_json=True,
    ),
    Target("ledgers", of_records.LEDGERS, of_records.ledger_seeds, (CorruptRecordError, ExactlyOnceError)),
    Target("receipts", (of_records.receipt,), of_records.receipt_seeds, (ValueError,), is_json=True),
    # Files and texts of users.
    Target("jks", (*_STORES, *of_security.JKS), of_security.jks_seeds, (ConfigError,), secret=SECRET),
    Target("pkcs12", _STORES, of_security.pkcs12_seeds, (ConfigError,), secret=SECRET),
    Target(
        "pem", _STORES, of_security.pem_seeds, (ConfigError,), (b"-----BEGIN ", b"-----END ", b"CERTIFICATE-----"),
        secret=SECRET,
    ),
    Target("tls-contexts", (of_security.context,), of_security.context_seeds, (ConfigError,), secret=SECRET),
    Target(
        "jaas", (of_security.jaas, of_security.jaas_option), of_security.jaas_seeds, (JaasError, ConfigError),
        (b" required ", b"username=", b"password=", b'"', b";", b"org.apache.kafka."),
        secret=SECRET,
    ),
    Target(
        "properties", (of_security.properties, of_security.placeholders), of_security.properties_seeds,
        tokens=(b"\\u00e9", b"\\uD83D", b"\\\n", b"\\\r\n", b"${file:", b"${env:", b"}"),
    ),
    Target(
        "assertion-templates", (of_logins.template, of_logins.finished), of_logins.template_seeds, (LoginError,),
        is_json=True,
    ),
    Target(
        "private-keys", of_logins.PRIVATE_KEYS, of_logins.private_key_seeds, (LoginError,),
        (b"-----BEGIN ", b"-----END ", b"PRIVATE KEY-----", b"ENCRYPTED "), secret=SECRET,
    ),
    Target("checkpoint-metadata", (of_security.checkpoint,), of_security.checkpoint_seeds, is_json=True),
    Target("console-lines", of_security.LINES, of_security.line_seeds, (LineError,), (b"\t", b",", b":", b"NULL")),
    # What identity providers and registries send.
    Target("jwt", (of_security.token,), of_security.token_seeds, (LoginError,)),
    Target("jwt-claims", (of_security.claims,), of_security.claims_seeds, (LoginError,), is_json=True),
    Target(
        "token-responses", of_security.TOKEN_RESPONSES, of_security.token_response_seeds, (LoginError,), is_json=True
    ),
    Target(
        "http", (of_security.http,), of_security.http_seeds, (HttpExchangeError,),
        (b"\r\n", b"Content-Length: ", b"Transfer-Encoding: chunked\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"fff\r\n"),
        secret=of_security.PASSWORD,
    ),
    Target("locations", (of_security.location,), of_security.location_seeds, tokens=(b"http://", b"[", b"@", b"]")),
    Target("registry", of_schemas.RESPONSES, of_schemas.response_seeds, (UnreadableResponseError,), is_json=True),
    Target(
        "avro", of_schemas.AVRO, of_schemas.avro_seeds, (SchemaMismatchError,), of_schemas.AVRO_TOKENS, is_json=True
    ),
    Target("avro-imports", (of_schemas.avro_import,), of_schemas.avro_seeds, (InvalidSchemaError,), is_json=True),
    Target("descriptors", of_schemas.DESCRIPTORS, of_schemas.descriptor_seeds, (ConfigError, SchemaMismatchError)),
    Target("proto-texts", of_schemas.PROTO_TEXTS, of_schemas.proto_text_seeds, tokens=of_schemas.PROTO_TOKENS),
)  # fmt: skip

TARGETS: Final[Mapping[str, Target]] = MappingProxyType({each.name: each for each in _ALL})
