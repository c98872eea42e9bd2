"""Names of other Kafka clients and of earlier releases, each with the sentence that ends its error.

The table of earlier releases can be emptied at 1.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_LOGIN: Final = "user and password are in {prefix}sasl.jaas.config, with the login module of {prefix}sasl.mechanism"
_LOGIN_LINE: Final = (
    f"{_LOGIN}. Write for PLAIN (for SCRAM with org.apache.kafka.common.security.scram.ScramLoginModule): "
    "{prefix}sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="USER" password="PASSWORD";'
)
_CA: Final = "write {prefix}ssl.truststore.location, which takes a PEM file as well"
_KEY: Final = "write {prefix}ssl.keystore.location, which takes a PEM file with the key and its certificates"

_OTHER_CLIENTS: Final[Mapping[str, str]] = MappingProxyType({
    "sasl.username": _LOGIN_LINE,
    "sasl.password": _LOGIN,
    "sasl.plain.username": _LOGIN_LINE,
    "sasl.plain.password": _LOGIN,
    "sasl.oauthbearer.client.id": "write {prefix}sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "write {prefix}sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.method": "leave it out; with a token endpoint the method is oidc",
    "ssl.ca.location": _CA,
    "ssl.cafile": _CA,
    "ssl.ca.pem": "write {prefix}ssl.truststore.certificates",
    "ssl.certificate.location": _KEY,
    "ssl.certfile": _KEY,
    "ssl.key.location": _KEY,
    "ssl.keyfile": _KEY,
    "enable.ssl.certificate.verification": (
        "certificates are always verified; an empty {prefix}ssl.endpoint.identification.algorithm accepts any host name"
    ),
    "queue.buffering.max.ms": "write {prefix}linger.ms",
    "queue.buffering.max.kbytes": "write {prefix}buffer.memory, in bytes",
    "message.max.bytes": "write {prefix}max.request.size",
    "message.timeout.ms": "write {prefix}delivery.timeout.ms",
})  # fmt: skip
"""Options of librdkafka and kafka-python."""

_RECEIPTS: Final = "set receiptsTopic, and read the topic or its metrics (spark-kafka-sink exporter)"
_LEDGER: Final = "the name is ledgerTopic (--ledger-topic), and the default is __pykafka_ledger"
_SCRAPED: Final = "let a collector scrape the exporter"
_LETTERS: Final = "set deadLetterTopic; the page Operations says how to create the topic so that it takes whole rows"
_PARTITIONER: Final = "the page Recipes has it as a partitioner of your own, in ten lines"

_EARLIER: Final[Mapping[str, str]] = MappingProxyType({
    "certify": "use selftest",
    "--commit-log-topic": _LEDGER,
    "commitLogTopic": _LEDGER,
    "deadLetterName": _LETTERS,
    "deadLetterPath": _LETTERS,
    "demo": "run make demo in a clone of the repository, or selftest",
    "fnv1a": _PARTITIONER,
    "murmur3": _PARTITIONER,
    "neverRepeated": "set txnAppId and txnVersion; for a one-off, any unique name and version 0",
    "perf": "run kafka-producer-perf-test, which Kafka brings",
    "receipts": _RECEIPTS,
    "receiptsPath": _RECEIPTS,
    "ReceiptsListener": _RECEIPTS,
    "WrittenBatch": _RECEIPTS,
    "--otlp": _SCRAPED,
    "--otlp-interval": _SCRAPED,
    "--path": _RECEIPTS,
    "--print-completion": "type the command, or look it up with --help",
})  # fmt: skip
"""Options, their values, commands and public names of earlier releases."""

_SPELLINGS: Final = MappingProxyType({name.lower(): name for name in _EARLIER})


def removed_name(name: str, written: str, prefix: str = "") -> str | None:
    """Why a name is refused and what to use instead; None for a name that is in neither table. ``written``: the name
    as it was given, with its prefix if it had one. ``prefix``: that of the options to write instead.
    """
    if (instead := _OTHER_CLIENTS.get(name.replace("_", "."))) is not None:
        end = "" if instead.endswith(";") else "."  # a line to copy ends the text
        return f"{written} is not an option of Kafka's Java producer: {instead.format(prefix=prefix)}{end}"
    if (earlier := _SPELLINGS.get(name.lower())) is not None:
        # Options come in lower case.
        return f"{earlier if written.islower() else written} was removed: {_EARLIER[earlier].format(prefix=prefix)}."
    return None
