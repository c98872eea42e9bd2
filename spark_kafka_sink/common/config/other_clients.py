"""Options of Kafka's other clients and of schema registries, which a file for all clients of a cluster may have.

Java's producer ignores them with a warning, and so does librdkafka.
"""

from __future__ import annotations

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
    """Whether the option is another client's or a registry's. A name that is the producer's, too, is no such option."""
    return name in _OTHERS or (name.startswith(_BEGINNINGS) and name != "producer.type")  # which is of Kafka 0.8
