"""What is known of the cluster (Java: ``ProducerMetadata``).

Callers wait here for their topic, on any thread; the sender thread asks when an update is due and brings the answers.
One lock guards everything but ``snapshot``, which is immutable and read without it.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from random import Random
from types import MappingProxyType

from spark_kafka_sink.clock import Clock
from spark_kafka_sink.errors import (
    BrokerError,
    KafkaError,
    KafkaTimeoutError,
    UnsupportedVersionError,
    WrongProtocolError,
)
from spark_kafka_sink.model import ClusterSnapshot, Node, TopicInfo, TopicPartition
from spark_kafka_sink.network.backoff import ExponentialBackoff
from spark_kafka_sink.waiting import Waiters

# Errors of a connection or a request that waiting does not mend.
_FATAL_ERRORS = (WrongProtocolError, UnsupportedVersionError)


@dataclass(frozen=True, slots=True)
class _TopicVerdict:
    """``fatal``: a waiter is told at once, not after its time is up."""

    name: str
    text: str
    fatal: bool


# Error codes of a topic in a metadata answer; every other one is waited out and named by its number.
_TOPIC_VERDICTS = {
    3: _TopicVerdict(
        "UNKNOWN_TOPIC_OR_PARTITION",
        "The brokers do not have topic {topic} and did not create it (their auto.create.topics.enable).",
        False,
    ),
    5: _TopicVerdict("LEADER_NOT_AVAILABLE", "Topic {topic} has no leaders yet (LEADER_NOT_AVAILABLE).", False),
    17: _TopicVerdict("INVALID_TOPIC_EXCEPTION", "Invalid topics: [{topic}]", True),
    29: _TopicVerdict("TOPIC_AUTHORIZATION_FAILED", "Not authorized to access topics: [{topic}]", True),
}


@dataclass(frozen=True, slots=True)
class MetadataConfig:
    """Times in ms; the defaults are Kafka's (``metadata.max.age.ms``, ``metadata.max.idle.ms``, ``retry.backoff.ms``…).

    ``rebootstrap``: ``metadata.recovery.strategy`` is ``rebootstrap`` (KIP-899, KIP-1102).
    """

    max_age_ms: float = 300_000
    max_idle_ms: float = 300_000
    retry_backoff_ms: float = 100
    retry_backoff_max_ms: float = 1_000
    allow_auto_topic_creation: bool = True
    rebootstrap: bool = True
    rebootstrap_trigger_ms: float = 300_000


class Metadata:
    """The cluster as last heard of, and when to ask again.

    A *round* ends whatever callers wait for: an update, an error that waiting cannot mend, or the end of the sender.
    """

    def __init__(self, bootstrap: tuple[tuple[str, int], ...], config: MetadataConfig, random: Random) -> None:
        self.config = config
        self.bootstrap_nodes = tuple(Node(-1 - i, host, port) for i, (host, port) in enumerate(bootstrap))
        self.snapshot = ClusterSnapshot()
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random)
        self._lock = threading.RLock()
        self._changed = Waiters()
        self._round = 0
        self._closed: KafkaError | None = None
        self._fatal: tuple[int, KafkaError] | None = None
        self._last_used: dict[str, float] = {}
        self._topic_errors: dict[str, tuple[int, int]] = {}
        self._new_topics: set[str] = set()
        self._full_requested = True
        self._urgent = False
        self._in_flight = False
        self._attempts = 0
        self._allowed_at = -math.inf
        self._updated_at = -math.inf
        self._failing_since: float | None = None
        self._rebootstrapping = False
        self._errors: dict[int, KafkaError] = {}

    # Any thread.

    def wait_for_topic(
        self, topic: str, partition: int | None, max_wait_ms: float, clock: Clock, wake: Callable[[], None]
    ) -> ClusterSnapshot:
        """A snapshot that knows ``topic`` and, if given, ``partition``; ``wake`` makes the sender ask for it.

        Raises ``KafkaTimeoutError`` with Kafka's text and what is known of the reason; at once ``BrokerError`` for an
        invalid or forbidden topic, ``WrongProtocolError`` and ``UnsupportedVersionError``, and what ``fail_waiters``
        was given.
        """
        started = clock.now()
        deadline = started + max_wait_ms
        with self._lock:
            begun = seen = self._round
        while True:
            now = clock.now()
            with self._lock:
                self._raise_verdict(topic, begun)
                self._last_used[topic] = now
                if _has(self.snapshot, topic, partition):
                    return self.snapshot
                if now >= deadline:
                    raise KafkaTimeoutError(self._timeout_text(topic, partition, max_wait_ms))
                self._want(topic)
            wake()
            seen = self._await_round(seen, deadline - now)

    def expect(self, topics: Iterable[str], now: float) -> None:
        """The next request asks for all of these, so that whoever waits for one after the other waits once."""
        with self._lock:
            for topic in topics:
                self._last_used[topic] = now
                if topic not in self.snapshot.topics:
                    self._want(topic)

    def _await_round(self, seen: int, timeout_ms: float) -> int:
        self._changed.wait_for(self._lock, lambda: self._round != seen, timeout_ms)
        return self._round

    def fail_waiters(self, error: KafkaError) -> None:
        """The producer is closed or its sender died: whoever waits, now or later, gets ``error``."""
        with self._lock:
            self._closed = error
            self._end_round()

    @property
    def round(self) -> int:
        """Grows with each round that ends: tells whoever turns the network by hand that there is news."""
        return self._round

    def request_update(self) -> None:
        """What is known is out of date: ask again for all topics as soon as the backoff allows."""
        with self._lock:
            self._full_requested = True

    # The sender thread.

    def next_update(self, now: float) -> float:
        """The moment (ms) a Metadata request is due, ``inf`` while one is in flight."""
        with self._lock:
            if self._in_flight:
                return math.inf
            if self._urgent:
                return now
            if self._full_requested or self._new_topics:
                return max(now, self._allowed_at)
            return max(now, self._allowed_at, self._updated_at + self.config.max_age_ms)

    def request_for(self, now: float, in_use: Iterable[str] = ()) -> tuple[str, ...]:
        """The topics to ask for in the request that is now being sent; an update is in flight from here on.

        Only what is new when nothing else is due. Forgets topics that nobody used for ``max_idle_ms``; ``in_use`` have
        batches that are not done, and stay.
        """
        with self._lock:
            self._last_used.update(dict.fromkeys(in_use, now))
            oldest = now - self.config.max_idle_ms
            self._last_used = {topic: used for topic, used in self._last_used.items() if used > oldest}
            full = self._full_requested or now >= self._updated_at + self.config.max_age_ms
            topics = tuple(topic for topic in self._last_used if full or topic in self._new_topics)
            self._in_flight = True
            self._full_requested = self._urgent = False
            self._new_topics.clear()
            return topics

    def candidates(self, now: float) -> tuple[Node, ...]:
        """The nodes to ask: those of the snapshot, or the bootstrap servers while there are none or none answers."""
        with self._lock:
            if not self._rebootstrapping and self._lost(now):
                self._rebootstrapping = True
            return self._candidates()

    def updated(self, answer: ClusterSnapshot, now: float) -> None:
        """An answer arrived. Newer leader epochs that are already known stay (KIP-320)."""
        with self._lock:
            self._in_flight = self._rebootstrapping = False
            self._failing_since = None
            self._errors.clear()
            self._end_round()
            self._note_topic_errors(answer)
            # To ask again before an update is due by its age, and to hear the same, is to ask too often (KIP-580).
            soon = now - self._updated_at < min(2 * self.config.retry_backoff_max_ms, self.config.max_age_ms)
            same = all(self.snapshot.topics.get(name) == info for name, info in answer.topics.items())
            self._attempts = self._attempts + 1 if soon and same else 0
            self._allowed_at = now + self._backoff.delay(self._attempts)
            self._updated_at = now
            self.snapshot = _merged(self.snapshot, answer, self._last_used)
            self._new_topics -= {name for name, info in answer.topics.items() if not info.error}
            self._urgent = self._urgent and bool(self._new_topics)

    def failed(self, error: KafkaError, now: float) -> None:
        """The request in flight brought no answer; the next asks for everything, after a backoff."""
        with self._lock:
            self._in_flight = self._urgent = False
            self._full_requested = True
            self._allowed_at = now + self._backoff.delay(self._attempts)
            self._attempts += 1
            self._failing_since = now if self._failing_since is None else self._failing_since
            if isinstance(error, _FATAL_ERRORS):
                self._end_round(error)

    def note_connection_error(self, node: Node, error: KafkaError, now: float) -> None:
        """A broker could not be reached or its connection broke: the cluster may have changed.

        A peer that cannot be Kafka ends the waiting at once when no other node is left to ask.
        """
        with self._lock:
            self._full_requested = True
            self._failing_since = now if self._failing_since is None else self._failing_since
            self._errors.pop(node.id, None)
            self._errors[node.id] = error
            if isinstance(error, _FATAL_ERRORS) and all(each.id in self._errors for each in self._candidates()):
                self._end_round(error)

    def rebootstrap(self) -> None:
        """The brokers ask for it (REBOOTSTRAP_REQUIRED): the next update comes from the bootstrap servers."""
        with self._lock:
            self._rebootstrapping = self.config.rebootstrap
            self._full_requested = True

    def update_leader(self, partition: TopicPartition, leader: Node, leader_epoch: int) -> None:
        """A broker named a newer leader in passing (KIP-951); older epochs and unknown partitions are ignored."""
        with self._lock:
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
                nodes=MappingProxyType({**snapshot.nodes, leader.id: leader}),
                topics=MappingProxyType({**snapshot.topics, info.name: changed}),
            )

    # With the lock held.

    def _want(self, topic: str) -> None:
        # A topic never asked for does not wait for the backoff of those that were, but of a failing cluster.
        if topic not in self._topic_errors and topic not in self.snapshot.topics and self._failing_since is None:
            self._urgent = True
        self._new_topics.add(topic)

    def _end_round(self, fatal: KafkaError | None = None) -> None:
        self._round += 1
        if fatal is not None:
            self._fatal = self._round, fatal
        self._changed.notify_all()

    def _raise_verdict(self, topic: str, begun: int) -> None:
        if self._closed is not None:
            raise self._closed.with_traceback(None)
        if self._fatal is not None and self._fatal[0] > begun:
            raise self._fatal[1].with_traceback(None)
        code, told_in = self._topic_errors.get(topic, (0, 0))
        verdict = _TOPIC_VERDICTS.get(code)
        if verdict is not None and verdict.fatal and told_in > begun:
            raise BrokerError(code, verdict.name, verdict.text.format(topic=topic))

    def _note_topic_errors(self, answer: ClusterSnapshot) -> None:
        self._topic_errors = {name: error for name, error in self._topic_errors.items() if name in self._last_used}
        for name, info in answer.topics.items():
            self._topic_errors.pop(name, None)
            if info.error:
                self._topic_errors[name] = info.error, self._round

    def _candidates(self) -> tuple[Node, ...]:
        if self._rebootstrapping or not self.snapshot.nodes:
            return self.bootstrap_nodes
        return tuple(self.snapshot.nodes.values())

    def _lost(self, now: float) -> bool:
        if not self.config.rebootstrap or not self.snapshot.nodes or self._failing_since is None:
            return False
        silent_for = now - self._failing_since
        return silent_for >= self.config.rebootstrap_trigger_ms or self.snapshot.nodes.keys() <= self._errors.keys()

    def _timeout_text(self, topic: str, partition: int | None, max_wait_ms: float) -> str:
        count = self.snapshot.partition_count(topic)
        if count is not None:
            text = (
                f"Partition {partition} of topic {topic} with partition count {count} "
                f"is not present in metadata after {max_wait_ms:.0f} ms."
            )
        else:
            text = f"Topic {topic} not present in metadata after {max_wait_ms:.0f} ms."
        code, _round = self._topic_errors.get(topic, (0, 0))
        if code in _TOPIC_VERDICTS:
            text = f"{text} {_TOPIC_VERDICTS[code].text.format(topic=topic)}"
        elif code:
            text = f"{text} The brokers answer with error {code} for it."
        servers = ",".join(f"{node.host}:{node.port}" for node in self.bootstrap_nodes)
        if not self._errors:
            return text if self.snapshot.generation else f"{text} No broker has answered (bootstrap.servers={servers})."
        unreachable = all(node.id in self._errors for node in self._candidates())
        said = "No broker could be reached" if unreachable else "The last connection error"
        return f"{text} {said} (bootstrap.servers={servers}): {list(self._errors.values())[-1]}"


def _has(snapshot: ClusterSnapshot, topic: str, partition: int | None) -> bool:
    count = snapshot.partition_count(topic)
    return count is not None and (partition is None or partition < count)


def _merged(known: ClusterSnapshot, answer: ClusterSnapshot, in_use: dict[str, float]) -> ClusterSnapshot:
    topics = {name: info for name, info in known.topics.items() if name in in_use}
    for name, info in answer.topics.items():
        old = known.topics.get(name)
        topics[name] = info if old is None or old.topic_id != info.topic_id else _newer_leaders(old, info)
    return replace(answer, generation=known.generation + 1, topics=MappingProxyType(topics))


def _newer_leaders(old: TopicInfo, new: TopicInfo) -> TopicInfo:
    leaders, epochs = list(new.leaders), list(new.leader_epochs)
    for index, epoch in enumerate(old.leader_epochs[: len(epochs)]):
        if 0 <= epochs[index] < epoch:
            leaders[index], epochs[index] = old.leaders[index], epoch
    return replace(new, leaders=tuple(leaders), leader_epochs=tuple(epochs))
