"""``topicCreation`` never and create: topics are looked up, or created, before the first row.

On the driver that is the option topic, in a task only topics that its rows name. A process looks a topic up again after
metadata.max.age.ms, and after a write has failed, because the topic may have been deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.recently_used import remember
from spark_kafka_sink.errors import BrokerError, KafkaError, TopicCreationError
from spark_kafka_sink.spark.options import SinkOptions, TopicCreation
from spark_kafka_sink.spark.python_process import announce

if TYPE_CHECKING:
    from spark_kafka_sink.network.calls import Calls
    from spark_kafka_sink.producer.task_output import TaskOutput
    from spark_kafka_sink.spark.rows import Rows

_SECOND_LOOK_MS: Final = 500.0
"""A broker may not know yet a topic that was just created."""

_LOOKS_AT_OWN: Final = 4
"""How often a topic of the sink's own is looked up that the brokers may be creating."""

_SUGGESTING_MS: Final = 1_000.0
_POLL_MS: Final = 50.0
_MOST_NAMED: Final = 5

_MOST_CONFIGS: Final = 64

_known: dict[ProducerConfig, dict[str, float]] = {}
"""Topics that exist, and until when (monotonic ms) this process relies on it."""


def ensure_planned_topics(options: SinkOptions) -> None:
    """On the driver. Raises ``TopicCreationError`` if the option topic does not exist and is not created.

    Exactly-once, which connects anyway, looks up receiptsTopic and deadLetterTopic without topicCreation, too:
    otherwise, the first row that cannot be written would tell that they are missing.
    """
    if options.topic_creation is None and options.exactly_once is None:
        return
    from spark_kafka_sink.network.diagnosis import require
    from spark_kafka_sink.network.rpc import Rpc

    planned = [] if options.topic_creation is None or options.topic is None else [options.topic]
    rows = _unknown(options, planned)
    own = _unknown(options, options.own_topics)
    if rows or own:
        with closing(Rpc(options.producer, SystemClock())) as rpc:
            if rows:
                _ensure(rpc, options.topic_creation, rows, options)
            if own:
                _ensure(rpc, None, own, options)
            versions = rpc.any_api_versions()
        require(options.producer, versions)


class RequireTopics:
    """A stage, and ``Topics`` of ``TaskFormats``: the topics that a task's rows name are looked up on its producer's
    connections, and created if the options say so.

    Raises ``TopicCreationError`` with the policy, the topics, and names like theirs. Takes at most max.block.ms.
    """

    def __init__(self, options: SinkOptions, output: TaskOutput) -> None:
        self._options = options
        self._output = output
        self.looks_up = options.topic is None and options.topic_creation is not None

    def __call__(self, rows: Rows) -> Iterator[Rows]:
        if not rows.are_all_rejected:
            self._look_up(rows.kept_topics.names)
        yield rows

    def require(self, topic: str) -> None:
        """Looks the topic up as an append does, too."""
        if self.looks_up:
            self._look_up([topic])
        self._output.core().partition_count(topic)

    def _look_up(self, names: Collection[str]) -> None:
        if unknown := _unknown(self._options, names):
            _ensure(self._output.core().calls, self._options.topic_creation, unknown, self._options)


def note_on_missing(topic: str, options: SinkOptions) -> str:
    """What helps if the brokers do not have ``topic``: names like it, and the option. Asks a broker, for a second."""
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
    """A write has failed, perhaps because a topic was deleted: the next one looks its topics up."""
    _known.pop(options.producer, None)


def _unknown(options: SinkOptions, names: Collection[str]) -> list[str]:
    known, now = _known.get(options.producer, {}), SystemClock().now()
    return [name for name in names if known.get(name, now) <= now]


def _ensure(calls: Calls, creation: TopicCreation | None, names: Sequence[str], options: SinkOptions) -> None:
    """``creation`` is None for the sink's own topics. These are requested as by a producer, so that brokers may create
    them: with topicCreation, the tasks' requests do not let them.
    """
    from spark_kafka_sink.network.topics import topic_metadata

    deadline, looks = calls.now() + options.producer.max_block_ms, 1
    try:
        if creation is None:
            may_create = options.topic_creation is not None or options.producer.allow_auto_create_topics
            topic_metadata(calls, names, deadline, allow_auto_topic_creation=may_create)
            looks = _LOOKS_AT_OWN
        missing = _missing(calls, names, deadline)
        if creation is not None and creation.create:
            for name in missing:
                _create(calls, creation, name, deadline)
        else:
            while missing and looks:
                calls.pause(_SECOND_LOOK_MS)
                missing, looks = _missing(calls, missing, deadline), looks - 1
            if missing:
                raise TopicCreationError(_no_such_topic(calls, creation, missing))
    except TopicCreationError:
        raise
    except KafkaError as error:
        policy = "" if creation is None else f"topicCreation={creation.policy}: "
        named = ", ".join(names[:_MOST_NAMED])
        raise TopicCreationError(f"{policy}{named} could not be looked up: {error}") from error
    now = SystemClock().now()
    known = {name: until for name, until in _known.get(options.producer, {}).items() if until > now}
    known |= dict.fromkeys(names, now + options.producer.metadata_max_age_ms)
    remember(_known, options.producer, known, _MOST_CONFIGS)


def _no_such_topic(calls: Calls, creation: TopicCreation | None, missing: Sequence[str]) -> str:
    named = []
    for name in missing[:_MOST_NAMED]:
        similar = ""
        with suppress(KafkaError):
            similar = _similar(calls, name)
        named.append(f"{name} (did you mean {similar}?)" if similar else name)
    if creation is None:
        return f"no such topic for dead letters or receipts: {', '.join(named)}. Create it."
    return f"topicCreation=never: no such topic: {', '.join(named)}. Create it, or set topicCreation=create."


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


def _create(calls: Calls, creation: TopicCreation, name: str, deadline: float) -> None:
    from spark_kafka_sink.network.topics import NewTopic, create_topic, why_not_created

    new = NewTopic(name, creation.partitions, creation.replication_factor, dict(creation.settings))
    try:
        create_topic(calls, new, deadline)
    except BrokerError as error:
        raise TopicCreationError(
            f"topicCreation=create: topic {name} does not exist and cannot be created: {why_not_created(error)}"
        ) from error
    while _missing(calls, [name], deadline):
        if calls.now() + _POLL_MS >= deadline:
            raise TopicCreationError(
                f"topicCreation=create: topic {name} was created, but is not in the brokers' metadata within "
                "kafka.max.block.ms. Run the write again."
            )
        calls.pause(_POLL_MS)
    announce(f"topic {name} created (topicCreation=create)")


def _similar(calls: Calls, name: str) -> str:
    from spark_kafka_sink.network.topics import similar_topics

    return " or ".join(similar_topics(calls, name, calls.now() + _SUGGESTING_MS))
