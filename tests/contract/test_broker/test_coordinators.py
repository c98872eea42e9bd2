"""What the scenarios against a real Kafka cannot force: held markers, timeouts, epochs that run out; and groups by
their deadlines, without sockets."""

import pytest
from kio.schema.errors import ErrorCode

from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.cluster import BrokerNode, ClusterState
from spark_kafka_sink.testing.broker.state.config import broker_config
from spark_kafka_sink.testing.broker.state.groups import Claim, Group, GroupState, Joining
from spark_kafka_sink.testing.broker.state.offsets import GroupOffsets
from spark_kafka_sink.testing.broker.state.transactions import LAST_EPOCH, TransactionCoordinator
from tests.contract.plain_client import V1, V2, TransactionalWriter
from tests.support.waiting import eventually

TIMEOUT_MS = 1000


@pytest.fixture
def coordinator():
    cluster = ClusterState([BrokerNode(1, "localhost", 9092)], broker_config({}))
    cluster.create_topic("t", 1, 1, {})
    return TransactionCoordinator(cluster, GroupOffsets(cluster, 4, acks=1))


def begun(coordinator, *, epoch):
    """A transaction under way, of a producer that has used up ``epoch`` epochs."""
    coordinator.init_producer_id("tx", TIMEOUT_MS, None, 0)
    coordinator.transactions["tx"].epoch = epoch
    identity = coordinator.transactions["tx"].identity
    coordinator.add_partitions("tx", identity, (), 0)
    return identity


@pytest.mark.parametrize("version", [V1, V2])
def test_held_markers_leave_the_transaction_prepared(broker, client, version):
    writer = TransactionalWriter(client, "t", "tx", version)
    if version == V1:
        writer.add()
    writer.write(0)
    broker.hold_markers()
    identity = {"transactional_id": "tx", "producer_id": writer.identity[0], "producer_epoch": writer.identity[1]}
    end = {"v1": 3, "v2": 5}[version]
    assert client.ask("EndTxn", end, **identity, committed=True).error_code.name == "none"
    assert broker.transaction_state("tx") == "PrepareCommit"
    assert client.ask("EndTxn", end, **identity, committed=True).error_code.name == "concurrent_transactions"
    assert writer.init() == ("concurrent_transactions", -1)
    assert broker.topic("t").values() == []

    broker.release_markers()

    assert broker.transaction_state("tx") == "CompleteCommit"
    assert client.ask("EndTxn", end, **identity, committed=True).error_code.name == "none"
    assert broker.topic("t").values() == [b"x"]


def test_a_transaction_over_its_timeout_is_aborted_and_fenced(broker, client):
    writer = TransactionalWriter(client, "t", "tx")
    assert writer.init(transaction_timeout=1)[0] == "none"
    assert (writer.add(1), broker.transaction_state("tx")) == ("none", "Ongoing")

    eventually(lambda: broker.transaction_state("tx") == "CompleteAbort")

    assert writer.commit(1) == "producer_fenced"


def test_a_topic_deleted_under_a_transaction_does_not_stop_its_end(broker, client):
    writer = TransactionalWriter(client, "t", "tx", V2)
    writer.write(0)
    broker.delete_topic("t")

    assert writer.commit() == "none"


def test_an_exhausted_epoch_ends_v2_with_a_new_producer_id(coordinator):
    identity = begun(coordinator, epoch=LAST_EPOCH)

    renewed = coordinator.end("tx", identity, committed=True, bump=True, now_ms=0)

    assert renewed.producer_id != identity.producer_id
    assert renewed.epoch == 0
    assert coordinator.end("tx", identity, committed=True, bump=True, now_ms=0) == renewed  # a retry


def test_an_exhausted_epoch_gets_a_new_producer_id_at_init(coordinator):
    identity = begun(coordinator, epoch=LAST_EPOCH)
    coordinator.end("tx", identity, committed=True, bump=False, now_ms=0)

    renewed = coordinator.init_producer_id("tx", TIMEOUT_MS, identity, 0)

    assert renewed == (identity.producer_id + 1, 0)


SESSION_MS, REBALANCE_MS = 1_000, 5_000


def asked(member_id="", *, protocols=("range",), instance_id=None):
    metadata = dict.fromkeys(protocols, b"")
    return Joining(member_id, instance_id, "c", "consumer", metadata, SESSION_MS, REBALANCE_MS, needs_member_id=False)


def stable(only):
    """A group with one member at time 0, and its id."""
    group = Group("g", initial_delay_ms=0)
    joined = group.join(only, 0).result
    assert joined is not None
    group.sync(Claim(joined.member_id, 1), (None, None), {joined.member_id: b"all"}, 0)
    assert group.state is GroupState.STABLE
    return group, joined.member_id


def error_of(waiting):
    return None if waiting.result is None else waiting.result.error


def test_a_session_without_heartbeats_ends():
    group, only = stable(asked())
    group.advance(SESSION_MS - 1)
    assert list(group.members) == [only]
    group.advance(SESSION_MS)

    assert (group.members, group.state, group.generation) == ({}, GroupState.EMPTY, 2)


def test_a_rebalance_goes_on_without_a_member_that_only_sends_heartbeats():
    group, old = stable(asked())
    waiting = group.join(asked(), 0)
    for now_ms in range(0, REBALANCE_MS, SESSION_MS // 2):
        assert group.heartbeat(Claim(old, 1), now_ms) is ErrorCode.rebalance_in_progress
        group.advance(now_ms)
    assert waiting.result is None
    group.advance(REBALANCE_MS)

    assert waiting.result is not None
    assert (waiting.result.error, waiting.result.generation) == (ErrorCode.none, 2)
    assert old not in group.members
    assert group.leader == waiting.result.member_id


def test_a_leader_that_hands_in_no_assignment_loses_its_place():
    group = Group("g", initial_delay_ms=0)
    waiting = group.join(asked(), 0)
    assert waiting.result is not None
    leader = waiting.result.member_id
    for now_ms in range(0, REBALANCE_MS, SESSION_MS // 2):
        assert group.heartbeat(Claim(leader, 1), now_ms) is ErrorCode.none
        group.advance(now_ms)
    group.advance(REBALANCE_MS)

    assert (group.members, group.state) == ({}, GroupState.EMPTY)


def test_a_new_group_waits_for_more_members_as_long_as_it_is_told():
    group = Group("g", initial_delay_ms=300)
    first = group.join(asked(), 0)
    group.advance(200)
    second = group.join(asked(), 200)
    group.advance(499)
    assert (first.result, second.result) == (None, None)
    group.advance(500)

    assert (error_of(first), error_of(second), group.generation) == (ErrorCode.none, ErrorCode.none, 1)


def test_an_id_that_was_given_out_is_waited_for_until_its_session_ends():
    group, old = stable(asked())
    given = group.join(Joining("", None, "c", "consumer", {"range": b""}, 500, REBALANCE_MS, needs_member_id=True), 0)
    assert error_of(given) is ErrorCode.member_id_required
    waiting = group.join(asked(old, protocols=("range", "more")), 0)
    assert waiting.result is None
    group.advance(500)

    assert error_of(waiting) is ErrorCode.none


def test_a_static_member_that_comes_back_fences_its_former_self():
    group, former = stable(asked(instance_id="i"))
    waiting = group.join(asked(instance_id="i"), 0)

    assert error_of(waiting) is ErrorCode.none
    with pytest.raises(ApiError) as refused:
        group.heartbeat(Claim(former, 1, "i"), 0)
    assert refused.value.error is ErrorCode.fenced_instance_id
