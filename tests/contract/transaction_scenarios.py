"""Transactions: what a client sends and which errors Kafka 4.1.1 and TestBroker must both answer."""

from tests.contract.plain_client import V2, PlainClient, TransactionalWriter, batch
from tests.contract.scenario import Scenario, Steps, name, new_topic
from tests.support.waiting import eventually


def init_producer_id_fences_and_continues(client: PlainClient) -> Steps:
    writer = TransactionalWriter(client, "", name("id"))
    producer_id, epoch = writer.identity
    return [
        ("again", writer.init(), ("none", 1)),
        ("continue", writer.init(producer_id=producer_id, producer_epoch=epoch + 1), ("none", 2)),
        ("continue, repeated", writer.init(producer_id=producer_id, producer_epoch=epoch + 1), ("none", 2)),
        ("continue, old epoch", writer.init(producer_id=producer_id, producer_epoch=epoch), ("producer_fenced", -1)),
        ("a new producer", writer.init(), ("none", 3)),
        (
            "continue what it fenced",
            writer.init(producer_id=producer_id, producer_epoch=epoch + 2),
            ("producer_fenced", -1),
        ),
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
    eventually(lambda: _fetched(client, topic, 1)["last_stable"] == 2)
    plain = client.produce(topic, batch([b"y"])).base_offset
    eventually(lambda: writer.add() == "none")  # not before the coordinator knows that the abort is complete
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

    eventually(lambda: commit("OffsetCommit", 7, 5) == "none")
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
    eventually(lambda: committed(stable=True)[1] == "none")
    return [*steps, ("the new one counts", committed(stable=True), (9, "none"))]


def listed_and_described(client: PlainClient) -> Steps:
    topic, prefix = new_topic(client), name("id")
    new, left, ended = (TransactionalWriter(client, topic, f"{prefix}-{each}") for each in ("new", "left", "ended"))
    done = TransactionalWriter(client, topic, f"{prefix}-done", V2)
    written = [done.write(0), done.commit(), left.add(), left.write(0), ended.add(), ended.write(0), ended.abort()]

    def listed(version: int = 1, **filters: object) -> object:
        answer = client.ask("ListTransactions", version, **filters)
        if answer.error_code.name != "none":
            return answer.error_code.name
        states = answer.transaction_states
        found = {each.transactional_id: each for each in states if each.transactional_id.startswith(prefix)}
        ours = {each.transactional_id.removeprefix(prefix): each.transaction_state for each in found.values()}
        return ours, answer.unknown_state_filters

    eventually(lambda: listed(state_filters=["PrepareCommit", "PrepareAbort"]) == ({}, ()))
    every = {"-new": "Empty", "-done": "CompleteCommit", "-left": "Ongoing", "-ended": "CompleteAbort"}
    still_open = {"-left": "Ongoing"}
    return [
        ("written", written, ["none"] * 7),
        ("all", listed(), (every, ())),
        ("all, v0", listed(0), (every, ())),
        ("open ones", listed(state_filters=["Ongoing"]), (still_open, ())),
        ("an unknown state beside it", listed(state_filters=["Ongoing", "ongoing"]), (still_open, ("ongoing",))),
        ("only an unknown state", listed(state_filters=["ongoing"]), ({}, ("ongoing",))),
        ("states that pass at once", listed(state_filters=["Dead", "PrepareEpochFence"]), ({}, ())),
        ("by producer id", listed(producer_id_filters=[left.identity[0]]), (still_open, ())),
        (
            "by a producer id and another state",
            listed(producer_id_filters=[left.identity[0]], state_filters=["Empty"]),
            ({}, ()),
        ),
        ("longer than an hour", listed(duration_filter=3_600_000), ({"-new": "Empty"}, ())),
        ("longer than nothing", listed(duration_filter=0), (every, ())),
        ("by pattern", listed(2, transactional_id_pattern=f"{prefix}-l.*"), (still_open, ())),
        ("by a part of a pattern", listed(2, transactional_id_pattern=f"{prefix}-l"), ({}, ())),
        ("by an empty pattern", listed(2, transactional_id_pattern=""), (every, ())),
        ("by no pattern", listed(2, transactional_id_pattern="("), "invalid_regular_expression"),
        ("before its first", client.describe(new.transactional_id), ("none", "Empty", 0, -1, ())),
        ("committed", client.describe(done.transactional_id), ("none", "CompleteCommit", 1, True, ())),
        ("open", client.describe(left.transactional_id), ("none", "Ongoing", 0, True, ((topic, (0,)),))),
        ("aborted", client.describe(ended.transactional_id), ("none", "CompleteAbort", 0, True, ())),
        ("a new producer", ended.init(), ("none", 1)),
        ("aborted, then a new producer", client.describe(ended.transactional_id), ("none", "Empty", 1, -1, ())),
        ("nothing aborted", done.abort(1), "none"),
        (
            "committed, then nothing aborted",
            client.describe(done.transactional_id),
            ("none", "CompleteAbort", 2, True, ()),
        ),
        ("unknown", client.describe(name("nope")), ("transactional_id_not_found", "", 0, 0, ())),
        ("empty", client.describe(""), ("invalid_request", "", 0, 0, ())),
        ("end", left.abort(), "none"),
    ]


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


TRANSACTION_SCENARIOS: tuple[Scenario, ...] = (
    init_producer_id_fences_and_continues,
    transaction_v1,
    transaction_v2,
    init_aborts_and_fences_an_open_transaction,
    what_does_not_belong_to_a_transaction,
    aborted_records_in_fetch,
    offsets_in_a_transaction,
    listed_and_described,
)
