"""Every option of Kafka's producer (``ProducerConfig`` 4.x) apart from TLS and SASL, which ``security_table`` has.

The code looks options up here and the documentation is generated from here; nowhere else is a default written down.
"""

from __future__ import annotations

from spark_kafka_sink.config.option import AT_LEAST_0, AT_LEAST_1, MINUS_1_OR_MORE, Kind, OneOf, Option, Range, Status
from spark_kafka_sink.config.security_table import SECURITY_OPTIONS

INT, LONG, BOOLEAN, STRING, LIST, CLASS = Kind.INT, Kind.LONG, Kind.BOOLEAN, Kind.STRING, Kind.LIST, Kind.CLASS
NO_EFFECT, NOT_YET, JVM_ONLY = Status.NO_EFFECT, Status.NOT_YET, Status.JVM_ONLY

SMALLEST_RECORD = 85
"""Bytes that Java's estimate gives a record without key, value and headers: no limit below it lets any record pass."""

_SERIALIZER = "hand over bytes or text columns as they are to be stored; encode them before the write"

PRODUCER_OPTIONS: tuple[Option, ...] = (
    Option("bootstrap.servers", LIST, None, "high",
           "Brokers to ask first, host:port separated by commas; the others are learnt from them. Required."),
    Option("acks", STRING, "all", "low",
           "Who must have a batch before it counts as written: all in-sync replicas, the leader (1), nobody (0).",
           OneOf(("all", "-1", "0", "1"))),
    Option("enable.idempotence", BOOLEAN, True, "low",
           "Retries write no record twice and keep the order. Needs acks=all, retries > 0, at most 5 in flight."),
    Option("retries", INT, 2147483647, "high",
           "Times a batch is sent again after an error that may pass; delivery.timeout.ms ends it earlier.",
           AT_LEAST_0),
    Option("delivery.timeout.ms", INT, 120000, "medium",
           "Time a batch has to succeed, retries included; at least linger.ms + request.timeout.ms.",
           AT_LEAST_0),
    Option("request.timeout.ms", INT, 30000, "medium",
           "Time a broker has to answer a request before it is sent again or fails.", AT_LEAST_1),
    Option("max.block.ms", LONG, 60000, "medium",
           "Time one send may wait for a topic's metadata and for room in buffer.memory, together. For columns "
           "(send_columns, append_columns) it begins anew after each wait for memory that was granted: one call may "
           "hold many times buffer.memory.", AT_LEAST_0),
    Option("max.in.flight.requests.per.connection", INT, 5, "low",
           "Requests sent to one broker and not answered yet; at most 5 while idempotence is on. Without idempotence "
           "only 1 keeps the order under retries.", AT_LEAST_1),
    Option("retry.backoff.ms", LONG, 100, "low",
           "Wait before a failed request is sent again; doubles up to retry.backoff.max.ms.", AT_LEAST_0),
    Option("retry.backoff.max.ms", LONG, 1000, "low",
           "Longest wait before a failed request is sent again.", AT_LEAST_0),
    Option("batch.size", INT, 16384, "medium",
           "Bytes one batch of one partition may hold; 0 gives every record a batch of its own.", AT_LEAST_0),
    Option("linger.ms", LONG, 5, "medium", "Time a batch that is not full waits for more records.", AT_LEAST_0),
    Option("buffer.memory", LONG, 33554432, "high",
           "Bytes of records that may wait in this process, at least batch.size; when used up, appends wait for "
           "max.block.ms.", AT_LEAST_0),
    Option("max.request.size", INT, 1048576, "medium",
           "Bytes one request, and so one record before compression, may have.", Range(SMALLEST_RECORD)),
    Option("compression.type", STRING, "none", "high", "Codec of whole batches.",
           OneOf(("none", "gzip", "snappy", "lz4", "zstd"))),
    Option("compression.gzip.level", INT, -1, "medium", "Level for compression.type=gzip; -1 is zlib's own default.",
           Range(1, 9, besides=-1)),
    Option("compression.lz4.level", INT, 9, "medium",
           "Level for compression.type=lz4; 9 is the fast compressor, as in Java's producer.", Range(1, 17)),
    Option("compression.zstd.level", INT, 3, "medium", "Level for compression.type=zstd; below 0 is faster than 1.",
           Range(-131072, 22)),
    Option("partitioner.class", CLASS, None, "medium",
           "How a row that names no partition gets one. default (or nothing): murmur2 of the key, else sticky, as in "
           "Kafka. murmur3 (mmh3), crc32 (librdkafka's consistent_random) and fnv1a (Sarama's hash): the same with "
           "another key hash. round_robin: in turn, keys ignored. package.module:Class: a Python class of your own, a "
           "Partitioner over columns or a RecordPartitioner. JVM classes are refused."),
    Option("partitioner.ignore.keys", BOOLEAN, False, "medium", "Spread keyed records like those without a key."),
    Option("partitioner.adaptive.partitioning.enable", BOOLEAN, True, "low",
           "Records without a key go more often to partitions whose broker keeps up."),
    Option("partitioner.availability.timeout.ms", LONG, 0, "low",
           "Records without a key avoid partitions whose broker took nothing for so long; 0 never does.", AT_LEAST_0),
    Option("client.id", STRING, "", "medium",
           "Name under which brokers see this client in their logs, metrics and quotas."),
    Option("client.dns.lookup", STRING, "use_all_dns_ips", "medium",
           "Try every address of a name in turn; or the same, with the bootstrap servers' addresses first replaced by "
           "their canonical names.",
           OneOf(("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"))),
    Option("send.buffer.bytes", INT, 131072, "medium", "SO_SNDBUF of each connection; -1 leaves it to the system.",
           MINUS_1_OR_MORE),
    Option("receive.buffer.bytes", INT, 32768, "medium", "SO_RCVBUF of each connection; -1 leaves it to the system.",
           MINUS_1_OR_MORE),
    Option("connections.max.idle.ms", LONG, 540000, "medium",
           "Close a connection after so long without traffic; -1 never does.", MINUS_1_OR_MORE),
    Option("reconnect.backoff.ms", LONG, 50, "low",
           "Wait before connecting again to the same broker; doubles up to reconnect.backoff.max.ms.", AT_LEAST_0),
    Option("reconnect.backoff.max.ms", LONG, 1000, "low",
           "Longest wait before connecting again; equals reconnect.backoff.ms when only that one is given.",
           AT_LEAST_0),
    Option("socket.connection.setup.timeout.ms", LONG, 10000, "medium",
           "Time a connection has to come up; doubles per failure up to socket.connection.setup.timeout.max.ms.",
           AT_LEAST_1),
    Option("socket.connection.setup.timeout.max.ms", LONG, 30000, "medium",
           "Longest time a connection has to come up.", AT_LEAST_1),
    Option("metadata.max.age.ms", LONG, 300000, "low",
           "Metadata older than this is fetched anew even when nothing failed.", AT_LEAST_0),
    Option("metadata.max.idle.ms", LONG, 300000, "low",
           "A topic not written to for so long is left out of metadata requests.", Range(5000)),
    Option("metadata.recovery.strategy", STRING, "rebootstrap", "low",
           "When no known broker answers: start again from bootstrap.servers, or go on trying (none).",
           OneOf(("rebootstrap", "none"), ignore_case=True)),
    Option("metadata.recovery.rebootstrap.trigger.ms", LONG, 300000, "low",
           "Time without metadata after which the client starts again from bootstrap.servers.", AT_LEAST_0),
    Option("security.protocol", STRING, "PLAINTEXT", "medium",
           "How to speak to brokers. This version speaks PLAINTEXT only.",
           OneOf(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), ignore_case=True)),
    Option("enable.metrics.push", BOOLEAN, True, "low",
           "Push client metrics to the cluster (KIP-714).", status=NO_EFFECT),
    Option("metrics.num.samples", INT, 2, "low", "Samples a metric is computed from.", AT_LEAST_1, NO_EFFECT),
    Option("metrics.recording.level", STRING, "INFO", "low", "How much detail metrics record.",
           OneOf(("INFO", "DEBUG", "TRACE")), NO_EFFECT),
    Option("metrics.sample.window.ms", LONG, 30000, "low",
           "Time one sample of a metric covers.", AT_LEAST_0, NO_EFFECT),
    Option("transaction.timeout.ms", INT, 60000, "low", "Time after which the broker aborts an open transaction.",
           AT_LEAST_1),
    Option("transactional.id", STRING, None, "low",
           "Name of a transactional producer; whoever takes it fences the one before. Not for the Spark sink, whose "
           "tasks would fence each other."),
    Option("transaction.two.phase.commit.enable", BOOLEAN, False, "low",
           "Transactions without timeout under an outside coordinator (KIP-939).",
           status=NOT_YET, instead="no released broker supports it; leave it out"),
    Option("key.serializer", CLASS, None, "high", "Java class that turns keys into bytes.",
           status=JVM_ONLY, instead=_SERIALIZER),
    Option("value.serializer", CLASS, None, "high", "Java class that turns values into bytes.",
           status=JVM_ONLY, instead=_SERIALIZER),
    Option("interceptor.classes", LIST, "", "low", "Java classes that see each record.",
           status=JVM_ONLY, instead="change the columns before the write"),
    Option("metric.reporters", LIST, "org.apache.kafka.common.metrics.JmxReporter", "low",
           "Java classes that receive metrics.",
           status=JVM_ONLY, instead="leave it out; each commit logs counts, bytes and offsets"),
    Option("auto.include.jmx.reporter", BOOLEAN, True, "low", "Report metrics over JMX (removed in Kafka 4.0).",
           status=JVM_ONLY, instead="leave it out; there is no JMX without a JVM"),
    Option("config.providers", LIST, "", "low", "Java classes that look option values up.",
           status=JVM_ONLY, instead="read the value in your own code and give it as the option"),
    *SECURITY_OPTIONS,
)  # fmt: skip

OPTIONS_BY_NAME = {option.name: option for option in PRODUCER_OPTIONS}

PARTITIONERS = ("default", "round_robin", "murmur3", "crc32", "fnv1a")
"""Names that ``partitioner.class`` takes, next to Python classes."""

CONSUMER_OPTIONS = frozenset({
    "allow.auto.create.topics", "auto.commit.interval.ms", "auto.offset.reset", "check.crcs", "default.api.timeout.ms",
    "enable.auto.commit", "exclude.internal.topics", "fetch.max.bytes", "fetch.max.wait.ms", "fetch.min.bytes",
    "group.id", "group.instance.id", "group.protocol", "group.remote.assignor", "heartbeat.interval.ms",
    "isolation.level", "key.deserializer", "max.partition.fetch.bytes", "max.poll.interval.ms", "max.poll.records",
    "partition.assignment.strategy", "session.timeout.ms", "share.acknowledgement.mode", "value.deserializer",
})  # fmt: skip
"""Options of Kafka's consumer that its producer lacks: named as such when somebody gives them to a producer."""
