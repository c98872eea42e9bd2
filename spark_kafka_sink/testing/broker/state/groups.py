"""Consumer groups with members (Kafka: ``ClassicGroup``, ``GroupCoordinator``; KIP-394).

Emulated: states, generations and their deadlines; the vote for a protocol; the leader, whose assignment is handed out;
members that leave, or send no heartbeat within session.timeout.ms; member ids that have to be asked for; a static
member that comes back under a new member id, with a rebalance.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

from kio.schema.errors import ErrorCode

from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.config import Setting

_T = TypeVar("_T")


class GroupState(Enum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class Joining:
    """A JoinGroup request. ``member_id`` is empty the first time; ``protocols``: name to metadata, preferred first."""

    member_id: str
    instance_id: str | None
    client_id: str
    protocol_type: str
    protocols: Mapping[str, bytes]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    needs_member_id: bool


@dataclass(frozen=True, slots=True)
class Joined:
    """The response to a JoinGroup. ``members``, for the leader only: member id, instance id, metadata."""

    error: ErrorCode = ErrorCode.none
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Synced:
    """The response to a SyncGroup."""

    error: ErrorCode = ErrorCode.none
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(eq=False, slots=True)
class Waiting(Generic[_T]):
    """A response that the group completes; ``result`` is None until then."""

    result: _T | None = None


@dataclass(eq=False, slots=True)
class Member:
    """A member of a group. ``join`` and ``sync``: its waiting requests. ``deadline_ms``: the session's end, while no
    request waits."""

    id: str
    asked: Joining
    deadline_ms: int
    join: Waiting[Joined] | None = None
    sync: Waiting[Synced] | None = None
    has_synced: bool = False
    assignment: bytes = b""

    @property
    def is_waiting(self) -> bool:
        return self.join is not None or self.sync is not None


@dataclass(frozen=True, slots=True)
class Claim:
    """The identity in SyncGroup, Heartbeat and commits. ``generation``: -1 for a client that is not a member of a
    group."""

    member_id: str
    generation: int
    instance_id: str | None = None


@dataclass(eq=False, slots=True)
class Group:
    """One group. Methods that may change its state get the time and raise ``ApiError``."""

    id: str
    initial_delay_ms: int
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    _given_ids: dict[str, int] = field(default_factory=dict)
    _deadline_ms: int = 0
    _held_until_ms: int = 0

    def join(self, asked: Joining, now_ms: int) -> Waiting[Joined]:
        if not self._supports(asked):
            raise ApiError(ErrorCode.inconsistent_group_protocol)
        member_id = asked.member_id
        if not member_id:
            member_id = f"{asked.client_id}-{uuid.uuid4()}"
            self._replace_static(asked.instance_id)
            if asked.needs_member_id and asked.instance_id is None:
                self._given_ids[member_id] = now_ms + asked.session_timeout_ms
                return Waiting(Joined(ErrorCode.member_id_required, member_id))
        elif self._given_ids.pop(member_id, None) is None:
            member = self._member(Claim(member_id, self.generation, asked.instance_id))
            if self._is_repeated(member, asked):
                return Waiting(self._joined(member))
        return self._rejoin(member_id, asked, now_ms)

    def sync(
        self, claim: Claim, protocol: tuple[str | None, str | None], assignments: Mapping[str, bytes], now_ms: int
    ) -> Waiting[Synced]:
        """A SyncGroup. ``protocol``: its type and name, None if the request's version does not have them."""
        member = self._checked(claim)
        if any(said not in (None, known) for said, known in zip(protocol, self._protocol, strict=True)):
            raise ApiError(ErrorCode.inconsistent_group_protocol)
        if self.state is GroupState.PREPARING_REBALANCE:
            raise ApiError(ErrorCode.rebalance_in_progress)
        member.deadline_ms = now_ms + member.asked.session_timeout_ms
        member.has_synced = True
        if self.state is GroupState.STABLE:
            return Waiting(self._synced(member))
        member.sync = waiting = Waiting[Synced]()
        if member.id == self.leader:
            self.state = GroupState.STABLE
            for each in self.members.values():
                each.assignment = assignments.get(each.id, b"")
                each.deadline_ms = now_ms + each.asked.session_timeout_ms
                if each.sync is not None:
                    each.sync.result, each.sync = self._synced(each), None
        return waiting

    def heartbeat(self, claim: Claim, now_ms: int) -> ErrorCode:
        member = self._checked(claim)
        member.deadline_ms = now_ms + member.asked.session_timeout_ms
        preparing = self.state is GroupState.PREPARING_REBALANCE
        return ErrorCode.rebalance_in_progress if preparing else ErrorCode.none

    def leave(self, member_id: str, instance_id: str | None, now_ms: int) -> None:
        if self._given_ids.pop(member_id, None) is None:
            if instance_id is not None and not member_id:
                member_id = self._id_of(instance_id) or ""
            self._remove(self._member(Claim(member_id, self.generation, instance_id)).id, now_ms)
        self.advance(now_ms)

    def check_commit(self, claim: Claim, *, transactional: bool) -> None:
        """Raise ``ApiError`` unless a member of this generation commits, or the group has no members."""
        if claim.generation < 0 and self.state is GroupState.EMPTY:
            return
        if claim.generation >= 0 or claim.member_id or claim.instance_id is not None:
            self._checked(claim)
        elif not transactional and self.state is not GroupState.EMPTY:
            raise ApiError(ErrorCode.unknown_member_id)
        if not transactional and self.state is GroupState.COMPLETING_REBALANCE:
            raise ApiError(ErrorCode.rebalance_in_progress)

    def advance(self, now_ms: int) -> None:
        """Do what is due: end sessions, complete a rebalance that all members joined or that has no time left."""
        self._given_ids = {each: until_ms for each, until_ms in self._given_ids.items() if now_ms < until_ms}
        ended = [
            member.id for member in self.members.values() if now_ms >= member.deadline_ms and not member.is_waiting
        ]
        if self.state is GroupState.COMPLETING_REBALANCE and now_ms >= self._deadline_ms:
            ended += [member.id for member in self.members.values() if not member.has_synced and member.id not in ended]
        for member_id in ended:
            self._remove(member_id, now_ms)
        if self.state is not GroupState.PREPARING_REBALANCE or now_ms < self._held_until_ms:
            return
        has_all = not self._given_ids and all(member.join is not None for member in self.members.values())
        if has_all or now_ms >= self._deadline_ms:
            self._complete_rebalance(now_ms)

    @property
    def _protocol(self) -> tuple[str | None, str | None]:
        return self.protocol_type, self.protocol

    def _supports(self, asked: Joining) -> bool:
        """Whether the protocol type is the group's and some protocol is supported by all members."""
        if not self.members:
            return bool(asked.protocol_type and asked.protocols)
        return asked.protocol_type == self.protocol_type and bool(
            set(asked.protocols).intersection(*(member.asked.protocols for member in self.members.values()))
        )

    def _member(self, claim: Claim) -> Member:
        if claim.instance_id is not None:
            known = self._id_of(claim.instance_id)
            if known is not None and known != claim.member_id:
                raise ApiError(ErrorCode.fenced_instance_id)
        member = self.members.get(claim.member_id)
        if member is None:
            raise ApiError(ErrorCode.unknown_member_id)
        return member

    def _checked(self, claim: Claim) -> Member:
        member = self._member(claim)
        if claim.generation != self.generation:
            raise ApiError(ErrorCode.illegal_generation)
        return member

    def _id_of(self, instance_id: str) -> str | None:
        return next((member.id for member in self.members.values() if member.asked.instance_id == instance_id), None)

    def _replace_static(self, instance_id: str | None) -> None:
        """Fence the member that had this instance id; its successor joins the next rebalance."""
        former = None if instance_id is None else self._id_of(instance_id)
        if former is not None:
            self._fail_waiting(self.members.pop(former), ErrorCode.fenced_instance_id)

    def _is_repeated(self, member: Member, asked: Joining) -> bool:
        """Whether no rebalance is needed: the response was lost, or a follower joins again with the same metadata."""
        if asked.protocols != member.asked.protocols:
            return False
        is_follower = self.state is GroupState.STABLE and member.id != self.leader
        return is_follower or self.state is GroupState.COMPLETING_REBALANCE

    def _rejoin(self, member_id: str, asked: Joining, now_ms: int) -> Waiting[Joined]:
        member = self.members.setdefault(member_id, Member(member_id, asked, 0))
        member.asked = asked
        member.deadline_ms = now_ms + asked.session_timeout_ms
        if member.join is not None:  # this request supersedes the waiting one
            member.join.result = Joined(ErrorCode.rebalance_in_progress, member_id)
        member.join = waiting = Waiting[Joined]()
        self.protocol_type = asked.protocol_type
        self._prepare_rebalance(now_ms)
        self.advance(now_ms)
        return waiting

    def _prepare_rebalance(self, now_ms: int) -> None:
        if self.state is GroupState.PREPARING_REBALANCE:
            if now_ms < self._held_until_ms:
                self._held_until_ms = min(now_ms + self.initial_delay_ms, self._deadline_ms)
            return
        longest_ms = max((member.asked.rebalance_timeout_ms for member in self.members.values()), default=0)
        self._deadline_ms = now_ms + longest_ms
        is_first = self.state is GroupState.EMPTY
        self._held_until_ms = now_ms + min(self.initial_delay_ms, longest_ms) if is_first else now_ms
        self.state = GroupState.PREPARING_REBALANCE
        for member in self.members.values():
            member.assignment = b""
            if member.sync is not None:
                member.sync.result, member.sync = Synced(ErrorCode.rebalance_in_progress), None

    def _complete_rebalance(self, now_ms: int) -> None:
        for each in [member for member in self.members.values() if member.join is None]:
            del self.members[each.id]
        self.generation += 1
        if not self.members:
            self.state, self.protocol, self.leader = GroupState.EMPTY, None, None
            return
        self.state = GroupState.COMPLETING_REBALANCE
        self.protocol = _vote([member.asked.protocols for member in self.members.values()])
        if self.leader not in self.members:
            self.leader = next(iter(self.members))
        self._deadline_ms = now_ms + max(member.asked.rebalance_timeout_ms for member in self.members.values())
        for member in self.members.values():
            member.deadline_ms = now_ms + member.asked.session_timeout_ms
            member.has_synced = False
            if member.join is not None:
                member.join.result, member.join = self._joined(member), None

    def _remove(self, member_id: str, now_ms: int) -> None:
        self._fail_waiting(self.members.pop(member_id), ErrorCode.unknown_member_id)
        if self.state in {GroupState.STABLE, GroupState.COMPLETING_REBALANCE}:
            self._prepare_rebalance(now_ms)

    def _fail_waiting(self, member: Member, error: ErrorCode) -> None:
        if member.join is not None:
            member.join.result = Joined(error, member.id)
        if member.sync is not None:
            member.sync.result = Synced(error)

    def _joined(self, member: Member) -> Joined:
        members: Iterable[Member] = self.members.values() if member.id == self.leader else ()
        protocol = self.protocol or ""
        listed = tuple((member.id, member.asked.instance_id, member.asked.protocols[protocol]) for member in members)
        generation, leader = self.generation, self.leader or ""
        return Joined(ErrorCode.none, member.id, generation, self.protocol_type, protocol, leader, listed)

    def _synced(self, member: Member) -> Synced:
        return Synced(ErrorCode.none, *self._protocol, member.assignment)


def _vote(preferences: list[Mapping[str, bytes]]) -> str:
    """The protocol that most members prefer among the protocols that all members support."""
    common = set(preferences[0]).intersection(*preferences)
    votes = Counter(next(name for name in preference if name in common) for preference in preferences)
    return votes.most_common(1)[0][0]


class Groups:
    """The groups of the cluster that have or had members."""

    def __init__(self, config: Mapping[str, Setting]) -> None:
        self._config = config
        self._groups: dict[str, Group] = {}

    def join(self, group_id: str, asked: Joining, now_ms: int) -> Waiting[Joined]:
        if not group_id:
            raise ApiError(ErrorCode.invalid_group_id)
        shortest, longest = (int(self._config[f"group.{end}.session.timeout.ms"]) for end in ("min", "max"))
        if not shortest <= asked.session_timeout_ms <= longest:
            raise ApiError(ErrorCode.invalid_session_timeout)
        group = self._groups.get(group_id)
        if group is None:
            if asked.member_id:
                raise ApiError(ErrorCode.unknown_member_id)
            group = Group(group_id, int(self._config["group.initial.rebalance.delay.ms"]))
        waiting = group.join(asked, now_ms)
        self._groups[group_id] = group
        return waiting

    def get(self, group_id: str) -> Group | None:
        return self._groups.get(group_id)

    def known(self, group_id: str) -> Group:
        """The group of a request by a member."""
        if not group_id:
            raise ApiError(ErrorCode.invalid_group_id)
        group = self._groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.unknown_member_id)
        return group

    def check_commit(self, group_id: str, claim: Claim, unknown: ErrorCode, *, transactional: bool) -> None:
        """Checks a commit. ``unknown``: the error for a member of a group that is not known."""
        group = self._groups.get(group_id)
        if group is not None:
            group.check_commit(claim, transactional=transactional)
        elif claim.generation >= 0:
            raise ApiError(unknown)

    def advance(self, now_ms: int) -> None:
        for group in self._groups.values():
            group.advance(now_ms)

    def all(self) -> Iterable[Group]:
        return self._groups.values()
