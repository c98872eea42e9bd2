"""The table of parts: what is done, how much of it, by whom, with which options, and which figure is wanted."""

from __future__ import annotations

from benchmarks.model import Part, Side, Target

M = 1_000_000
OURS = "pykafka"
ONCE = "pykafka, exactly-once"
THEIRS = "JVM sink"
FLOOR = "do-nothing Python writer"

NOTHING = Side(FLOOR, "nothing")
NOOP = Side("do-nothing JVM sink", "noop")


def both(**options: str) -> tuple[Side, Side]:
    """Spark's sink and ours with the same options; underscores stand for dots."""
    same = {name.replace("_", "."): value for name, value in options.items()}
    return Side(THEIRS, "jvm", same), Side(OURS, "pykafka", same)


def faster(ratio: float, than: str = THEIRS, who: str = OURS) -> Target:
    return Target(who, "rows_per_s", "at least ×", ratio, than)


def _codec(name: str, ratio: float) -> Part:
    return Part(
        name,
        f"the same with {name}",
        "batch",
        rows=4 * M,
        sides=both(compression_type=name, batch_size="262144", linger_ms="5"),
        targets=(faster(ratio),),
    )


def _profile(name: str, frame: str, rows: int, what: str) -> Part:
    large = {"batch.size": "262144", "linger.ms": "5"}
    return Part(
        name,
        f"where the CPU of a Python worker goes, µs per row: {what} with keys into 4 partitions",
        "profile",
        rows=rows,
        frame=frame,
        sides=(Side("pykafka, default options", "pykafka"), Side("pykafka, large batches", "pykafka", large)),
        most_rounds=1,
    )


PARTS: tuple[Part, ...] = (
    Part(
        "default",
        "100-byte values with keys into 4 partitions, default options",
        "batch",
        rows=4 * M,
        sides=(*both(), NOTHING, NOOP),
        targets=(faster(1.7), Target(OURS, "workers_us", "at most", 0.35)),
    ),
    Part(
        "linger",
        "the same with linger.ms=5 on both sides (it is the default of ours)",
        "batch",
        rows=4 * M,
        sides=both(linger_ms="5"),
        targets=(faster(1.3),),
    ),
    Part(
        "large-batches",
        "the same with batch.size=262144 and linger.ms=5",
        "batch",
        rows=4 * M,
        sides=(*both(batch_size="262144", linger_ms="5"), NOTHING),
        targets=(
            faster(1.35),
            Target(OURS, "workers_us", "at most", 0.35),
            Target(OURS, "seconds", "at most ×", 1.8, FLOOR),
        ),
    ),
    _codec("lz4", 1.25),
    _codec("zstd", 2.0),
    _codec("snappy", 1.25),
    _codec("gzip", 1.2),
    Part(
        "unkeyed",
        "100-byte values without keys, linger.ms=5",
        "batch",
        rows=4 * M,
        frame="unkeyed",
        sides=both(linger_ms="5"),
        targets=(faster(1.3),),
    ),
    Part(
        "1k-values",
        "1,000-byte values with keys, linger.ms=5",
        "batch",
        rows=M // 2,
        frame="keyed-1k",
        sides=both(linger_ms="5"),
        targets=(faster(1.3),),
    ),
    Part(
        "10k-values",
        "10,000-byte values with keys, linger.ms=5",
        "batch",
        rows=M // 20,
        frame="keyed-10k",
        sides=both(linger_ms="5"),
        targets=(faster(1.3),),
    ),
    Part(
        "headers-and-topics",
        "two headers a row and a topic column with 20 topics of 4 partitions, linger.ms=5",
        "batch",
        rows=M,
        frame="headers-and-topics",
        topics=20,
        sides=both(linger_ms="5"),
        targets=(faster(1.3),),
    ),
    Part(
        "1000-partitions",
        "1,000 partitions, batch.size=65536, linger.ms=5",
        "batch",
        rows=2 * M,
        partitions=1000,
        sides=(
            *both(batch_size="65536", linger_ms="5"),
            Side("pykafka, 4 partitions", "pykafka", {"batch.size": "65536", "linger.ms": "5"}, partitions=4),
        ),
        targets=(faster(5.0), faster(0.5, "pykafka, 4 partitions")),
    ),
    Part(
        "python-clients",
        "what people write by hand: a Python client in foreachPartition",
        "batch",
        rows=4 * M,
        sides=(
            Side(OURS, "pykafka"),
            Side("confluent-kafka", "confluent", share=0.2),
            Side("kafka-python", "kafka-python", share=0.02),
        ),
        targets=(faster(7.5, "confluent-kafka"),),
    ),
    Part(
        "micro-batches",
        "a stream of micro-batches of 1,000 rows; each run in new Python workers",
        "stream",
        rows=1000,
        sides=(*both(), NOTHING),
        targets=(
            Target(OURS, "add_batch_ms", "at most +", 25, FLOOR),
            Target(OURS, "first_batch_ms", "at most +", 1000, FLOOR),
        ),
        fresh_workers=True,
    ),
    Part(
        "exactly-once-batch",
        "exactly-once next to at-least-once, default options",
        "batch",
        rows=4 * M,
        sides=(Side(OURS, "pykafka"), Side(ONCE, "pykafka", exactly_once=True)),
        targets=(faster(0.9, OURS, ONCE),),
    ),
    Part(
        "exactly-once-stream",
        "micro-batches of 1,000 rows in 10 tasks, exactly-once next to at-least-once",
        "stream",
        rows=1000,
        tasks=10,
        sides=(Side(OURS, "pykafka"), Side(ONCE, "pykafka", exactly_once=True), NOTHING, Side(THEIRS, "jvm")),
        targets=(Target(ONCE, "trigger_ms", "at most +", 40, OURS),),
    ),
    Part(
        "exactly-once-commit",
        "commit of 200 prepared transactions: intent, EndTxns, done",
        "commit",
        rows=200,
        sides=(Side("kept connections", "kept"), Side("new process", "new")),
        targets=(
            Target("kept connections", "commit_ms", "at most", 300),
            Target("new process", "commit_ms", "at most", 300),
        ),
    ),
    Part(
        "one-task",
        "one task with 2 and with 20 million rows (2 GB), each in a new Python worker",
        "batch",
        rows=20 * M,
        frame="cheap",
        tasks=1,
        cached=False,
        sides=(Side("2 M rows", "pykafka", share=0.1), Side("20 M rows", "pykafka")),
        targets=(
            Target("20 M rows", "peak_rss_mib", "at most", 350),
            Target("20 M rows", "peak_rss_mib", "at most ×", 1.1, "2 M rows"),
        ),
        fresh_workers=True,
        most_rounds=1,
    ),
    Part(
        "slow-broker",
        "a line of 5 MB/s to the broker; each run in new Python workers",
        "batch",
        rows=M // 2,
        sides=(*both(), NOTHING),
        targets=(Target(OURS, "peak_rss_mib", "at most +", 32 + 64, FLOOR),),
        broker_bytes_per_s=5 * M,
        fresh_workers=True,
        most_rounds=1,
    ),
    Part(
        "send",
        "KafkaProducer.send() of 100-byte values without keys, 4 partitions, acks=all, idempotent",
        "send",
        rows=M,
        sides=(
            Side("KafkaProducer.send", "ours"),
            Side("KafkaProducer.send_columns", "columns"),
            Side("confluent-kafka", "confluent"),
            Side("kafka-python", "kafka-python", share=0.1),
            Side("aiokafka", "aiokafka", share=0.1),
            Side("Java (ProducerPerformance)", "java"),
        ),
        targets=(
            faster(1.0, "confluent-kafka", "KafkaProducer.send"),
            faster(10.0, "kafka-python", "KafkaProducer.send"),
        ),
    ),
    Part(
        "send-callbacks",
        "the same with a callback for each record, without keys and with",
        "send",
        rows=M,
        sides=(
            Side("KafkaProducer.send", "ours"),
            Side("with callbacks", "callbacks"),
            Side("with callbacks and keys", "keyed-callbacks"),
        ),
    ),
    Part(
        "send-batches",
        "send with one batch.size for both: send's own is 16 KiB (Kafka's default), confluent-kafka's is 1 MB",
        "send",
        rows=M,
        sides=(
            Side("KafkaProducer.send, 16 KiB", "ours", {"batch.size": "16384"}),
            Side("confluent-kafka, 16 KiB", "confluent", {"batch.size": "16384"}),
            Side("KafkaProducer.send, 1 MB", "ours", {"batch.size": "1000000"}),
            Side("confluent-kafka, 1 MB", "confluent", {"batch.size": "1000000"}),
        ),
        targets=(
            faster(1.0, "confluent-kafka, 16 KiB", "KafkaProducer.send, 16 KiB"),
            faster(1.0, "confluent-kafka, 1 MB", "KafkaProducer.send, 1 MB"),
        ),
    ),
    Part(
        "latency",
        "10,000 records a second, linger.ms=0: milliseconds from send to acknowledgement",
        "latency",
        rows=50_000,
        sides=(
            Side("KafkaProducer.send", "ours", {"linger.ms": "0"}),
            Side("confluent-kafka", "confluent", {"linger.ms": "0"}),
            Side("Java (ProducerPerformance)", "java", {"linger.ms": "0"}),
        ),
        targets=(Target("KafkaProducer.send", "p99_ms", "at most ×", 2.0, "confluent-kafka"),),
    ),
    _profile("profile", "keyed", 8 * M, "100-byte values"),
    _profile("profile-1k", "keyed-1k", M, "1,000-byte values"),
    _profile("profile-10k", "keyed-10k", M // 10, "10,000-byte values"),
    Part(
        "import",
        "what a Python worker that writes imports, on top of what PySpark's worker has imported",
        "import",
        rows=1,
        sides=(Side("spark_kafka_sink", "import"),),
        targets=(Target("spark_kafka_sink", "import_s", "at most", 0.3),),
    ),
)

BY_NAME = {part.name: part for part in PARTS}

HEADLINE = ("default", "linger", "large-batches", "lz4", "zstd", "snappy", "gzip")
HEADLINE_RATIO = 1.55
"""What the geometric mean of ours / theirs over these parts is to be."""

GROUPS = {
    "all": tuple(BY_NAME),
    "headline": HEADLINE,
    "spark": tuple(part.name for part in PARTS if part.kind in ("batch", "stream")),
    "exactly-once": tuple(name for name in BY_NAME if name.startswith("exactly-once")),
    "profiles": tuple(part.name for part in PARTS if part.kind == "profile"),
    "producer": tuple(part.name for part in PARTS if part.kind in ("send", "latency")),
}
