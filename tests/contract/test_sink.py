"""What the sink writes is what every other client of Kafka reads: each codec, batch and streaming, keys and none."""

import re
from functools import cache

import confluent_kafka
import pytest
from chispa import assert_df_equality

from tests.spark.topics import Topic
from tests.spark.writes import save, stream, streaming
from tests.support.kafka_versions import on_kafka

KEYS = (
    *(b"%d" % number for number in range(80)),
    *(b"k" * length for length in range(1, 12)),
    *(bytes([255 - length]) * length for length in range(1, 12)),
    "日本".encode(),
    b"\0",
    b"long" * 500,
)
HEADERS = (None, [("a", b"1")], [("a", None), ("a", b""), ("ž", b"\xff\x00")])
ROW_SCHEMA = "kind string, key binary, value binary, headers array<struct<key: string, value: binary>>"


def _values():
    short = [b"value %d " % number * (number % 9) for number in range(600)]
    return [None, b"", b"\0\xff", b"x" * 200_000, *short, None, None, b"", b"the same", b"the same"]


def rows():
    """Columns of ``ROW_SCHEMA``; ``kind`` is keyed or unkeyed."""
    return [
        (kind, KEYS[row % len(KEYS)] if kind == "keyed" else None, value, HEADERS[row % len(HEADERS)])
        for row, value in enumerate(_values())
        for kind in ("keyed", "unkeyed")
    ]


PARTITIONS = 3
BATCH = re.compile(r"^baseOffset: .* count: (\d+) .* compresscodec: (\w+) .* isvalid: (\w+)$", re.MULTILINE)
RECORD = re.compile(r"^\| offset: (\d+) .* keySize: (-?\d+) valueSize: (-?\d+) ", re.MULTILINE)

pytestmark = on_kafka("4.4.0", "3.9.1", "3.3.2")
every_codec = pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
every_way = pytest.mark.parametrize("way", ["batch", "stream"])
every_kind = pytest.mark.parametrize("kind", ["keyed", "unkeyed"])


@pytest.fixture(scope="module")
def frame(spark):
    return spark.createDataFrame(rows(), ROW_SCHEMA).coalesce(2)


@pytest.fixture(scope="module")
def frames(frame, tmp_path_factory):
    return {"batch": frame, "stream": streaming(frame, tmp_path_factory.mktemp("rows"))}


@pytest.fixture(scope="module")
def written(local_kafka, frames, tmp_path_factory):
    """Codec and way → topic and records of each kind. One write serves both kinds and every test that asks for it."""

    @cache
    def write(codec, way):
        topics = {
            kind: Topic(local_kafka.bootstrap_servers, f"sink-{codec}-{way}-{kind}") for kind in ("keyed", "unkeyed")
        }
        for topic in topics.values():
            local_kafka.create_topic(topic.name, PARTITIONS)
        options = {
            "kafka.bootstrap.servers": local_kafka.bootstrap_servers,
            "kafka.compression.type": codec,
            "kafka.batch.size": 4096,
        }
        to_both = frames[way].selectExpr(f"concat('sink-{codec}-{way}-', kind) topic", "key", "value", "headers")
        if way == "batch":
            save(to_both, options)
        else:
            stream(to_both, options, tmp_path_factory.mktemp("checkpoint"))
        return {kind: (topic, topic.records()) for kind, topic in topics.items()}

    return write


@pytest.fixture(scope="module")
def placed_by_librdkafka(local_kafka):
    """Key → partition, by its partitioner that is meant to be Java's."""
    local_kafka.create_topic("sink-librdkafka", PARTITIONS)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": local_kafka.bootstrap_servers, "partitioner": "murmur2_random"}
    )
    for key in KEYS:
        producer.produce("sink-librdkafka", key=key)
    assert producer.flush(30) == 0
    return {
        record.key: record.partition for record in Topic(local_kafka.bootstrap_servers, "sink-librdkafka").records()
    }


@every_codec
@every_way
@every_kind
def test_librdkafka_reads_every_row_once(spark, frame, written, codec, way, kind):
    _, records = written(codec, way)[kind]
    read = [(kind, record.key, record.value, record.headers) for record in records]
    expected = frame.filter(frame.kind == kind)
    assert_df_equality(spark.createDataFrame(read, ROW_SCHEMA), expected, ignore_row_order=True)


@every_codec
@every_way
def test_keys_are_where_librdkafka_puts_them(written, placed_by_librdkafka, codec, way):
    _, records = written(codec, way)["keyed"]
    placed = {(record.key, record.partition) for record in records}
    assert placed == set(placed_by_librdkafka.items())
    assert len(set(placed_by_librdkafka.values())) == PARTITIONS


@every_codec
@every_way
@every_kind
def test_kafkas_own_tool_finds_every_batch_and_record_in_order(local_kafka, written, codec, way, kind):
    topic, records = written(codec, way)[kind]
    dumps = local_kafka.dump_log_segments(topic.name).split("Dumping ")[1:]
    assert len(dumps) == PARTITIONS
    for partition, dump in enumerate(dumps):
        here = [record for record in records if record.partition == partition]
        batches = BATCH.findall(dump)
        assert {(used, valid) for _, used, valid in batches} == ({(codec, "true")} if here else set())
        assert sum(int(count) for count, _, _ in batches) == len(here)
        dumped = [(int(offset), int(key), int(value)) for offset, key, value in RECORD.findall(dump)]
        assert dumped == [(offset, size(record.key), size(record.value)) for offset, record in enumerate(here)]


def size(data):
    """As ``DumpLogSegments`` prints it."""
    return -1 if data is None else len(data)
