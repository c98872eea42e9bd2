"""Topics with a ``compression.type``: what Kafka 4.1.1 and TestBroker must both store of a batch."""

from __future__ import annotations

from spark_kafka_sink.common.compression import CODEC_IDS, compress
from spark_kafka_sink.exactly_once.decode import DecodedBatch, decode_batches
from spark_kafka_sink.records.columns import HEADER_SIZE
from spark_kafka_sink.records.encode import LOG_APPEND_TIME, BatchHeader, stamp_header
from tests.contract.plain_client import PlainClient, batch
from tests.contract.scenario import Scenario, Steps, fetched, name, new_topic
from tests.support.waiting import is_of_today

TYPES = {"uncompressed": "none", **{codec: codec for codec in CODEC_IDS if codec != "none"}}
VALUES = [b"a" * 40, b"b" * 40]
BASE_MS, CLAIMED_MS = 7_000, 9_999


def compressed(codec: str, producer: tuple[int, int], sequence: int, values: list[bytes] = VALUES) -> bytes:
    """A batch whose header claims a larger timestamp than its records have."""
    payload = compress(codec, None, [batch(values)[HEADER_SIZE:]])
    header = BatchHeader(CODEC_IDS[codec], len(values), BASE_MS, CLAIMED_MS, *producer, sequence)
    return stamp_header(header, [payload]) + payload


def batches_in_the_codec_of_their_topic(client: PlainClient) -> Steps:
    producer = client.init_producer_id()
    steps: Steps = []
    for wanted, codec in TYPES.items():
        topic = new_topic(client, compression_type=wanted)
        for number, sent in enumerate(CODEC_IDS):
            client.produce(topic, compressed(sent, producer, 2 * number))
        again = client.produce(topic, compressed("none", producer, 2 * len(CODEC_IDS) - 2))
        stored = decode_batches(fetched(client, topic))
        codecs = [each.header.attributes for each in stored]
        steps += [
            (f"{wanted}: codecs", codecs, [CODEC_IDS[codec]] * len(CODEC_IDS)),
            (f"{wanted}: offsets", offsets(stored), list(range(2 * len(CODEC_IDS)))),
            (f"{wanted}: values", [record.value for each in stored for record in each.records], VALUES * 5),
            (f"{wanted}: producer", [producer_of(each) for each in stored], [(*producer, 2 * at) for at in range(5)]),
            (
                f"{wanted}: timestamps",
                {times(each) for at, each in enumerate(stored) if at != CODEC_IDS[codec]},
                {(BASE_MS,) * 2},
            ),
            (f"{wanted}: a repeated batch", (again.error_code.name, int(again.base_offset)), ("none", 8)),
        ]
    return steps


def offsets(stored: list[DecodedBatch]) -> list[int]:
    return [record.offset for each in stored for record in each.records]


def producer_of(stored: DecodedBatch) -> tuple[int, int, int]:
    return stored.header.producer_id, stored.header.producer_epoch, stored.header.base_sequence


def times(stored: DecodedBatch) -> tuple[int, int]:
    return stored.header.base_timestamp, stored.header.max_timestamp


def compression_and_log_append_time(client: PlainClient) -> Steps:
    topic = new_topic(client, compression_type="zstd", message_timestamp_type="LogAppendTime")
    client.produce(topic, compressed("gzip", (-1, -1), -1))
    (stored,) = decode_batches(fetched(client, topic))
    attributes = CODEC_IDS["zstd"] | LOG_APPEND_TIME
    return [
        ("attributes", stored.header.attributes, attributes),
        ("the first timestamp stays", stored.header.base_timestamp, BASE_MS),
        ("the time of the append", is_of_today(stored.header.max_timestamp / 1000), True),
    ]


def compression_and_size(client: PlainClient) -> Steps:
    plain = new_topic(client, compression_type="uncompressed", max_message_bytes="300")
    gzip = new_topic(client, compression_type="gzip", max_message_bytes="300")
    small = compressed("gzip", (-1, -1), -1, [b"x" * 40] * 10)
    large = compressed("none", (-1, -1), -1, [b"x" * 40] * 10)

    def write(topic: str, records: bytes) -> str:
        return str(client.produce(topic, records).error_code.name)

    return [
        ("small enough as it comes", (len(small) < 300, len(large) > 300), (True, True)),
        ("too large when unpacked", write(plain, small), "message_too_large"),
        ("too large as it comes", write(gzip, large), "message_too_large"),
        ("small both ways", write(gzip, small), "none"),
    ]


def unknown_codecs(client: PlainClient) -> Steps:
    def create(codec: str) -> tuple[str, str | None]:
        configs = [{"name": "compression.type", "value": codec}]
        asked = {"name": name("t"), "num_partitions": 1, "replication_factor": 1, "configs": configs}
        answer = client.ask("CreateTopics", 5, topics=[asked], timeout=10_000).topics[0]
        return answer.error_code.name, answer.error_message

    allowed = "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"
    return [
        (
            codec,
            create(codec),
            ("invalid_config", f"Invalid value {codec} for configuration compression.type: {allowed}"),
        )
        for codec in ("none", "zip")
    ]


COMPRESSION_SCENARIOS: tuple[Scenario, ...] = (
    batches_in_the_codec_of_their_topic,
    compression_and_log_append_time,
    compression_and_size,
    unknown_codecs,
)
