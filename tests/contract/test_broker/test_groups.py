"""Groups by their deadlines, without sockets: what time alone changes, and what only some clients send."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.groups import Claim, Group, GroupState, Joined, Joining, Waiting

SESSION_MS, REBALANCE_MS = 1_000, 5_000


def asked(member_id: str = "", *, protocols: tuple[str, ...] = ("range",), instance_id: str | None = None) -> Joining:
    metadata = dict.fromkeys(protocols, b"")
    return Joining(member_id, instance_id, "c", "consumer", metadata, SESSION_MS, REBALANCE_MS, needs_member_id=False)


def stable(only: Joining) -> tuple[Group, str]:
    """A group with one member at time 0, and its id."""
    group = Group("g", initial_delay_ms=0)
    joined = group.join(only, 0).result
    assert joined is not None
    group.sync(Claim(joined.member_id, 1), (None, None), {joined.member_id: b"all"}, 0)
    assert group.state is GroupState.STABLE
    return group, joined.member_id


def error_of(waiting: Waiting[Joined]) -> ErrorCode | None:
    return None if waiting.result is None else waiting.result.error


def test_a_session_without_heartbeats_ends() -> None:
    group, only = stable(asked())
    group.advance(SESSION_MS - 1)
    assert list(group.members) == [only]
    group.advance(SESSION_MS)

    assert (group.members, group.state, group.generation) == ({}, GroupState.EMPTY, 2)


def test_a_rebalance_goes_on_without_a_member_that_only_sends_heartbeats() -> None:
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


def test_a_leader_that_hands_in_no_assignment_loses_its_place() -> None:
    group = Group("g", initial_delay_ms=0)
    waiting = group.join(asked(), 0)
    assert waiting.result is not None
    leader = waiting.result.member_id
    for now_ms in range(0, REBALANCE_MS, SESSION_MS // 2):
        assert group.heartbeat(Claim(leader, 1), now_ms) is ErrorCode.none
        group.advance(now_ms)
    group.advance(REBALANCE_MS)

    assert (group.members, group.state) == ({}, GroupState.EMPTY)


def test_a_new_group_waits_for_more_members_as_long_as_it_is_told() -> None:
    group = Group("g", initial_delay_ms=300)
    first = group.join(asked(), 0)
    group.advance(200)
    second = group.join(asked(), 200)
    group.advance(499)
    assert (first.result, second.result) == (None, None)
    group.advance(500)

    assert (error_of(first), error_of(second), group.generation) == (ErrorCode.none, ErrorCode.none, 1)


def test_an_id_that_was_given_out_is_waited_for_until_its_session_ends() -> None:
    group, old = stable(asked())
    given = group.join(Joining("", None, "c", "consumer", {"range": b""}, 500, REBALANCE_MS, needs_member_id=True), 0)
    assert error_of(given) is ErrorCode.member_id_required
    waiting = group.join(asked(old, protocols=("range", "more")), 0)
    assert waiting.result is None
    group.advance(500)

    assert error_of(waiting) is ErrorCode.none


def test_a_static_member_that_comes_back_fences_its_former_self() -> None:
    group, former = stable(asked(instance_id="i"))
    waiting = group.join(asked(instance_id="i"), 0)

    assert error_of(waiting) is ErrorCode.none
    with pytest.raises(ApiError) as refused:
        group.heartbeat(Claim(former, 1, "i"), 0)
    assert refused.value.error is ErrorCode.fenced_instance_id
