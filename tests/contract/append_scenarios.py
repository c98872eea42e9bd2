"""Appends, topics and frames: what a client sends, which errors Kafka 4.1.1 and TestBroker must both answer, and what
both must store of a batch where the topic has a ``compression.type``."""

import struct
from typing import Any
from uuid import uuid4

from spark_kafka_sink.common.compression import CODEC_IDS, compress
from spark_kafka_sink.exactly_once.decode import DecodedBatch, batch_headers, decode_batches
from spark_kafka_sink.records.batch import CONTROL, HEADER_SIZE, LOG_APPEND_TIME, BatchHeader, stamp_header
from tests.contract.plain_client import PlainClient, batch
from tests.contract.scenario import Scenario, Steps, fetched, name, new_topic
from tests.support.waiting import is_of_today


def sequences_and_epochs(client: PlainClient) -> Steps:
    topic, (producer_id, epoch) = new_topic(client), client.init_producer_id()

    def write(sequence: int, count: int = 1, *, at: int = 0, who: int = producer_id) -> tuple[str, int]:
        records = batch([b"x"] * count, producer=(who, epoch + at), sequence=sequence)
        answer = client.produce(topic, records)
        return answer.error_code.name, int(answer.base_offset)

    out_of_order = ("out_of_order_sequence_number", -1)
    return [
        ("first", write(0, 2), ("none", 0)),
        ("next", write(2, 2), ("none", 2)),
        ("the first again", write(0, 2), ("none", 0)),
        ("a gap", write(5), out_of_order),
        ("same first, other last sequence", write(2, 1), out_of_order),
        ("third", write(4), ("none", 4)),
        ("fourth", write(5), ("none", 5)),
        ("fifth", write(6), ("none", 6)),
        ("sixth", write(7), ("none", 7)),
        ("the second again, one of the last five", write(2, 2), ("none", 2)),
        ("the first again, no longer known", write(0, 2), out_of_order),
        ("new epoch, not from 0", write(8, at=1), out_of_order),
        ("new epoch, from 0", write(0, at=1), ("none", 8)),
        ("old epoch", write(8), ("invalid_producer_epoch", -1)),
        ("unknown producer, any sequence", write(7, who=987_654_321), ("none", 9)),
        ("no sequence", write(-1, at=1), ("invalid_record", -1)),
    ]


def broken_batches(client: PlainClient) -> Steps:
    topic, compacted = new_topic(client, max_message_bytes="2000"), new_topic(client, cleanup_policy="compact")
    good = batch([b"x", b"y"])
    records = good[HEADER_SIZE:]
    flipped = good[:-2] + bytes([good[-2] ^ 1]) + good[-1:]
    wrong_magic = good[:16] + b"\1" + good[17:]
    gzipped = compress("gzip", None, [records])

    def write(data: bytes, where: str = topic, *, acks: int = -1) -> str:
        return str(client.produce(where, data, acks=acks).error_code.name)

    def stamped(header: BatchHeader, payload: bytes = records) -> bytes:
        return stamp_header(header, [payload]) + payload

    return [
        ("one bit flipped", write(flipped), "corrupt_message"),
        ("two batches", write(good + good), "invalid_record"),
        ("none", write(b""), "invalid_record"),
        ("cut short", write(good[:-3]), "invalid_record"),
        ("magic 1", write(wrong_magic), "invalid_record"),
        ("control batch", write(batch([b"x"], attributes=CONTROL)), "invalid_record"),
        ("header counts too many", write(stamped(BatchHeader(0, 3, 1, 1))), "invalid_record"),
        ("header counts too few", write(stamped(BatchHeader(0, 1, 1, 1))), "invalid_record"),
        ("gzip, counted wrong", write(stamped(BatchHeader(1, 3, 1, 1), gzipped)), "invalid_record"),
        ("gzip that is none", write(stamped(BatchHeader(1, 2, 1, 1))), "unknown_server_error"),
        ("too large", write(batch([b"x" * 50] * 60)), "message_too_large"),
        ("acks 2", write(good, acks=2), "invalid_required_acks"),
        ("compacted, no key", write(good, compacted), "invalid_record"),
        ("good", write(good), "none"),
    ]


def topics_that_cannot_be_written(client: PlainClient) -> Steps:
    client.init_producer_id(name("id"))  # makes __transaction_state
    good = batch([b"x"])
    by_id = [{"topic_id": uuid4(), "partition_data": [{"index": 0, "records": good}]}]
    by_name = [{"name": new_topic(client), "partition_data": [{"index": 7, "records": good}]}]

    def first(answer: Any) -> str:
        return str(answer.responses[0].partition_responses[0].error_code.name)

    def produce(version: int, data: object) -> str:
        return first(client.ask("Produce", version, acks=1, timeout=1000, topic_data=data))

    return [
        ("unknown name", client.produce(name("nope"), good).error_code.name, "unknown_topic_or_partition"),
        ("unknown id", produce(13, by_id), "unknown_topic_id"),
        ("unknown partition", produce(9, by_name), "unknown_topic_or_partition"),
        ("internal", client.produce("__transaction_state", good).error_code.name, "invalid_topic_exception"),
    ]


def metadata_of_unknown_topics(client: PlainClient) -> Steps:
    def error(topic: str, *, create: bool) -> str:
        answer = client.ask("Metadata", 9, topics=[{"name": topic}], allow_auto_topic_creation=create)
        return str(answer.topics[0].error_code.name)

    return [
        ("unknown, not to be created", error(name("nope"), create=False), "unknown_topic_or_partition"),
        ("illegal", error("a b", create=False), "invalid_topic_exception"),
        ("illegal, to be created", error("a b", create=True), "invalid_topic_exception"),
    ]


def min_isr_counts_only_replicas_there_are(client: PlainClient) -> Steps:
    topic = new_topic(client, min_insync_replicas="2")
    return [("acks=all with one replica", client.produce(topic, batch([b"x"])).error_code.name, "none")]


def topics_refused(client: PlainClient) -> Steps:
    def create(topic: str, count: int = 1, replicas: int = 1, **configs: str) -> str:
        asked = {
            "name": topic,
            "num_partitions": count,
            "replication_factor": replicas,
            "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
        }
        return str(client.ask("CreateTopics", 5, topics=[asked], timeout=10_000).topics[0].error_code.name)

    def extend(topic: str, count: int) -> tuple[str, str | None]:
        asked = [{"name": topic, "count": count, "assignments": None}]
        answer = client.ask("CreatePartitions", 3, topics=asked, timeout=10_000).results[0]
        return answer.error_code.name, answer.error_message

    def delete(topic: str) -> str:
        return str(client.ask("DeleteTopics", 4, topic_names=[topic], timeout=10_000).responses[0].error_code.name)

    topic = new_topic(client)
    return [
        ("exists", create(topic), "topic_already_exists"),
        ("no partitions", create(name("t"), 0), "invalid_partitions"),
        ("too many replicas", create(name("t"), 1, 2), "invalid_replication_factor"),
        ("illegal name", create("a b"), "invalid_topic_exception"),
        ("unknown setting", create(name("t"), nope="1"), "invalid_config"),
        ("bad value", create(name("t"), retention_ms="x"), "invalid_config"),
        ("broker's defaults", create(name("t"), -1, -1), "none"),
        ("more partitions", extend(topic, 3), ("none", None)),
        ("as many", extend(topic, 3), ("invalid_partitions", "Topic already has 3 partition(s).")),
        ("of an unknown topic", extend(name("nope"), 3)[0], "unknown_topic_or_partition"),
        ("delete", delete(topic), "none"),
        ("delete again", delete(topic), "unknown_topic_or_partition"),
    ]


def log_append_time(client: PlainClient) -> Steps:
    stamped, plain = new_topic(client, message_timestamp_type="LogAppendTime"), new_topic(client)
    records = batch([b"x", b"y"], producer=client.init_producer_id(), sequence=0, timestamp=5)
    claimed = batch([b"z"], attributes=LOG_APPEND_TIME, timestamp=5)

    def told_ms(topic: str) -> int:
        return int(client.produce(topic, records).log_append_time)

    first, again, kept, kept_again = told_ms(stamped), told_ms(stamped), told_ms(plain), told_ms(plain)
    (stored,) = batch_headers(fetched(client, stamped))
    (as_sent,) = batch_headers(fetched(client, plain))
    return [
        ("the time of the append", is_of_today(first / 1000), True),
        ("a duplicate", again, first),
        ("the batch says so", (stored.attributes, stored.crc_ok), (LOG_APPEND_TIME, True)),
        ("its timestamps", (stored.base_timestamp, stored.max_timestamp), (5, first)),
        ("by timestamp", _offset(client, stamped, first), 0),
        ("after the append", _offset(client, stamped, first + 1), -1),
        ("CreateTime", kept, -1),
        ("a duplicate, CreateTime", kept_again, 5),
        ("the batch as it came", (as_sent.attributes, as_sent.base_timestamp, as_sent.max_timestamp), (0, 5, 5)),
        ("claimed by the producer", client.produce(stamped, claimed).error_code.name, "invalid_timestamp"),
        ("claimed, CreateTime", client.produce(plain, claimed).error_code.name, "none"),
        ("it does not count", batch_headers(fetched(client, plain))[-1].attributes, 0),
    ]


def refused_records(client: PlainClient) -> Steps:
    """KIP-467: each has its index and the broker's text."""
    compacted = new_topic(client, cleanup_policy="compact")
    past = new_topic(client, message_timestamp_before_max_ms="1000")
    keyless, old = (
        client.produce(compacted, batch([b"x", b"y"])),
        client.produce(past, batch([b"x", b"y"], timestamp=5)),
    )

    def texts(answer: Any) -> list[tuple[int, str]]:
        named = answer.record_errors
        return [(one.batch_index, one.batch_index_error_message.partition(" [")[0]) for one in named]

    without = f"Compacted topic cannot accept message without key in topic partition {compacted}-0"
    outside = "Timestamp 5 of message with offset {} is out of range. The timestamp should be within"
    return [
        ("without keys", (keyless.error_code.name, texts(keyless)), ("invalid_record", [(0, without), (1, without)])),
        ("too old", old.error_code.name, "invalid_timestamp"),
        ("each of them", texts(old), [(at, outside.format(at)) for at in (0, 1)]),
        ("all of them", old.error_message, "One or more records have been rejected due to invalid timestamp"),
    ]


def acks_0_after_an_error_hangs_up(client: PlainClient) -> Steps:
    topic = new_topic(client)

    def produce(index: int) -> None:
        data = [{"name": topic, "partition_data": [{"index": index, "records": batch([b"x"])}]}]
        client.tell("Produce", 9, acks=0, timeout=1000, topic_data=data)

    produce(0)
    next_answer = client.ask("Metadata", 9, topics=[{"name": topic}]).topics[0].name
    produce(7)
    return [
        ("no answer to a good one", next_answer, topic),
        ("no connection after a bad one", client.is_hung_up(), True),
    ]


def unknown_version_of_api_versions(client: PlainClient) -> Steps:
    client.send(struct.pack(">ihhihb", 11, 18, 99, 7, -1, 0))
    frame = client.hear_frame()
    return [("correlation id and UNSUPPORTED_VERSION, in version 0", frame[:6].hex(), "000000070023")]


def unknown_version_of_metadata(client: PlainClient) -> Steps:
    client.send(struct.pack(">ihhihb", 11, 3, 99, 7, -1, 0))
    return [("hangs up", client.is_hung_up(), True)]


def absurd_frame_length(client: PlainClient) -> Steps:
    client.send(struct.pack(">i", 200_000_000))
    return [("hangs up", client.is_hung_up(), True)]


def _offset(client: PlainClient, topic: str, timestamp: int) -> int:
    asked = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": timestamp}]}]
    return int(client.ask("ListOffsets", 1, replica_id=-1, topics=asked).topics[0].partitions[0].offset)


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


APPEND_SCENARIOS: tuple[Scenario, ...] = (
    sequences_and_epochs,
    broken_batches,
    topics_that_cannot_be_written,
    metadata_of_unknown_topics,
    min_isr_counts_only_replicas_there_are,
    topics_refused,
    log_append_time,
    refused_records,
    acks_0_after_an_error_hangs_up,
    unknown_version_of_api_versions,
    unknown_version_of_metadata,
    absurd_frame_length,
    batches_in_the_codec_of_their_topic,
    compression_and_log_append_time,
    compression_and_size,
    unknown_codecs,
)
