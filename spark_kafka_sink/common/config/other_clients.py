"""Options of Kafka's other clients and of schema registries, because one file of options may serve all clients of a
cluster.

Java's producer ignores them with a warning, and so does librdkafka. An option for which librdkafka or kafka-python has
another name than Java's producer is refused, and the error says what to write instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

CONSUMER_OPTIONS: Final = frozenset({
    "auto.commit.interval.ms", "auto.offset.reset", "check.crcs", "default.api.timeout.ms",
    "enable.auto.commit", "exclude.internal.topics", "fetch.max.bytes", "fetch.max.wait.ms", "fetch.min.bytes",
    "group.id", "group.instance.id", "group.protocol", "group.remote.assignor", "heartbeat.interval.ms",
    "isolation.level", "key.deserializer", "max.partition.fetch.bytes", "max.poll.interval.ms", "max.poll.records",
    "partition.assignment.strategy", "session.timeout.ms", "share.acknowledgement.mode",
    "share.acquire.mode", "value.deserializer",
})  # fmt: skip

_OTHERS: Final = CONSUMER_OPTIONS | {
    "bootstrap.controllers",  # of the admin client; what follows is of Kafka Streams
    "acceptable.recovery.lag", "application.id", "application.server", "buffered.records.per.partition",
    "cache.max.bytes.buffering", "commit.interval.ms", "default.key.serde", "default.value.serde",
    "default.timestamp.extractor", "deserialization.exception.handler", "max.task.idle.ms", "max.warmup.replicas",
    "num.standby.replicas", "num.stream.threads", "poll.ms", "probing.rebalance.interval.ms",
    "processing.exception.handler", "processing.guarantee", "production.exception.handler",
    "repartition.purge.interval.ms", "replication.factor", "rocksdb.config.setter", "state.cleanup.delay.ms",
    "state.dir", "statestore.cache.max.bytes", "task.timeout.ms", "topology.optimization", "upgrade.from",
    "auto.register.schemas", "key.subject.name.strategy", "normalize.schemas",  # of a registry's serializers
    "specific.avro.reader", "use.latest.version", "value.subject.name.strategy",
}  # fmt: skip
_BEGINNINGS: Final = (
    "schema.registry.", "basic.auth.", "bearer.auth.", "apicurio.registry.",
    "admin.", "consumer.", "main.consumer.", "restore.consumer.", "global.consumer.", "producer.",
)  # fmt: skip


def is_of_other_client(name: str) -> bool:
    """Whether the option is another client's or a registry's. False for a name that the producer has, too."""
    return name in _OTHERS or (name.startswith(_BEGINNINGS) and name != "producer.type")  # which is of Kafka 0.8


_LOGIN: Final = "user and password are in {prefix}sasl.jaas.config, with the login module of {prefix}sasl.mechanism"
_LOGIN_LINE: Final = (
    f"{_LOGIN}. Write for PLAIN (for SCRAM with org.apache.kafka.common.security.scram.ScramLoginModule): "
    "{prefix}sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="USER" password="PASSWORD";'
)
_CA: Final = "write {prefix}ssl.truststore.location, which takes a PEM file as well"
_KEY: Final = "write {prefix}ssl.keystore.location, which takes a PEM file with the key and its certificates"

_JAVA_NAMES: Final[Mapping[str, str]] = MappingProxyType({
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
    "partitioner": (
        "write {prefix}partitioner.class, as crc32 for librdkafka's consistent_random, which is its default, or as "
        "default for murmur2_random"
    ),
    "queue.buffering.max.ms": "write {prefix}linger.ms",
    "queue.buffering.max.kbytes": "write {prefix}buffer.memory, in bytes",
    "message.max.bytes": "write {prefix}max.request.size",
    "message.timeout.ms": "write {prefix}delivery.timeout.ms",
})  # fmt: skip
"""Options of librdkafka and kafka-python, each with the sentence that ends its error."""


def in_javas_words(name: str, written: str, prefix: str = "") -> str | None:
    """Why an option of librdkafka or kafka-python is refused and what to write instead; None for any other name.

    ``written``: the name as it was given, with its prefix if it had one. ``prefix``: the prefix of the options to write
    instead.
    """
    instead = _JAVA_NAMES.get(name.replace("_", "."))
    if instead is None:
        return None
    end = "" if instead.endswith(";") else "."  # a line to copy ends the text
    return f"{written} is not an option of Kafka's Java producer: {instead.format(prefix=prefix)}{end}"
