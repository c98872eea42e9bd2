"""The table of parts: what is done, how much of it, by whom, with which options, and which figure is wanted."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.frames import COLUMN_COUNTS
from benchmarks.model import TWO_WORKERS, Part, Shape, Side, Target

M = 1_000_000
OURS = "pykafka"
ONCE = "pykafka, exactly-once"
CALL = "write_kafka"
UNCHECKED = "pykafka, driverCheck=false"
THEIRS = "JVM sink"
FLOOR = "do-nothing Python writer"
CONFLUENT = "confluent-kafka"
SEND = "KafkaProducer.send"

NOTHING = Side(FLOOR, "nothing")
LARGE = {"batch.size": "262144", "linger.ms": "5"}
LARGER = {"batch.size": "65536", "linger.ms": "5"}
"""What the JVM sink gets for about a thousand partitions: with its defaults it times out."""


def both(**options: str) -> tuple[Side, Side]:
    """Spark's sink and ours with the same options; underscores stand for dots."""
    same = {name.replace("_", "."): value for name, value in options.items()}
    return Side(THEIRS, "jvm", same), Side(OURS, "pykafka", same)


def faster(ratio: float, than: str = THEIRS, who: str = OURS) -> Target:
    return Target(who, "rows_per_s", "at least ×", ratio, than)


def floor(share: float) -> Target:
    """For parts that have the side ``NOTHING``."""
    return Target(OURS, "cpu_us", "floor ÷", share, FLOOR)


def over_tls(side: Side) -> Side:
    return replace(side, name=f"{side.name}, TLS", tls=True)


def cheaper(ratio: float, who: str, than: str) -> Target:
    return Target(who, "cpu_us", "at most ×", ratio, than)


def _codec(name: str, ratio: float, rows: int) -> Part:
    return Part(
        name,
        f"100-byte values with keys, compression.type={name}, other options by default",
        "batch",
        rows=rows,
        sides=(*both(compression_type=name), NOTHING),
        targets=(faster(ratio),),
    )


def _same_batches(name: str, what: str, ratio: float, rows: int, **options: str) -> Part:
    return Part(
        name,
        f"100-byte values with keys{what}, batch.size=262144 and linger.ms=5 on both sides",
        "batch",
        rows=rows,
        sides=both(batch_size=LARGE["batch.size"], linger_ms=LARGE["linger.ms"], **options),
        targets=(faster(ratio),),
    )


def _profile(name: str, frame: str, rows: int, what: str) -> Part:
    return Part(
        name,
        f"where the CPU of a Python worker goes, µs per row: {what} with keys into 4 partitions, default options",
        "profile",
        rows=rows,
        sides=(Side(OURS, "pykafka"),),
        shape=Shape(frame),
        most_rounds=1,
    )


# Next to Spark's own sink, and to Python clients.

_WRITES: tuple[Part, ...] = (
    Part(
        "default",
        "100-byte values with keys into 4 partitions, default options",
        "batch",
        rows=4 * M,
        sides=(*both(), NOTHING),
        targets=(
            floor(0.8),
            Target(OURS, "broker_us", "at most ×", 0.75, THEIRS),
        ),
    ),
    Part(
        "unkeyed",
        "100-byte values without keys, default options",
        "batch",
        rows=4 * M,
        sides=both(),
        targets=(faster(1.4),),
        shape=Shape("unkeyed"),
    ),
    Part(
        "1k-values",
        "1,000-byte values with keys, default options",
        "batch",
        rows=M // 2,
        sides=(*both(), NOTHING),
        targets=(floor(0.8),),
        shape=Shape("keyed-1k"),
    ),
    Part(
        "10k-values",
        "10,000-byte values with keys, default options",
        "batch",
        rows=M // 20,
        sides=(*both(), NOTHING),
        targets=(floor(0.8),),
        shape=Shape("keyed-10k"),
    ),
    Part(
        "100k-values",
        "100,000-byte values with keys, default options",
        "batch",
        rows=10_000,
        sides=(*both(), NOTHING),
        targets=(floor(0.8),),
        shape=Shape("keyed-100k"),
    ),
    Part(
        "1m-values",
        "1,000,000-byte values with keys, default options",
        "batch",
        rows=1_000,
        sides=both(),
        targets=(faster(0.9),),
        shape=Shape("keyed-1m"),
    ),
    Part(
        "headers-and-topics",
        "two headers a row and a topic column with 20 topics of 4 partitions, default options",
        "batch",
        rows=M,
        sides=(*both(), NOTHING),
        targets=(floor(0.8),),
        shape=Shape("headers-and-topics", topics=20),
        keeps_topics=True,
    ),
    _codec("lz4", 1.5, 3 * M),
    _codec("snappy", 1.4, 3 * M),
    _codec("zstd", 2.2, 3 * M),
    _codec("gzip", 1.4, 2 * M),
    _same_batches("same-batches", "", 1.25, 4 * M),
    _same_batches("same-batches-lz4", ", lz4", 1.25, 3 * M, compression_type="lz4"),
    _same_batches("same-batches-zstd", ", zstd", 2.0, 3 * M, compression_type="zstd"),
    Part(
        "1000-partitions",
        "1,000 partitions; with its defaults the JVM sink times out, so it gets larger batches",
        "batch",
        rows=2 * M,
        sides=(Side(THEIRS, "jvm", LARGER, share=0.25), Side(OURS, "pykafka")),
        targets=(faster(8.0),),
        shape=Shape(partitions=1000),
        keeps_topics=True,
    ),
    Part(
        "tls",
        "100-byte values with keys, default options, without TLS and over TLS 1.3 with one cipher suite "
        "(TLS_AES_256_GCM_SHA384)",
        "batch",
        rows=4 * M,
        sides=(*both(), *map(over_tls, both())),
        targets=(Target(f"{OURS}, TLS", "rows_per_s", "at least ×", 1.0, f"{THEIRS}, TLS", ratio_of=(OURS, THEIRS)),),
    ),
    Part(
        "python-clients",
        "what people write by hand: a Python client in foreachPartition, 100-byte values with keys, default options",
        "batch",
        rows=4 * M,
        sides=(
            Side(OURS, "pykafka"),
            Side(CONFLUENT, "confluent", share=0.2),
            Side("kafka-python", "kafka-python", share=0.02),
        ),
        targets=(faster(8.0, CONFLUENT),),
    ),
    Part(
        "micro-batches",
        "a stream of micro-batches of 1,000 rows in 10 tasks; each run in new Python workers",
        "stream",
        rows=1000,
        sides=(*both(), Side(ONCE, "pykafka", exactly_once=True), Side(FLOOR, "nothing", share=0.25)),
        targets=(
            Target(OURS, "add_batch_ms", "at most ×", 2.0, THEIRS),
            Target(ONCE, "add_batch_ms", "at most ×", 2.9, THEIRS),
        ),
        shape=Shape(tasks=10),
        fresh_workers=True,
    ),
    Part(
        "first-write",
        "1,000 rows in 2 tasks; each run in a new session of one JVM, with new Python processes",
        "first",
        rows=1000,
        sides=(*both(), Side(ONCE, "pykafka", exactly_once=True), NOTHING),
        targets=(
            Target(OURS, "python_s", "at most ×", 1.1, FLOOR),
            Target(ONCE, "python_s", "at most ×", 1.25, FLOOR),
        ),
        fresh_workers=True,
    ),
    Part(
        "memory",
        "the largest Python worker, default options; each run in new Python workers",
        "batch",
        rows=2 * M,
        sides=(
            Side("pykafka, 4 partitions", "pykafka"),
            Side("pykafka, 1,000 partitions", "pykafka", shape=Shape(partitions=1000)),
            NOTHING,
        ),
        targets=(
            Target("pykafka, 4 partitions", "peak_rss_mib", "at most +", 64, FLOOR),
            Target("pykafka, 1,000 partitions", "peak_rss_mib", "at most +", 96, FLOOR),
        ),
        keeps_topics=True,
        fresh_workers=True,
    ),
    Part(
        "memory-10k",
        "the same with 10,000-byte values",
        "batch",
        rows=M // 20,
        sides=(Side(OURS, "pykafka"), NOTHING),
        targets=(Target(OURS, "peak_rss_mib", "at most +", 112, FLOOR),),
        shape=Shape("keyed-10k"),
        fresh_workers=True,
    ),
)

_PRODUCERS: tuple[Part, ...] = (
    Part(
        "send",
        "100-byte values without keys, 4 partitions; acks=all and idempotent, other options by each client's defaults",
        "send",
        rows=M,
        sides=(
            Side(SEND, "ours"),
            Side("KafkaProducer.send_columns", "columns"),
            Side(CONFLUENT, "confluent"),
            Side("kafka-python", "kafka-python", share=0.1),
            Side("aiokafka", "aiokafka", share=0.1),
            Side("Java (ProducerPerformance)", "java"),
        ),
        targets=(faster(1.0, CONFLUENT, SEND), faster(10.0, "kafka-python", SEND)),
        shape=Shape("unkeyed"),
    ),
    Part(
        "send-keyed",
        "the same with keys of 8 bytes",
        "send",
        rows=M,
        sides=(Side(SEND, "ours"), Side(CONFLUENT, "confluent")),
        targets=(faster(0.9, CONFLUENT, SEND),),
    ),
    Part(
        "send-callbacks",
        "the same, without and with a callback for each record",
        "send",
        rows=M,
        sides=(Side(SEND, "ours"), Side("with callbacks", "callbacks")),
    ),
    Part(
        "latency",
        "10,000 records a second: milliseconds from send to acknowledgement",
        "latency",
        rows=50_000,
        sides=(
            Side(SEND, "ours", {"linger.ms": "0"}),
            Side(CONFLUENT, "confluent", {"linger.ms": "0"}),
            Side("Java (ProducerPerformance)", "java", {"linger.ms": "0"}),
            Side(f"{SEND}, 5 ms", "ours", {"linger.ms": "5"}),
            Side(f"{CONFLUENT}, 5 ms", "confluent", {"linger.ms": "5"}),
        ),
        targets=(
            Target(SEND, "p99_ms", "at most ×", 2.0, CONFLUENT),
            Target(f"{SEND}, 5 ms", "p99_ms", "at most ×", 2.0, f"{CONFLUENT}, 5 ms"),
        ),
        shape=Shape("unkeyed"),
    ),
)

# How cost grows.


def _beside(
    name: str, shape: Shape, share: float = 1.0, larger: bool = False, theirs: float = 1.0
) -> tuple[Side, Side]:
    """Spark's sink and ours. ``share`` of the part's rows, for Spark's sink ``theirs`` of those; ``larger``: it gets
    larger batches.
    """
    options = LARGER if larger else {}
    return (
        Side(f"{name}, {THEIRS}", "jvm", options, share=share * theirs, shape=shape),
        Side(f"{name}, {OURS}", "pykafka", share=share, shape=shape),
    )


_MOST, _MOST_MEMORY = f"10,000 partitions, {OURS}", f"10,000 partitions, {OURS}, buffer.memory=256 MiB"
_FEWEST = f"4 partitions, {OURS}"
_VALUES = (
    ("10 B", "keyed-10", 1.0),
    ("100 B", "keyed", 1.0),
    ("1 KB", "keyed-1k", 0.15),
    ("10 KB", "keyed-10k", 0.015),
    ("100 KB", "keyed-100k", 0.0015),
    ("1 MB", "keyed-1m", 0.000_15),
)
"""How they are called, their frame, their share of the rows."""
VALUE_SIZES = tuple(name for name, _, _ in _VALUES)
_AGES = ("10th micro-batch", "100th", "1,000th", "10,000th")
_BATCH_SIZES = (("16 KiB", 2**14), ("64 KiB", 2**16), ("256 KiB", 2**18), ("1 MiB", 2**20))

_GROWTH: tuple[Part, ...] = (
    Part(
        "growth-partitions",
        "100-byte values with keys, default options, into one topic of so many partitions; the JVM sink gets larger "
        "batches for 1,000 and times out with 10,000",
        "batch",
        rows=2 * M,
        sides=(
            *_beside("4 partitions", Shape()),
            *_beside("100 partitions", Shape(partitions=100)),
            *_beside("1,000 partitions", Shape(partitions=1_000), larger=True, theirs=0.25),
            Side(_MOST, "pykafka", shape=Shape(partitions=10_000)),
            Side(_MOST_MEMORY, "pykafka", {"buffer.memory": str(256 << 20)}, shape=Shape(partitions=10_000)),
        ),
        targets=(cheaper(4.0, _MOST_MEMORY, _FEWEST), cheaper(10.0, _MOST, _FEWEST)),
        keeps_topics=True,
    ),
    Part(
        "growth-topics",
        "100-byte values with keys and a topic column, default options, into so many topics of 4 partitions; the JVM "
        "sink gets larger batches for 200 topics",
        "batch",
        rows=2 * M,
        sides=(
            *_beside("1 topic", Shape("topics")),
            *_beside("20 topics", Shape("topics", topics=20)),
            *_beside("200 topics", Shape("topics", topics=200), larger=True, theirs=0.25),
        ),
        targets=(cheaper(2.0, f"200 topics, {OURS}", f"1 topic, {OURS}"),),
        keeps_topics=True,
    ),
    Part(
        "growth-values",
        "values of so many bytes, with keys into 4 partitions, default options",
        "batch",
        rows=2 * M,
        sides=tuple(side for name, frame, share in _VALUES for side in _beside(name, Shape(frame), share)),
        most_rounds=3,
    ),
    Part(
        "growth-columns",
        "structs of so many columns as Avro (long and string in turn, each half null), with keys into 4 partitions, "
        "default options; the JVM sink gets to_avro behind a constant prefix",
        "batch",
        rows=M,
        sides=tuple(
            Side(f"{count} columns, {who}", writer, share=8 / count, shape=Shape(f"columns-{count}"))
            for count in COLUMN_COUNTS
            for who, writer in ((THEIRS, "to_avro"), (OURS, "avro"))
        ),
        most_rounds=3,
    ),
    Part(
        "growth-tasks",
        "100-byte values with keys into 4 partitions, default options, in so many tasks on two cores",
        "batch",
        rows=4 * M,
        sides=tuple(
            side
            for count in (1, 2, 4, 8)
            for side in _beside("1 task" if count == 1 else f"{count} tasks", Shape(tasks=count))
        ),
        most_rounds=3,
    ),
    Part(
        "growth-cluster",
        "some of the above on a standalone cluster of two workers with a core each, whose executors have JVMs of their "
        "own",
        "batch",
        rows=2 * M,
        sides=(
            *_beside("100 B", Shape()),
            *_beside("8 tasks", Shape(tasks=8)),
            *_beside("100 partitions", Shape(partitions=100)),
            *_beside("20 topics", Shape("topics", topics=20)),
            *_beside("1 KB", Shape("keyed-1k"), 0.15),
            *_beside("100 KB", Shape("keyed-100k"), 0.0015),
        ),
        keeps_topics=True,
        master=TWO_WORKERS,
        most_rounds=3,
    ),
    Part(
        "growth-stream",
        "a query of 10,000 micro-batches of 10 rows in one task: one micro-batch, by its number",
        "aging",
        rows=100_000,
        sides=tuple(Side(name, "pykafka") for name in _AGES),
        shape=Shape(tasks=1),
        fresh_workers=True,
        most_rounds=1,
    ),
    Part(
        "batch-sizes",
        "values of 100 B, 1 KB and 10 KB, with keys into 4 partitions, by batch.size",
        "batch",
        rows=2 * M,
        sides=tuple(
            Side(f"{value}, {size}", "pykafka", {"batch.size": str(number)}, share=share, shape=Shape(frame))
            for value, frame, share in _VALUES[1:4]
            for size, number in _BATCH_SIZES
        ),
        most_rounds=3,
    ),
    Part(
        "small-messages",
        "100-byte values with keys into 4 partitions of a topic with max.message.bytes, default options",
        "batch",
        rows=M // 2,
        sides=(
            Side("no limit", "pykafka"),
            *(
                Side(f"{limit:,} bytes", "pykafka", shape=Shape(topic_configs={"max.message.bytes": str(limit)}))
                for limit in (100_000, 20_000)
            ),
        ),
        targets=(
            Target("100,000 bytes", "seconds", "at most ×", 1.5, "no limit"),
            Target("20,000 bytes", "seconds", "at most ×", 2.0, "no limit"),
        ),
    ),
)

# Columns as Avro and Protobuf.

_ENCODERS = ("Avro", "Protobuf")
ROW_BY_ROW = {"Avro": "fastavro, row by row", "Protobuf": "upb, row by row"}


def _in_process(name: str, what: str, shape: str, most_us: float, ratio: float | None) -> Part:
    """``most_us``: the reciprocal of rows a second. ``ratio``: to the library row by row."""
    targets = [Target(each, "client_us", "at most", most_us) for each in _ENCODERS]
    if ratio is not None:
        targets += [faster(ratio, ROW_BY_ROW[each], each) for each in _ENCODERS]
    return Part(
        name,
        what,
        "encoding",
        rows=2 * M,
        sides=(
            *(Side(each, f"{each.lower()}-{shape}") for each in _ENCODERS),
            Side(ROW_BY_ROW["Avro"], f"fastavro-{shape}", share=0.05),
            Side(ROW_BY_ROW["Protobuf"], f"upb-{shape}", share=0.05),
        ),
        targets=tuple(targets),
    )


_WIDE: tuple[tuple[str, str, float, float], ...] = (
    ("Avro, 50 nullable strings", "avro-strings-50", 500_000, 1.0),
    ("Avro, 200 nullable strings", "avro-strings-200", 120_000, 0.25),
    ("Avro, 200 nullable longs", "avro-longs-200", 400_000, 0.5),
    ("Avro, 1,000 nullable longs", "avro-longs-1000", 60_000, 0.1),
    ("Protobuf, 200 optional int64", "protobuf-longs-200", 400_000, 0.5),
    ("Protobuf, 1,000 optional int64", "protobuf-longs-1000", 60_000, 0.1),
)
_CHUNKS: tuple[tuple[str, str, float, float], ...] = (
    ("Avro, chunks of 10 rows", "avro-chunks-10", 1_000_000, 1.0),
    ("Avro, chunks of 100 rows", "avro-chunks-100", 1_000_000, 1.0),
)
"""Their name, the writer, the rows a second of one core that are wanted, and their share of the rows."""


def _encoder_only(name: str, what: str, rows: int, table: tuple[tuple[str, str, float, float], ...]) -> Part:
    return Part(
        name,
        what,
        "encoding",
        rows=rows,
        sides=tuple(Side(side, writer, share=share) for side, writer, _, share in table),
        targets=tuple(Target(side, "client_us", "at most", M / rows_per_s) for side, _, rows_per_s, _ in table),
    )


_EIGHT = "8 columns (long, int, double, three strings, timestamp, boolean; every other one nullable, half null)"

_ENCODING: tuple[Part, ...] = (
    Part(
        "avro",
        f"{_EIGHT} as Avro in the wire format of a schema registry, with keys, default options; the JVM sink gets "
        "to_avro behind a constant prefix",
        "batch",
        rows=3 * M,
        sides=(Side(THEIRS, "to_avro"), Side(OURS, "avro")),
        targets=(faster(1.15),),
        shape=Shape("columns"),
    ),
    Part(
        "avro-python",
        f"what people write by hand: confluent-kafka's AvroSerializer in foreachPartition, {_EIGHT} with keys, default "
        "options",
        "batch",
        rows=3 * M,
        sides=(Side(OURS, "avro"), Side(CONFLUENT, "confluent-avro", share=0.05)),
        targets=(faster(15.0, CONFLUENT),),
        shape=Shape("columns"),
    ),
    _in_process(
        "encoding",
        f"{_EIGHT} of an Arrow array, in one process without Kafka, one core",
        "flat",
        0.5,
        10.0,
    ),
    _in_process(
        "encoding-nested",
        "a struct of 4 longs, an array of 5 longs and a map of 3 strings, in one process without Kafka",
        "nested",
        2.0,
        None,
    ),
    _encoder_only(
        "encoding-wide",
        "rows of many columns, each half null: strings of 10 to 15 characters, or 64-bit numbers below 2**40; in one "
        "process without Kafka, one core",
        M,
        _WIDE,
    ),
    _encoder_only(
        "encoding-small-chunks",
        f"{_EIGHT} of a chunked Arrow array with chunks of so many rows, in one process without Kafka, one core",
        2 * M,
        _CHUNKS,
    ),
)

# What dead letters cost the append path: CPU µs per row, of one core.

_WITHOUT, _GOOD = "without dead letters", "no bad row"
_LETTERS: tuple[Part, ...] = (
    Part(
        "dead-letters",
        "100-byte values with keys and a topic column, in one process without Kafka: without deadLetterTopic, with it, "
        "and with one row in a hundred a dead letter",
        "letters",
        rows=40 * M,
        sides=(
            Side(_WITHOUT, "raw"),
            Side(_GOOD, "raw-good"),
            Side("1 % null topics", "raw-null-topic"),
            Side("1 % invalid partitions", "raw-partition"),
            Side(f"Avro, {_WITHOUT}", "avro"),
            Side(f"Avro, {_GOOD}", "avro-good"),
            Side("Avro, 1 % not encodable", "avro-unencodable"),
        ),
        targets=(
            Target(_GOOD, "client_us", "at most ×", 1.01, _WITHOUT),
            Target("1 % null topics", "client_us", "at most ×", 1.12, _WITHOUT),
            Target("1 % invalid partitions", "client_us", "at most ×", 1.12, _WITHOUT),
            Target(f"Avro, {_GOOD}", "client_us", "at most ×", 1.01, f"Avro, {_WITHOUT}"),
            Target("Avro, 1 % not encodable", "client_us", "at most ×", 1.2, f"Avro, {_WITHOUT}"),
        ),
    ),
)

# The sink by itself.

_OWN: tuple[Part, ...] = (
    Part(
        "exactly-once-batch",
        "exactly-once next to at-least-once, 100-byte values with keys, default options",
        "batch",
        rows=4 * M,
        sides=(Side(OURS, "pykafka"), Side(ONCE, "pykafka", exactly_once=True)),
        targets=(faster(0.9, OURS, ONCE),),
    ),
    Part(
        "write-kafka",
        'write_kafka next to format("pykafka"), 100-byte values with keys, default options',
        "batch",
        rows=4 * M,
        sides=(Side(OURS, "pykafka"), Side(CALL, "write_kafka")),
        targets=(Target(CALL, "seconds", "at most ×", 1.05, OURS),),
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
        sides=(Side("2 M rows", "pykafka", share=0.1), Side("20 M rows", "pykafka")),
        targets=(
            Target("20 M rows", "peak_rss_mib", "at most", 350),
            Target("20 M rows", "peak_rss_mib", "at most ×", 1.1, "2 M rows"),
        ),
        shape=Shape("cheap", tasks=1),
        cached=False,
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
        "driver-check",
        "a stream of micro-batches of 1,000 rows in one task, with the driver's connection before the tasks and "
        "without it; each run in new Python workers",
        "stream",
        rows=1000,
        sides=(Side(OURS, "pykafka"), Side(UNCHECKED, "pykafka", own={"driverCheck": "false"})),
        targets=(Target(OURS, "add_batch_ms", "at most ×", 1.05, UNCHECKED),),
        shape=Shape(tasks=1),
        fresh_workers=True,
    ),
    Part(
        "real-time",
        "10 rows a second from topic to topic: milliseconds from produce to poll, after the first 50 rows",
        "real-time",
        rows=250,
        sides=(
            Side("pykafka, processingTime", "pykafka", {"linger.ms": "0"}),
            Side("foreach, processingTime", "foreach"),
            Side("foreach, realTime", "foreach-real-time"),
            Side(f"{THEIRS}, realTime", "jvm-real-time"),
        ),
        shape=Shape(partitions=1),
        most_rounds=2,
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
        targets=(Target("spark_kafka_sink", "import_s", "at most", 0.2),),
    ),
)

PARTS = _WRITES + _PRODUCERS + _GROWTH + _ENCODING + _LETTERS + _OWN

BY_NAME = {part.name: part for part in PARTS}

GROUPS = {
    "all": tuple(BY_NAME),
    "goals": (*(part.name for part in _WRITES + _ENCODING), "send", "send-keyed", "growth-partitions", "growth-topics"),
    "formats": tuple(part.name for part in _ENCODING),
    "growth": tuple(part.name for part in _GROWTH),
    "exactly-once": ("micro-batches", "exactly-once-batch", "exactly-once-commit"),
    "profiles": tuple(part.name for part in PARTS if part.kind == "profile"),
    "producer": tuple(part.name for part in _PRODUCERS),
}
