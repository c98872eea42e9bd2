"""Consumer groups: what members send and what Kafka 4.1.1 and TestBroker must both answer."""

from typing import Any

from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.exactly_once.decode import DecodedBatch, decode_batches
from spark_kafka_sink.records.batch import CONTROL, TRANSACTIONAL
from spark_kafka_sink.testing.broker.state.internal_topics import coordinator_partition
from spark_kafka_sink.testing.broker.state.offset_records import CommittedOffset, offset_key, offset_value
from tests.contract.plain_client import V2, PlainClient, TransactionalWriter
from tests.contract.scenario import Scenario, Steps, name, new_topic
from tests.support.waiting import eventually

OFFSETS = "__consumer_offsets"
STRANGER = {"member_id": "x", "generation_id": 1}
REFUSED = "inconsistent_group_protocol"


class PlainMember:
    """A member of a group that speaks over a client of its own, one request at a time."""

    def __init__(self, client: PlainClient, group: str) -> None:
        self.client = client
        self.group = group
        self.id = ""
        self.generation = -1

    def tell_join(self, version: int = 5, **fields: object) -> None:
        asked = {
            "group_id": self.group,
            "session_timeout": 10_000,
            "rebalance_timeout": 10_000,
            "member_id": self.id,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"m"}],
        }
        self.client.tell("JoinGroup", version, **(asked | fields))

    def hear_join(self, version: int = 5) -> Any:
        answer = self.client.hear("JoinGroup", version)
        if answer.error_code.name in {"none", "member_id_required"}:
            self.id, self.generation = answer.member_id, int(answer.generation_id)
        return answer

    def join(self, version: int = 5, **fields: object) -> Any:
        self.tell_join(version, **fields)
        return self.hear_join(version)

    def joined(self, **fields: object) -> Any:
        """The response once the group has let it in; it asks for its id first."""
        assert self.join(**fields).error_code.name == "member_id_required"
        return self.join(**fields)

    def sync(self, assignments: dict[str, bytes] | None = None, **fields: object) -> tuple[str, bytes]:
        asked = [{"member_id": member, "assignment": part} for member, part in (assignments or {}).items()]
        answer = self.client.ask("SyncGroup", 3, **(self._claim() | {"assignments": asked} | fields))
        return answer.error_code.name, answer.assignment

    def heartbeat(self, **fields: object) -> str:
        return str(self.client.ask("Heartbeat", 3, **(self._claim() | fields)).error_code.name)

    def commit(self, topic: str, offset: int, version: int = 7, **fields: object) -> str:
        partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "note"}
        asked = [{"name": topic, "partitions": [{**partition, "committed_leader_epoch": 3}]}]
        claim = self._claim()
        claim["generation_id_or_member_epoch"] = claim.pop("generation_id")
        answer = self.client.ask("OffsetCommit", version, topics=asked, **(claim | fields))
        return str(answer.topics[0].partitions[0].error_code.name)

    def leave(self, member_id: str | None = None) -> tuple[str, ...]:
        members = [{"member_id": self.id if member_id is None else member_id}]
        answer = self.client.ask("LeaveGroup", 3, group_id=self.group, members=members)
        return answer.error_code.name, *(each.error_code.name for each in answer.members)

    def _claim(self) -> dict[str, Any]:
        return {"group_id": self.group, "member_id": self.id, "generation_id": self.generation}


def find(client: PlainClient, group: str) -> None:
    """Until the group's coordinator has loaded its partition: before, it takes any heartbeat."""
    client.ask_patiently("FindCoordinator", 3, key=group, key_type=0)
    eventually(lambda: PlainMember(client, group).heartbeat(**STRANGER) == "unknown_member_id")


def one_member(client: PlainClient) -> Steps:
    group, topic = name("group"), new_topic(client)
    find(client, group)
    me, stranger = PlainMember(client, group), PlainMember(client, group)
    stranger.id = "stranger"
    member = {"member_id": "x", "generation_id_or_member_epoch": 1}
    steps: Steps = [
        ("an unknown group", me.heartbeat(**STRANGER), "unknown_member_id"),
        ("a commit to it", me.commit(topic, 1, **member), "illegal_generation"),
        ("the same in v9", me.commit(topic, 1, 9, **member), "group_id_not_found"),
        ("a commit for an unknown topic", me.commit(name("nope"), 1, **member), "unknown_topic_or_partition"),
        ("no group id", me.join(group_id="").error_code.name, "invalid_group_id"),
        ("a short session", me.join(session_timeout=100).error_code.name, "invalid_session_timeout"),
        ("a member id of its own", stranger.join().error_code.name, "unknown_member_id"),
        ("no protocols", me.join(protocols=[]).error_code.name, REFUSED),
        ("an id is asked for", me.join().error_code.name, "member_id_required"),
    ]
    joined = me.join()
    told = (joined.error_code.name, joined.generation_id, joined.protocol_name, joined.leader == me.id)
    steps += [
        ("join", told, ("none", 1, "range", True)),
        ("the leader gets the members", [(each.member_id, each.metadata) for each in joined.members], [(me.id, b"m")]),
        ("a heartbeat before the assignment", me.heartbeat(), "none"),
        ("a commit before the assignment", me.commit(topic, 1), "rebalance_in_progress"),
        ("join again, answered again", me.join().generation_id, 1),
        ("sync", me.sync({me.id: b"mine"}), ("none", b"mine")),
        ("sync again", me.sync(), ("none", b"mine")),
        ("sync, old generation", me.sync(generation_id=0), ("illegal_generation", b"")),
        ("heartbeat", me.heartbeat(), "none"),
        ("heartbeat, old generation", me.heartbeat(generation_id=0), "illegal_generation"),
        ("heartbeat of a stranger", stranger.heartbeat(), "unknown_member_id"),
        ("commit", me.commit(topic, 5), "none"),
        ("commit, old generation", me.commit(topic, 6, generation_id_or_member_epoch=0), "illegal_generation"),
        ("commit of nobody", PlainMember(client, group).commit(topic, 7), "unknown_member_id"),
        ("commit of a stranger", stranger.commit(topic, 7), "unknown_member_id"),
        ("other protocols", me.join(protocols=[{"name": "x", "metadata": b""}]).error_code.name, REFUSED),
        ("other metadata", me.join(protocols=[{"name": "range", "metadata": b"n"}]).error_code.name, "none"),
        ("a new generation", me.generation, 2),
        ("sync it", me.sync({me.id: b"again"}), ("none", b"again")),
        ("a stranger leaves", stranger.leave(), ("none", "unknown_member_id")),
        ("leave", me.leave(), ("none", "none")),
        ("leave again", me.leave(), ("none", "unknown_member_id")),
        ("commit to an empty group", PlainMember(client, group).commit(topic, 8), "none"),
        ("heartbeat after leaving", me.heartbeat(), "unknown_member_id"),
    ]
    return steps


def two_members(client: PlainClient) -> Steps:
    group = name("group")
    find(client, group)
    with PlainClient(client.address) as other:
        first, second = PlainMember(client, group), PlainMember(other, group)
        first.joined()
        first.sync({first.id: b"all"})
        assert second.join().error_code.name == "member_id_required"
        second.tell_join()
        eventually(lambda: first.heartbeat() == "rebalance_in_progress")
        synced_late = first.sync()
        again, joined = first.join(), second.hear_join()
        generations = (again.generation_id, joined.generation_id)
        known = sorted(each.member_id for each in again.members)
        halves = {first.id: b"one", second.id: b"two"}
        parts = first.sync(halves), second.sync()
        strange = second.join(protocols=[{"name": "x", "metadata": b""}]).error_code.name
        kind = second.join(protocol_type="connect").error_code.name
        followed = second.join()
        second.leave()
        eventually(lambda: first.heartbeat() == "rebalance_in_progress")
        alone = first.join()
    return [
        ("sync while it rebalances", synced_late, ("rebalance_in_progress", b"")),
        ("the same generation", generations, (2, 2)),
        ("the first stays leader", (again.leader, joined.leader), (first.id, first.id)),
        ("it gets the members, the other does not", (known, len(joined.members)), (sorted(halves), 0)),
        ("each gets its part", parts, (("none", b"one"), ("none", b"two"))),
        ("protocols nobody else has", strange, REFUSED),
        ("another type", kind, REFUSED),
        ("a follower without news", (followed.error_code.name, followed.generation_id), ("none", 2)),
        ("alone again", (alone.generation_id, len(alone.members)), (3, 1)),
    ]


def commits_as_records(client: PlainClient) -> Steps:
    topic, group = new_topic(client), name("group")
    find(client, group)
    member = PlainMember(client, group)
    eventually(lambda: member.commit(topic, 5) == "none")
    writer = TransactionalWriter(client, topic, name("id"), V2)
    for epoch, offset, end in ((0, 7, writer.commit), (1, 9, writer.abort)):
        commit_in_transaction(client, writer, (group, topic, offset), epoch)
        assert end(epoch) == "none"
    eventually(lambda: [marker(batch) for batch in batches_of(client, group, writer)][-1:] == [b"\0\0\0\0"])
    found = {
        offset: (record.key, record.value, batch.header.is_transactional, batch.header.base_sequence)
        for batch in batches_of(client, group, writer)
        for record in batch.records
        if record.key == offset_key(group, TopicPartition(topic, 0)) and record.value is not None
        for offset in [int.from_bytes(record.value[2:10], "big")]
    }

    def stored(offset: int) -> tuple[object, ...]:
        key, value, is_transactional, sequence = found[offset]
        committed = CommittedOffset(offset, 3 if offset == 5 else -1, "note")
        length = len(offset_value(4, committed, 0)) - 9
        committed_ms = int.from_bytes(value[length : length + 8], "big")
        return key.hex(), value == offset_value(4, committed, committed_ms), is_transactional, sequence

    key = offset_key(group, TopicPartition(topic, 0)).hex()
    ends = [marker(batch) for batch in batches_of(client, group, writer) if batch.header.is_control]
    return [
        ("a commit", stored(5), (key, True, False, 0)),
        ("a commit in a transaction", stored(7), (key, True, True, 0)),
        ("one that is aborted", stored(9), (key, True, True, 0)),
        ("their markers", ends, [b"\0\0\0\1", b"\0\0\0\0"]),
    ]


def commit_in_transaction(
    client: PlainClient, writer: TransactionalWriter, what: tuple[str, str, int], epoch: int
) -> None:
    group, topic, offset = what
    producer_id, first_epoch = writer.identity
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "note"}
    asked = {
        "transactional_id": writer.transactional_id,
        "group_id": group,
        "producer_id": producer_id,
        "producer_epoch": first_epoch + epoch,
        "generation_id": -1,
        "topics": [{"name": topic, "partitions": [{**partition, "committed_leader_epoch": -1}]}],
    }

    def error() -> str:
        answer = client.ask("TxnOffsetCommit", 5, **asked)
        return str(answer.topics[0].partitions[0].error_code.name)

    eventually(lambda: error() == "none")


def batches_of(client: PlainClient, group: str, writer: TransactionalWriter) -> list[DecodedBatch]:
    """The batches of the group's partition that hold its commits or the writer's markers."""
    described = client.ask("Metadata", 9, topics=[{"name": OFFSETS}]).topics[0]
    partition = coordinator_partition(group, len(described.partitions))
    found: list[DecodedBatch] = []
    offset = 0
    while batches := _fetched(client, partition, offset):
        offset = batches[-1].header.base_offset + batches[-1].header.last_offset_delta + 1
        found += [batch for batch in batches if batch.header.base_offset + batch.header.last_offset_delta < offset]
    return [
        batch
        for batch in found
        if (batch.header.is_control and batch.header.producer_id == writer.identity[0])
        or any(group.encode() in (record.key or b"") for record in batch.records)
    ]


def _fetched(client: PlainClient, partition: int, offset: int) -> list[DecodedBatch]:
    asked = [{"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}]
    topics = [{"topic": OFFSETS, "partitions": asked}]
    answer = client.ask("Fetch", 4, max_wait=100, min_bytes=1, max_bytes=1 << 20, topics=topics)
    return decode_batches(bytes(answer.responses[0].partitions[0].records or b""), partial_tail=True)


def marker(batch: DecodedBatch) -> bytes | None:
    """Its key, 1 is a commit, where the batch is one."""
    return batch.records[0].key if batch.header.attributes == CONTROL | TRANSACTIONAL else None


GROUP_SCENARIOS: tuple[Scenario, ...] = (one_member, two_members, commits_as_records)
