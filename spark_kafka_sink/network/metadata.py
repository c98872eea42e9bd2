"""The cluster's metadata (Java: ``ProducerMetadata``): callers wait for a topic, the loop fetches updates.

The thread that runs the loop owns it. Callers read ``snapshot``, which is immutable, and add to a queue what they want:
a wait, or the request of an update. For the texts of their errors they also read the other fields, which may change at
any moment.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from random import Random
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.cause import Cause, timed_out
from spark_kafka_sink.common.clock import Clock, ExponentialBackoff
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import (
    NO_LEADER,
    TOPIC_RULE,
    ClusterSnapshot,
    Node,
    TopicInfo,
    TopicPartition,
    is_topic_name,
    text_fault,
)
from spark_kafka_sink.common.waiting import SendingThread, Waiters
from spark_kafka_sink.errors import (
    AuthenticationError,
    BrokerError,
    InvalidRecordError,
    KafkaError,
    KafkaTimeoutError,
    NetworkError,
    RequestBuildError,
    UnsupportedVersionError,
    WrongProtocolError,
    listed,
    own_copy,
    sanitize,
    unexpected_error,
)
from spark_kafka_sink.network.client import NetworkClient, NoNode
from spark_kafka_sink.network.error_table import TOPIC_ERRORS, Action, action
from spark_kafka_sink.network.messages import Response
from spark_kafka_sink.network.metadata_api import metadata_request, parse_metadata
from spark_kafka_sink.network.name_lookup import bootstrap_servers

_log = logging.getLogger("spark_kafka_sink.network")
_Found = TypeVar("_Found")


@dataclass(slots=True, eq=False)
class _Wait(Generic[_Found]):
    """A caller that waits. ``look`` is called at once and after each round. The wait ends when it returns something,
    which is then in ``found``, or raises. ``over``: whether the caller has gone.
    """

    look: Callable[[], _Found | None]
    topics: Collection[str]
    since: float
    seen: int = -1
    found: _Found | None = None
    error: Exception | None = None
    over: bool = False

    @property
    def ended(self) -> bool:
        return self.found is not None or self.error is not None


# Errors of a connection or a request that are permanent.
_FATAL_ERRORS = (AuthenticationError, WrongProtocolError, UnsupportedVersionError)

_UNTIL_CREATED: Final = (ErrorCode.unknown_topic_or_partition, ErrorCode.leader_not_available)
_MAX_TEXTS: Final = 3


class Metadata:
    """The last snapshot of the cluster, and when to update it.

    A *round* ends with an update, with a permanent error, or with the end of the sender. Resolves
    ``bootstrap.servers`` as ``bootstrap_servers`` does, and raises its errors.
    """

    def __init__(
        self,
        config: ProducerConfig,
        random: Random,
        client: NetworkClient,
        clock: Clock,
        sender: SendingThread | None,
    ) -> None:
        self._config = config
        self.clock = clock
        self.waiters = Waiters(sender)
        self.not_created: set[str] = set()
        """Topics that must not be created: a request that names one of them creates no topic. Other topics that callers
        wait for are requested again."""
        self._client = client
        self._may_rebootstrap = config.metadata_recovery_strategy == "rebootstrap"
        servers = enumerate(bootstrap_servers(config))
        self.bootstrap_nodes = tuple(Node(-1 - index, host, port) for index, (host, port) in servers)
        self.snapshot = ClusterSnapshot()
        self.waited_ms = 0.0
        """Total time that callers have waited."""
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random)
        self._asked: deque[_Wait[Any] | bool] = deque()  # waits, and updates that callers request: whether at once
        self._waits: list[_Wait[Any]] = []
        self.round = 0
        """The number of rounds that have ended."""
        self._closed: KafkaError | None = None
        self._fatal: tuple[int, KafkaError] | None = None
        self._last_used: dict[str, float] = {}  # the topic that was used last is the last one
        self._topic_errors: dict[str, tuple[int, int]] = {}
        self._forgot = False  # a topic, since the last update
        self._new_topics: dict[str, None] = {}
        self._requested: tuple[str, ...] = ()
        self._full_requested = True
        self._urgent = False
        self._in_flight = False
        self._attempts = 0
        self._allowed_at = -math.inf
        self.updated_at = -math.inf
        """Time of the last update (monotonic ms); -inf before the first."""
        self._failing_since: float | None = None
        self._rebootstrapping = False
        self._errors: dict[int, KafkaError] = {}
        self._refusal: KafkaError | None = None  # why the last response was refused
        self._stale: set[TopicPartition] = set()  # since the last update
        self.asked: Node | None = None
        """The node of the request in flight, or of the last one."""

    # Any thread.

    def wait_for_topics(self, wanted: Mapping[str, int | None], max_wait_ms: float) -> ClusterSnapshot:
        """A snapshot with all topics, each with the partition given for it.

        Raises ``KafkaTimeoutError`` with Kafka's text and the known reason. Raises at once: ``InvalidRecordError`` for
        a name that no request can carry, ``BrokerError`` for an invalid or forbidden topic, ``WrongProtocolError``,
        ``UnsupportedVersionError``, ``RequestBuildError`` and the error of ``fail_waiters``.
        """
        snapshot = self.snapshot
        if self._closed is None and not _missing(snapshot, wanted):
            return snapshot
        for topic in wanted:
            self._check_name(topic)
        begun = self.round
        missing: list[str] = []

        def look() -> ClusterSnapshot | None:
            nonlocal missing
            for topic in wanted:
                self._raise_error(topic, begun)
                self.note_use(topic, self.clock.now())
            missing = _missing(self.snapshot, wanted)
            for topic in missing:
                self._want(topic)
            return None if missing else self.snapshot

        found = self._wait(look, wanted, max_wait_ms)
        if found is None:
            missing = missing or _missing(self.snapshot, wanted) or [*wanted]
            raise self._timeout(missing[0], wanted[missing[0]], max_wait_ms)
        return found

    def refreshed_partition_count(self, topic: str, max_wait_ms: float) -> int | None:
        """The topic's partition count in the next response; None if the brokers say that there is no such topic.

        Raises as ``wait_for_topics``.
        """
        self._check_name(topic)
        begun: int | None = None
        generation = 0

        def look() -> int | None:
            nonlocal begun, generation
            if begun is None:
                begun, generation = self.round, self.snapshot.generation
                self.note_use(topic, self.clock.now())
                self._full_requested = True
                self._want(topic)
            self._raise_error(topic, begun)
            code, seen_in = self._topic_errors.get(topic, (0, 0))
            if code == ErrorCode.unknown_topic_or_partition and seen_in > begun:
                return 0
            return self.snapshot.partition_counts.get(topic) if self.snapshot.generation > generation else None

        found = self._wait(look, (topic,), max_wait_ms)
        if found is None:
            raise self._timeout(topic, None, max_wait_ms)
        return found or None

    def await_round(self, after: int, max_wait_ms: float) -> None:
        """Returns when a round after the round ``after`` has ended, or after ``max_wait_ms``. Requests nothing. Raises
        the permanent error that ended a round since then. If there is a snapshot, only an authentication error counts,
        because another node may serve the request.
        """
        self._wait(lambda: self.round > after or None, (), max_wait_ms)
        fatal = self._fatal[1] if self._fatal is not None and self._fatal[0] > after else None
        if isinstance(fatal, AuthenticationError) or (fatal is not None and not self.snapshot.nodes):
            raise own_copy(fatal)

    def _wait(self, look: Callable[[], _Found | None], topics: Collection[str], max_wait_ms: float) -> _Found | None:
        """The result of ``look``, which the loop calls; None after ``max_wait_ms``. A caller adds its wait, then reads
        ``_closed``. The loop sets ``_closed``, then takes the waits. One of them sees the other.
        """
        wait = _Wait(look, topics, self.clock.now())
        try:
            self._asked.append(wait)
            self.waiters.wake_sender()
            self.waiters.wait_for(lambda: wait.ended or self._closed is not None, max_wait_ms)
        finally:
            wait.over = True
            self.waited_ms += self.clock.now() - wait.since
        if wait.found is None and (error := wait.error or self._closed) is not None:
            raise own_copy(error)
        return wait.found

    def _serve(self) -> None:
        """Takes what callers have asked for, and calls ``look`` for each wait that has not looked since the last
        round."""
        while self._asked:
            asked = self._asked.popleft()
            if isinstance(asked, _Wait):
                self._waits.append(asked)
            else:
                self._full_requested = True
                self._urgent = self._urgent or asked
        woken = False
        for wait in self._waits:
            # Each wait looks at least once, so that its topic is requested.
            if wait.seen < 0 or (wait.seen != self.round and not wait.over):
                wait.seen = self.round
                try:
                    wait.found = wait.look()
                except Exception as error:
                    wait.error = error
                woken = woken or wait.ended
        if woken:
            self.waiters.notify_all()
        self._waits = [wait for wait in self._waits if not (wait.ended or wait.over)]

    def _check_name(self, topic: object) -> None:
        """Raises for a name that cannot be encoded. It would be in every full update, and fail all of them."""
        if topic not in self.snapshot.topics and (fault := text_fault(topic)) is not None:
            raise InvalidRecordError(f"Invalid topic {topic!a:.100}: it {fault}.")
        if isinstance(topic, str) and topic not in self.snapshot.topics and not is_topic_name(topic):
            code = ErrorCode.invalid_topic_exception  # what a broker would respond
            raise BrokerError(code, code.name.upper(), f"Invalid topics: [{sanitize(topic, 100)}]: {TOPIC_RULE}")

    def fail_waiters(self, error: KafkaError) -> None:
        """Makes every wait, now and later, raise ``error``, because the producer is closed or its sender died."""
        self._closed = error
        self._end_round()
        self.waiters.notify_all()

    @property
    def is_asked(self) -> bool:
        """Whether a caller wants something."""
        return bool(self._asked or self._waits)

    @property
    def waiting_since(self) -> float | None:
        """The time since which the oldest call has waited; None if no call waits."""
        return min((wait.since for wait in self._waits if not wait.over), default=None)

    @property
    def waiting_for(self) -> Collection[str]:
        """The topics that callers wait for."""
        return dict.fromkeys(chain.from_iterable(wait.topics for wait in self._waits))

    def why_waiting(self, what: TopicPartition | Collection[str], now: float, since: float = math.inf) -> Cause | None:
        """The reason why ``what`` is still missing: a response of a partition's leader, the metadata of topics, or any
        metadata if no topic is given. None if nothing is known. Any thread may call it. Brokers that have sent metadata
        after ``since`` are not called silent.
        """
        if isinstance(what, TopicPartition):
            leader = self.snapshot.leader(what)
            if leader != NO_LEADER:
                return self._client.why_waiting(self.snapshot.nodes[leader], now)
            why = self.why_waiting((what.topic,), now)
            reason = ": none of its in-sync replicas is alive" if what.topic in self.snapshot.partition_counts else ""
            return Cause(f"{what} has no leader{reason}") if why is None else why.after(f"{what} has no leader")
        why = self._why_no_update(now, since)
        for text in [text for topic in what if (text := self._topic_trouble(topic))][:_MAX_TEXTS][::-1]:
            why = Cause(text) if why is None else why.after(text)
        return why

    def _why_no_update(self, now: float, since: float) -> Cause | None:
        servers = ",".join(f"{node.host}:{node.port}" for node in self.bootstrap_nodes)
        if errors := [*self._errors.values()]:
            unreachable = all(node.id in self._errors for node in self._candidates())
            said = "No broker could be reached" if unreachable else "The last connection error"
            return Cause(f"{said} (bootstrap.servers={servers}): {errors[-1]}", errors[-1])
        if self._refusal is not None:
            return Cause(f"The last metadata response was refused: {self._refusal}", self._refusal)
        if self.updated_at >= since:
            return None
        nodes = (self.asked,) if self._in_flight and self.asked is not None else self._candidates()
        found = [why for node in nodes if (why := self._client.why_waiting(node, now))][:_MAX_TEXTS]
        texts = [why.text for why in found]
        if not self.snapshot.generation:
            texts = [f"No broker has responded (bootstrap.servers={servers})", *texts]
        return found[0]._replace(text=": ".join(texts)) if found else Cause(texts[0]) if texts else None

    def _topic_trouble(self, topic: str) -> str | None:
        code, noted_in = self._topic_errors.get(topic, (0, 0))
        if code in TOPIC_ERRORS:
            return TOPIC_ERRORS[code].format(topic=topic)
        if code:
            return f"The brokers respond with error {code} ({ErrorCode(code).name.upper()}) for {topic}."
        if (fault := self.snapshot.inconsistent.get(topic)) is not None:
            return fault
        if noted_in:
            return f"The brokers respond, but their metadata lacks topic {topic}."
        info = self.snapshot.topics.get(topic)
        return f"In the brokers' metadata, topic {topic} has no partitions." if info and not info.leaders else None

    def request_update(self, *, at_once: bool = False) -> None:
        """Requests all topics ``at_once``, or when the backoff allows, which may take a second."""
        self._asked.append(at_once)

    # The thread that runs the loop.

    def mark_stale(self, partitions: Iterable[TopicPartition]) -> None:
        """Requests an update that may lower the leaders' epochs, because the topics may have been created again."""
        self._stale.update(partitions)
        self._full_requested = True

    def maybe_update(self, now: float, in_use: Callable[[], Collection[str]] = tuple) -> float:
        """Sends a Metadata request when one is due (Java: ``NetworkClient.DefaultMetadataUpdater``). Called in each
        iteration, before requests fill the connections. ``in_use`` names the topics with incomplete batches.

        Returns when to call it again at the latest (monotonic ms); ``inf`` when only an event can change anything.
        """
        for node, error in self._client.drain_disconnects():
            self.note_connection_error(node, error, now)
        due = self.next_update(now)
        if due > now:
            return due
        picked = self._client.pick(self.candidates(now), now)
        if isinstance(picked, NoNode):
            if isinstance(picked.error, AuthenticationError):
                self._end_round(picked.error)  # a candidate refused this client and no other is connected
            return picked.retry_at
        topics = self.request_for(now, in_use())
        creates = self._config.allow_auto_create_topics and self.not_created.isdisjoint(topics)
        self.asked = picked
        self._client.send(picked.id, metadata_request(topics, creates, self._completed), now)
        return math.inf

    def _completed(self, response: Response) -> None:
        error = response.error
        try:
            if error is None:
                self.updated(self._snapshot(response.body), response.completed_at)
        except KafkaError as raised:
            error = raised
        except Exception as raised:
            _log.exception("A Metadata response could not be handled")
            error = unexpected_error(raised)
        if error is not None:
            self.failed(error, response.completed_at)

    def _snapshot(self, body: Any) -> ClusterSnapshot:
        code = getattr(body, "error_code", ErrorCode.none)
        if code is ErrorCode.rebootstrap_required:
            self.rebootstrap()
        if code is not ErrorCode.none:
            name = code.name.upper()
            raise BrokerError(int(code), name, f"The broker refused the metadata request: {name}")
        snapshot = parse_metadata(body)
        if not snapshot.nodes:
            raise NetworkError("The broker's metadata names no brokers")
        topics = sanitize(", ".join(snapshot.topics)) or "none"
        _log.debug("Metadata of %d brokers; topics: %s", len(snapshot.nodes), topics)
        return snapshot

    def next_update(self, now: float) -> float:
        """When a Metadata request is due (monotonic ms), ``inf`` while one is in flight."""
        self._serve()
        if self._in_flight:
            return math.inf
        if self._urgent:
            return now
        if self._full_requested or self._new_topics:
            return max(now, self._allowed_at)
        return max(now, self._allowed_at, self.updated_at + self._config.metadata_max_age_ms)

    def request_for(self, now: float, in_use: Iterable[str] = ()) -> tuple[str, ...]:
        """The topics of the request that the caller sends now; marks an update as in flight.

        Only the new topics unless a full update is due. Forgets topics unused for metadata.max.idle.ms. The topics
        ``in_use`` have incomplete batches and stay.
        """
        for topic in in_use:
            self.note_use(topic, now)
        oldest = now - self._config.metadata_max_idle_ms
        while self._last_used and self._last_used[first := next(iter(self._last_used))] <= oldest:
            self._forget(first)
        full = self._full_requested or now >= self.updated_at + self._config.metadata_max_age_ms
        topics = tuple(self._last_used if full else (name for name in self._new_topics if name in self._last_used))
        self._in_flight = True
        self._full_requested = self._urgent = False
        self._new_topics.clear()
        self._requested = topics
        return topics

    def candidates(self, now: float) -> tuple[Node, ...]:
        """The nodes to ask: those of the snapshot, or the bootstrap servers while there are none or all fail."""
        if not self._rebootstrapping and self._lost(now):
            self._rebootstrapping = True
        return self._candidates()

    def updated(self, update: ClusterSnapshot, now: float) -> None:
        """Takes the snapshot of a response. Newer leader epochs of the old snapshot stay (KIP-320), unless the topic or
        the cluster was created again: its id has changed, or without topic ids (before Kafka 2.8) the leader of the
        newer epoch is gone or has refused.

        Warns of the topics that have an error or a partition without leader since this response.
        """
        self._in_flight = self._rebootstrapping = False
        self._failing_since = self._refusal = None
        self._errors.clear()
        self._end_round()
        errors = self._note_topic_errors(update)
        errors += [fault for name, fault in update.inconsistent.items() if name not in self.snapshot.inconsistent]
        # An early update that changes nothing makes the next one wait longer (KIP-580).
        soon = now - self.updated_at < min(2 * self._config.retry_backoff_max_ms, self._config.metadata_max_age_ms)
        same = all(self.snapshot.topics.get(name) == info for name, info in update.topics.items())
        self._attempts = self._attempts + 1 if soon and same else 0
        self._allowed_at = now + self._backoff.delay(self._attempts)
        self.updated_at = now
        known = self.snapshot.topics
        in_use = [name for name in update.topics if name in self._last_used]
        before = {name: known[name].leaders if name in known else () for name in in_use}
        self.snapshot = self._merge(update)
        self._stale.clear()
        for name, info in update.topics.items():
            if not info.error:
                self._new_topics.pop(name, None)
        self._urgent = self._urgent and bool(self._new_topics)
        if errors:
            _log.warning("The brokers' metadata has errors for these topics: %s", listed(errors))
        if leaderless := _newly_leaderless(before, self.snapshot):
            _log.warning("Partitions without a leader: %s", listed(leaderless))

    def failed(self, error: KafkaError, now: float) -> None:
        """Notes that the request in flight failed, so the next one is for all topics, after a backoff.

        After ``RequestBuildError`` waiters raise it, and the topics that no response had are forgotten: with them, the
        next request might fail as well.
        """
        self._refusal = error
        self._in_flight = self._urgent = False
        self._full_requested = True
        self._allowed_at = now + self._backoff.delay(self._attempts)
        self._attempts += 1
        self._failing_since = now if self._failing_since is None else self._failing_since
        if isinstance(error, RequestBuildError):
            known = self.snapshot.topics
            for topic in [topic for topic in self._last_used if topic not in known]:
                self._forget(topic)
            self._new_topics = {topic: None for topic in self._new_topics if topic in known}
        if isinstance(error, (*_FATAL_ERRORS, RequestBuildError)):
            self._end_round(error)

    def note_connection_error(self, node: Node, error: KafkaError, now: float) -> None:
        """Notes that a connection failed, so the cluster may have changed. An authentication error ends all waits at
        once, as in Java. A peer that is not a Kafka broker ends them if every other candidate has failed as well.
        """
        self._full_requested = True
        self._failing_since = now if self._failing_since is None else self._failing_since
        self._errors.pop(node.id, None)
        self._errors[node.id] = error
        refused = isinstance(error, AuthenticationError)
        if refused or (
            isinstance(error, _FATAL_ERRORS) and all(candidate.id in self._errors for candidate in self._candidates())
        ):
            self._end_round(error)

    def rebootstrap(self) -> None:
        """Makes the next update come from the bootstrap servers (REBOOTSTRAP_REQUIRED)."""
        self._rebootstrapping = self._may_rebootstrap
        self._full_requested = True

    def update_leader(self, partition: TopicPartition, leader: Node, leader_epoch: int) -> None:
        """Notes the newer leader that a Produce response named (KIP-951). Older epochs and unknown partitions are
        ignored."""
        snapshot = self.snapshot
        info = snapshot.topics.get(partition.topic)
        index = partition.partition
        if info is None or index >= info.partition_count or leader_epoch <= info.leader_epochs[index]:
            return
        leaders = (*info.leaders[:index], leader.id, *info.leaders[index + 1 :])
        epochs = (*info.leader_epochs[:index], leader_epoch, *info.leader_epochs[index + 1 :])
        changed = replace(info, leaders=leaders, leader_epochs=epochs)
        self.snapshot = replace(
            snapshot,
            generation=snapshot.generation + 1,
            changed=snapshot.generation + 1,
            nodes=MappingProxyType({**snapshot.nodes, leader.id: leader}),
            topics=MappingProxyType({**snapshot.topics, info.name: changed}),
        )

    def _want(self, topic: str) -> None:
        # A topic requested for the first time skips the backoff, unless the cluster is failing.
        if topic not in self._topic_errors and topic not in self.snapshot.topics and self._failing_since is None:
            self._urgent = True
        self._new_topics[topic] = None

    def note_use(self, topic: str, now: float) -> None:
        """Notes that there are rows for this topic, which is then not forgotten before metadata.max.idle.ms."""
        self._last_used.pop(topic, None)
        self._last_used[topic] = now

    def _forget(self, topic: str) -> None:
        self._forgot = self._last_used.pop(topic, None) is not None or self._forgot

    def _end_round(self, fatal: KafkaError | None = None) -> None:
        self.round += 1
        if fatal is not None:
            self._fatal = self.round, fatal

    def _raise_error(self, topic: str, begun: int) -> None:
        if self._fatal is not None and self._fatal[0] > begun:
            raise own_copy(self._fatal[1])
        code, seen_in = self._topic_errors.get(topic, (0, 0))
        if code in TOPIC_ERRORS and seen_in > begun and action("metadata", code) is Action.FAIL:
            self._forget(topic)  # the next update does not request it
            raise BrokerError(code, ErrorCode(code).name.upper(), TOPIC_ERRORS[code].format(topic=topic))

    def _note_topic_errors(self, update: ClusterSnapshot) -> list[str]:
        """Returns the topics in use that have a new error, with the error, unless brokers may be creating them."""
        new = []
        self._topic_errors = {name: error for name, error in self._topic_errors.items() if name in self._last_used}
        for name, info in update.topics.items():
            before, _ = self._topic_errors.pop(name, (0, 0))
            if info.error:
                self._topic_errors[name] = info.error, self.round
                created = info.error in _UNTIL_CREATED and name not in self.snapshot.partition_counts
                if info.error != before and name in self._last_used and not created:
                    new.append(f"{ErrorCode(info.error).name.upper()} for topic {name}")
        for name in self._requested:
            if name not in update.topics:  # no code says why, but the next request waits for the backoff as well
                self._topic_errors[name] = 0, self.round
        return new

    def _merge(self, update: ClusterSnapshot) -> ClusterSnapshot:
        known, topics = self.snapshot, dict[str, TopicInfo]()
        # Another cluster has other topics and epochs. Some brokers do not report a cluster id.
        same_cluster = None in (known.cluster_id, update.cluster_id) or known.cluster_id == update.cluster_id
        adds = same_cluster and not self._forgot and known.nodes == update.nodes
        for name, info in update.topics.items():
            old = known.topics.get(name) if same_cluster and name in self._last_used else None
            # Brokers before Metadata 10 report no id, which does not mean another topic (as in Java).
            again = old is not None and info.topic_id not in (None, old.topic_id)
            topics[name] = info if old is None or again else self._newer_leaders(old, info, update.nodes)
            old = known.topics.get(name)
            adds = adds and (old is None or old == topics[name] or not (old.leaders or old.topic_id))
        if adds:
            return known.with_more(topics, update)
        self._forgot = False
        if same_cluster:
            topics = {name: info for name, info in known.topics.items() if name in self._last_used} | topics
        generation = known.generation + 1
        return replace(update, generation=generation, changed=generation, topics=topics)

    def _newer_leaders(self, old: TopicInfo, new: TopicInfo, nodes: Collection[int]) -> TopicInfo:
        leaders, epochs = list(new.leaders), list(new.leader_epochs)
        for index, epoch in enumerate(old.leader_epochs[: len(epochs)]):
            leader, is_stale = old.leaders[index], TopicPartition(new.name, index) in self._stale
            if 0 <= epochs[index] < epoch and leader in nodes and not is_stale:
                leaders[index], epochs[index] = leader, epoch
        return replace(new, leaders=tuple(leaders), leader_epochs=tuple(epochs))

    def _candidates(self) -> tuple[Node, ...]:
        if self._rebootstrapping or not self.snapshot.nodes:
            return self.bootstrap_nodes
        return tuple(self.snapshot.nodes.values())

    def _lost(self, now: float) -> bool:
        if not self._may_rebootstrap or not self.snapshot.nodes or self._failing_since is None:
            return False
        if any(isinstance(error, AuthenticationError) for error in self._errors.values()):
            return False  # the bootstrap servers would refuse this client too
        trigger_ms = self._config.metadata_recovery_rebootstrap_trigger_ms
        return now - self._failing_since >= trigger_ms or self.snapshot.nodes.keys() <= self._errors.keys()

    def _timeout(self, topic: str, partition: int | None, max_wait_ms: float) -> KafkaTimeoutError:
        now = self.clock.now()
        count, subject = self.snapshot.partition_counts.get(topic), f"Topic {topic}"
        if count is not None:
            subject = f"Partition {partition} of topic {topic} with partition count {count} is"
        text = f"{subject} not present in metadata after {max_wait_ms:.0f} ms."
        error = timed_out(text, self.why_waiting((topic,), now, now - max_wait_ms))
        code, _round = self._topic_errors.get(topic, (0, 0))
        error.missing_topic = topic if code == ErrorCode.unknown_topic_or_partition else None
        if count is not None and partition is not None:
            error.missing_partition = topic, partition
        return error


def _newly_leaderless(before: Mapping[str, tuple[int, ...]], update: ClusterSnapshot) -> list[str]:
    """The partitions of these topics without leader that had one ``before``, or were not known."""
    new = []
    for name, known in before.items():
        lost = [index for index, leader in enumerate(update.topics[name].leaders) if leader == NO_LEADER]
        new += [f"{name}-{index}" for index in lost if known[index : index + 1] != (NO_LEADER,)]
    return new


def _missing(snapshot: ClusterSnapshot, wanted: Mapping[str, int | None]) -> list[str]:
    counts = snapshot.partition_counts
    return [topic for topic, partition in wanted.items() if counts.get(topic, 0) <= (partition or 0)]
