"""The values never and create of ``topicCreation``: topics are looked up, or created, before the first row.

The driver looks up the topics that options name, a task only topics that its rows name. Topics are looked up again
after metadata.max.age.ms, and after a write has failed, because the topic may have been deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.recently_used import remember
from spark_kafka_sink.errors import BrokerError, KafkaError, TopicCreationError, clause, listed
from spark_kafka_sink.spark.options import SinkOptions, TopicCreation
from spark_kafka_sink.spark.python_process import announce

if TYPE_CHECKING:
    from spark_kafka_sink.network.calls import Calls
    from spark_kafka_sink.producer.task_output import TaskOutput
    from spark_kafka_sink.spark.rows import TaskRows

_SECOND_LOOK_MS: Final = 500.0
"""The pause before a second look, because a broker may not know yet a topic that was just created."""

_LOOKS_AT_OWN: Final = 4
"""How often a topic of the sink's own is looked up while the brokers may be creating it."""

_SUGGESTING_MS: Final = 1_000.0
_POLL_MS: Final = 50.0
_MAX_SUGGESTIONS: Final = 5
_MAX_LIST_LENGTH: Final = 600
"""The most characters of a list of topics: at least two of the longest names."""

_MAX_CONFIGS: Final = 64
_MAX_AT_ONCE: Final = 50
_MAX_PARTITIONS_AT_ONCE: Final = 5_000
"""The most partitions created by one request. A controller refuses a request that makes 10,000 records
(``QuorumController.MAX_RECORDS_PER_USER_OP``)."""

_known: dict[ProducerConfig, dict[str, float]] = {}
"""Topics that exist, and until when (monotonic ms) this worker relies on it."""


def ensure_planned_topics(options: SinkOptions, *, is_batch: bool = False) -> None:
    """Looks up, or creates, the topics that options name; on the driver. Raises ``TopicCreationError`` if one does not
    exist and is not created.

    Exactly-once, which connects anyway, looks up receiptsTopic and deadLetterTopic without topicCreation, too:
    otherwise only the first row that cannot be written would show that they are missing. A micro-batch relies on the
    look-ups of earlier ones. A batch write looks its topics up, because the last write may be long ago.
    """
    topics = (*options.managed_topics, *options.own_topics)
    if not topics or (options.topic_creation is None and options.exactly_once is None):
        return
    from spark_kafka_sink.spark.application import shared_file

    file, now = shared_file(), SystemClock().epoch_ms()
    seen = {topic: file.get(_key(options, topic)) for topic in topics}
    managed = [topic for topic in options.managed_topics if is_batch or (seen[topic] or 0) <= now]
    own = [topic for topic in options.own_topics if (seen[topic] or 0) <= now]
    if not managed and not own:
        return
    from spark_kafka_sink.network.diagnosis import require
    from spark_kafka_sink.network.rpc import Rpc

    with closing(Rpc(options.producer, SystemClock())) as rpc:
        if managed:
            before = [topic for topic in managed if seen[topic] is not None]
            _ensure(rpc, options.topic_creation, managed, options, before)
        if own:
            _ensure(rpc, None, own, options)
        versions = rpc.any_api_versions()
    require(options.producer, versions)
    for topic in (*managed, *own):
        file.add(_key(options, topic), now + options.producer.metadata_max_age_ms)


def look_up_again(options: SinkOptions) -> None:
    """Has the next write look its topics up, because a write has failed, perhaps because a topic was deleted; on the
    driver. The next write is planned in another process, so the note goes to the application's file.
    """
    from spark_kafka_sink.spark.application import shared_file

    for topic in (*options.managed_topics, *options.own_topics):
        if shared_file().get(_key(options, topic)):
            shared_file().add(_key(options, topic), 0)


def _key(options: SinkOptions, topic: str) -> tuple[str, ...]:
    """The key in the application's file for the time (epoch ms) until which the driver's processes rely on a topic."""
    return ("topic", repr(options.producer.bootstrap_servers), topic)


class TopicCheck:
    """A stage that looks up the topics that a task's rows name, on its producer's connections, and creates them if the
    options say so. It is also the ``RequiredTopics`` of ``TaskFormats``.

    Raises ``TopicCreationError`` with the policy, the topics, and names like theirs.
    """

    def __init__(self, options: SinkOptions, output: TaskOutput) -> None:
        self._options = options
        self._output = output
        self.looks_up = options.topic is None and options.topic_creation is not None

    def __call__(self, rows: TaskRows) -> Iterator[TaskRows]:
        if not rows.are_all_rejected:
            self._look_up(rows.kept_topics.names)
        yield rows

    def require(self, topic: str) -> None:
        """Looks the topic up, as an append does."""
        if self.looks_up:
            self._look_up([topic])
        self._output.core().partition_count(topic)

    def _look_up(self, names: Collection[str]) -> None:
        config, now = self._options.producer, SystemClock().now()
        known = remember(_known, config, _known.get(config, {}), _MAX_CONFIGS)
        if unknown := [name for name in names if known.get(name, now) <= now]:
            _ensure(self._output.core().calls, self._options.topic_creation, unknown, self._options, known)
            known.update(dict.fromkeys(unknown, SystemClock().now() + config.metadata_max_age_ms))


def note_on_missing(topic: str, options: SinkOptions) -> str:
    """The advice if the brokers do not have ``topic``: similar names, and the option. Asks a broker, for a second."""
    from spark_kafka_sink.network.rpc import Rpc

    notes = []
    with suppress(KafkaError), closing(Rpc(options.producer, SystemClock())) as rpc:
        if similar := _similar(rpc, topic):
            notes.append(f"Did you mean {similar}?")
    creation = options.topic_creation
    if topic not in options.own_topics and not (creation is not None and creation.create):
        notes.append("With topicCreation=create, the sink creates missing topics.")
    return " ".join(notes)


def forget_topics(options: SinkOptions) -> None:
    """Has the worker's next task look its topics up, because a task has failed, perhaps because a topic was deleted."""
    _known.pop(options.producer, None)


def _ensure(
    calls: Calls,
    creation: TopicCreation | None,
    names: Sequence[str],
    options: SinkOptions,
    seen: Collection[str] = (),
) -> None:
    """Looks up, or creates, the topics. ``creation``: None for topics that are left to the brokers. Such topics are
    requested as by a producer, so that brokers may create them. (With topicCreation, the tasks' requests do not let
    brokers create topics.) ``seen``: the topics that existed before.
    """
    from spark_kafka_sink.network.topics import topic_metadata

    deadline, looks = calls.now() + options.producer.max_block_ms, 1
    try:
        if creation is None:
            may_create = options.topic_creation is not None or options.producer.allow_auto_create_topics
            topic_metadata(calls, names, deadline, allow_auto_topic_creation=may_create)
            looks = _LOOKS_AT_OWN
        elif creation.create:
            looks = 0
        missing = _missing(calls, names, deadline)
        while missing and looks:
            calls.pause(_SECOND_LOOK_MS)
            missing, looks = _missing(calls, missing, deadline), looks - 1
    except KafkaError as error:
        policy = "" if creation is None else f"topicCreation={creation.policy}: "
        raise TopicCreationError(f"{policy}{_named(names)} could not be looked up: {error}") from error
    if missing and creation is not None and creation.create:
        _create(calls, creation, missing, options.producer.max_block_ms, seen)
    elif missing:
        raise TopicCreationError(_no_such_topic(calls, creation, missing))


def _named(topics: Sequence[str]) -> str:
    return f"topic{'s' * (len(topics) > 1)} {listed(topics, _MAX_LIST_LENGTH)}"


def _were_created(topics: Sequence[str]) -> str:
    return f"{_named(topics)} {'were' if len(topics) > 1 else 'was'} created"


def _no_such_topic(calls: Calls, creation: TopicCreation | None, missing: Sequence[str]) -> str:
    named = [*missing]
    for index, name in enumerate(missing[:_MAX_SUGGESTIONS]):
        similar = ""
        with suppress(KafkaError):
            similar = _similar(calls, name)
        if similar:
            named[index] = f"{name} (did you mean {similar}?)"
    what = listed(named, _MAX_LIST_LENGTH)
    if creation is None:
        return f"There is no such topic for dead letters or receipts: {what}. Create it."
    return f"There is no such topic, and topicCreation is never: {what}. Create it, or set topicCreation=create."


def _missing(calls: Calls, names: Sequence[str], deadline: float) -> list[str]:
    """The topics that do not exist. Raises ``BrokerError`` for an invalid or forbidden one."""
    from kio.schema.errors import ErrorCode

    from spark_kafka_sink.network.error_table import Action, action, broker_error
    from spark_kafka_sink.network.topics import topic_metadata

    missing = []
    for topic in topic_metadata(calls, names, deadline).topics:
        if topic.error_code is ErrorCode.unknown_topic_or_partition:
            missing.append(str(topic.name))
        elif action("metadata", topic.error_code) is Action.FAIL:
            raise broker_error(topic.error_code, f"Metadata of topic {topic.name}")
    return missing


def _create(
    calls: Calls, creation: TopicCreation, missing: Sequence[str], max_block_ms: float, seen: Collection[str]
) -> None:
    """Creates the topics, many with one request. Each request may take max.block.ms."""
    from spark_kafka_sink.network.topics import NewTopic, create_topics, why_not_created

    settings = dict(creation.settings)
    most = max(1, min(_MAX_AT_ONCE, _MAX_PARTITIONS_AT_ONCE // max(1, creation.partitions)))
    for start in range(0, len(missing), most):
        names = missing[start : start + most]
        new = [NewTopic(name, creation.partitions, creation.replication_factor, settings) for name in names]
        deadline, left = calls.now() + max_block_ms, names
        before = f" {start} other topics were created before." if start else ""
        try:
            create_topics(calls, new, deadline)
            while (left := _missing(calls, left, deadline)) and calls.now() + _POLL_MS < deadline:
                calls.pause(_POLL_MS)
        except KafkaError as error:
            why = clause(why_not_created(error) if isinstance(error, BrokerError) else error)
            raise TopicCreationError(
                f"topicCreation=create: {_named(names)} cannot be created: {why}.{before}"
            ) from error
        if left:
            raise TopicCreationError(
                f"topicCreation=create: {_were_created(left)}, but did not appear in the brokers' metadata within "
                f"kafka.max.block.ms. Run the write again.{before}"
            )
        if anew := [name for name in names if name in seen]:
            announce(f"{_were_created(anew)} again (topicCreation=create) after a deletion", logging.WARNING)
        if first := [name for name in names if name not in seen]:
            announce(f"{_were_created(first)} (topicCreation=create)")


def _similar(calls: Calls, name: str) -> str:
    from spark_kafka_sink.network.topics import similar_topics

    return " or ".join(similar_topics(calls, name, calls.now() + _SUGGESTING_MS))
