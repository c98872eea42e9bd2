"""What a client sends and which errors it gets, in steps. Kafka 4.1.1 and TestBroker must both answer like this."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeAlias
from uuid import uuid4

from spark_kafka_sink.records.batch import CONTROL, BatchHeader, stamp_header
from spark_kafka_sink.records.compression import compress
from tests.contract.plain_client import PlainClient, batch
from tests.contract.transactional_writer import V2, TransactionalWriter

Steps: TypeAlias = list[tuple[str, object, object]]
"""(what was done, what the broker answered, what it has to answer)."""
Scenario: TypeAlias = Callable[[PlainClient], Steps]

HEADER_SIZE = 61


def name(prefix: str) -> str:
    """Tests share the real Kafka; each needs topics and ids of its own."""
    return f"{prefix}-{uuid4().hex[:12]}"


def new_topic(client: PlainClient, **configs: str) -> str:
    topic = name("topic")
    client.create_topic(topic, **configs)
    return topic


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


def init_producer_id_fences_and_continues(client: PlainClient) -> Steps:
    writer = TransactionalWriter(client, "", name("id"))
    producer_id, epoch = writer.identity
    return [
        ("again", writer.init(), ("none", 1)),
        ("continue", writer.init(producer_id=producer_id, producer_epoch=epoch + 1), ("none", 2)),
        ("continue, repeated", writer.init(producer_id=producer_id, producer_epoch=epoch + 1), ("none", 2)),
        ("continue, old epoch", writer.init(producer_id=producer_id, producer_epoch=epoch), ("producer_fenced", -1)),
        ("continue, other id", writer.init(producer_id=producer_id + 9, producer_epoch=0), ("producer_fenced", -1)),
        ("timeout 0", writer.init(transaction_timeout=0), ("invalid_transaction_timeout", -1)),
        ("timeout too long", writer.init(transaction_timeout=900_001), ("invalid_transaction_timeout", -1)),
        ("empty id", writer.init(transactional_id=""), ("invalid_request", -1)),
    ]


def transaction_v1(client: PlainClient) -> Steps:
    writer = TransactionalWriter(client, new_topic(client), name("id"))
    return [
        ("commit nothing", writer.commit(), "invalid_txn_state"),
        ("abort nothing", writer.abort(), "invalid_txn_state"),
        ("write, partition not added", writer.write(0), "transaction_abortable"),
        ("the same in Produce v10", writer.write(0, produce_version=10), "invalid_txn_state"),
        ("add", writer.add(), "none"),
        ("add, wrong epoch", writer.add(1), "producer_fenced"),
        ("add an unknown topic", writer.add(topic=name("nope")), "unknown_topic_or_partition"),
        ("write", writer.write(0), "none"),
        ("write again", writer.write(0), "none"),
        ("write, wrong epoch", writer.write(1, 1), "invalid_producer_epoch"),
        ("commit, wrong epoch", writer.commit(1), "producer_fenced"),
        ("commit", writer.commit(), "none"),
        ("commit again", writer.commit(), "none"),
        ("abort what is committed", writer.abort(), "invalid_txn_state"),
        ("write after commit", writer.write(1), "transaction_abortable"),
        ("add to the next", writer.add(), "none"),
        ("write on", writer.write(1), "none"),
        ("abort", writer.abort(), "none"),
        ("abort again", writer.abort(), "none"),
        ("commit what is aborted", writer.commit(), "invalid_txn_state"),
    ]


def transaction_v2(client: PlainClient) -> Steps:
    writer = TransactionalWriter(client, new_topic(client), name("id"), V2)
    return [
        ("commit nothing", writer.commit(), "invalid_txn_state"),
        ("abort nothing: the epoch is bumped", writer.abort(), "none"),
        ("abort nothing again: a retry", writer.abort(), "none"),
        ("write with the old epoch", writer.write(0), "invalid_producer_epoch"),
        ("write", writer.write(0, 1), "none"),
        ("the old abort once more", writer.abort(), "producer_fenced"),
        ("commit with an epoch to come", writer.commit(4), "producer_fenced"),
        ("commit", writer.commit(1), "none"),
        ("commit again: a retry", writer.commit(1), "none"),
        ("abort as a retry of commit", writer.abort(1), "invalid_txn_state"),
        ("commit the next, which is empty", writer.commit(2), "invalid_txn_state"),
        ("write, sequence goes on", writer.write(1, 2), "out_of_order_sequence_number"),
        ("write, sequence from 0", writer.write(0, 2), "none"),
        ("abort", writer.abort(2), "none"),
        ("abort again: a retry", writer.abort(2), "none"),
        ("commit as a retry of abort", writer.commit(2), "invalid_txn_state"),
    ]


def init_aborts_and_fences_an_open_transaction(client: PlainClient) -> Steps:
    writer = TransactionalWriter(client, new_topic(client), name("id"))
    added, written = writer.add(), writer.write(0)
    asked_once = writer.init()
    _, epoch = client.init_producer_id(writer.transactional_id)
    return [
        ("add", added, "none"),
        ("write", written, "none"),
        ("init while it is open", asked_once, ("concurrent_transactions", -1)),
        ("init again, epochs further", epoch - writer.identity[1], 2),
        ("old producer commits", writer.commit(), "producer_fenced"),
        ("old producer writes", writer.write(1), "invalid_producer_epoch"),
    ]


def what_does_not_belong_to_a_transaction(client: PlainClient) -> Steps:
    topic = new_topic(client)
    writer = TransactionalWriter(client, topic, name("id"))
    begun = writer.add(), writer.write(0)
    plain = client.produce(topic, batch([b"x"], producer=writer.identity, sequence=1))
    nameless = client.produce(topic, batch([b"x"], producer=writer.identity, sequence=1, attributes=0x10))
    return [
        ("begin", begun, ("none", "none")),
        ("plain batch of the same producer", plain.error_code.name, "invalid_txn_state"),
        ("without transactional id", nameless.error_code.name, "transactional_id_authorization_failed"),
    ]


def aborted_records_in_fetch(client: PlainClient) -> Steps:
    topic = new_topic(client)
    writer = TransactionalWriter(client, topic, name("id"))
    begun = writer.add(), writer.write(0), writer.abort()
    client.until(lambda: _fetched(client, topic, 1)["last_stable"] == 2)
    plain = client.produce(topic, batch([b"y"])).base_offset
    opened = writer.add(), writer.write(1)
    first, after = _fetched(client, topic, 0), _fetched(client, topic, 2)
    return [
        ("an aborted transaction", begun, ("none", "none", "none")),
        ("a plain batch after its marker", int(plain), 2),
        ("an open transaction", opened, ("none", "none")),
        ("aborted ones from the start", first["aborted"], [(writer.identity[0], 0)]),
        ("aborted ones behind it", after["aborted"], []),
        ("high watermark", after["high_watermark"], 4),
        ("last stable offset", after["last_stable"], 3),
        ("latest", _offset(client, topic, -1), 4),
        ("latest, read_committed", _offset(client, topic, -1, isolation=1), 3),
        ("earliest", _offset(client, topic, -2), 0),
        ("by timestamp", _offset(client, topic, 1_700_000_000_000), 0),
        ("after the last", _offset(client, topic, 99_999_999_999_999), -1),
        ("read past the end", _fetched(client, topic, 5)["error"], "offset_out_of_range"),
        ("leader epoch to come", _fetched(client, topic, 0, epoch=5)["error"], "unknown_leader_epoch"),
    ]


def offsets_in_a_transaction(client: PlainClient) -> Steps:
    topic, group = new_topic(client), name("group")
    client.ask_patiently("FindCoordinator", 3, key=group, key_type=0)
    writer = TransactionalWriter(client, topic, name("id"))
    producer_id, epoch = writer.identity
    identity = {"transactional_id": writer.transactional_id, "producer_id": producer_id}

    def commit(api: str, version: int, offset: int, **fields: object) -> str:
        partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        asked = [{"name": topic, "partitions": [partition]}]
        answer = client.ask(api, version, group_id=group, topics=asked, **fields)
        return str(answer.topics[0].partitions[0].error_code.name)

    def committed(*, stable: bool) -> tuple[int, str]:
        asked = [{"name": topic, "partition_indexes": [0]}]
        answer = client.ask("OffsetFetch", 7, group_id=group, topics=asked, require_stable=stable)
        (partition,) = answer.topics[0].partitions
        return int(partition.committed_offset), partition.error_code.name

    client.until(lambda: commit("OffsetCommit", 7, 5) == "none")
    steps: Steps = [
        ("not added", commit("TxnOffsetCommit", 3, 9, producer_epoch=epoch, **identity), "invalid_txn_state"),
        ("not added, v4", commit("TxnOffsetCommit", 4, 9, producer_epoch=epoch, **identity), "transaction_abortable"),
    ]
    added = client.ask("AddOffsetsToTxn", 3, group_id=group, producer_epoch=epoch, **identity).error_code.name
    steps += [
        ("add", added, "none"),
        ("commit", commit("TxnOffsetCommit", 3, 9, producer_epoch=epoch, **identity), "none"),
        (
            "other epoch",
            commit("TxnOffsetCommit", 3, 9, producer_epoch=epoch + 1, **identity),
            "invalid_producer_epoch",
        ),
        ("the old offset counts", committed(stable=False), (5, "none")),
        ("or none", committed(stable=True), (-1, "unstable_offset_commit")),
        ("end", writer.commit(), "none"),
    ]
    client.until(lambda: committed(stable=True)[1] == "none")
    return [*steps, ("the new one counts", committed(stable=True), (9, "none"))]


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


def _fetched(client: PlainClient, topic: str, offset: int, *, epoch: int = -1) -> dict[str, object]:
    """One read_committed Fetch that does not wait."""
    partition = {
        "partition": 0,
        "fetch_offset": offset,
        "partition_max_bytes": 1 << 20,
        "current_leader_epoch": epoch,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
    }
    asked = [{"topic": topic, "partitions": [partition]}]
    answer = client.ask("Fetch", 12, max_wait=0, min_bytes=0, isolation_level=1, topics=asked)
    (data,) = answer.responses[0].partitions
    aborted = data.aborted_transactions or ()
    return {
        "error": data.error_code.name,
        "high_watermark": int(data.high_watermark),
        "last_stable": int(data.last_stable_offset),
        "aborted": [(int(each.producer_id), int(each.first_offset)) for each in aborted],
    }


def _offset(client: PlainClient, topic: str, timestamp: int, *, isolation: int = 0) -> int:
    partition = {"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1}
    asked = [{"name": topic, "partitions": [partition]}]
    answer = client.ask("ListOffsets", 7, replica_id=-1, isolation_level=isolation, topics=asked)
    return int(answer.topics[0].partitions[0].offset)


SCENARIOS: tuple[Scenario, ...] = (
    sequences_and_epochs,
    broken_batches,
    topics_that_cannot_be_written,
    metadata_of_unknown_topics,
    min_isr_counts_only_replicas_there_are,
    topics_refused,
    init_producer_id_fences_and_continues,
    transaction_v1,
    transaction_v2,
    init_aborts_and_fences_an_open_transaction,
    what_does_not_belong_to_a_transaction,
    aborted_records_in_fetch,
    offsets_in_a_transaction,
    acks_0_after_an_error_hangs_up,
    unknown_version_of_api_versions,
    unknown_version_of_metadata,
    absurd_frame_length,
)
