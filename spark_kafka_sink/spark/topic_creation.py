"""``topicCreation`` never and create: topics are looked up, or created, before the first row.

On the driver the option topic, in a task the topics of its rows. A process looks a topic up again after
metadata.max.age.ms, and after a task has failed: it may have been deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import BrokerError, KafkaError, TopicCreationError
from spark_kafka_sink.spark.options import SinkOptions, TopicCreation
from spark_kafka_sink.spark.python_process import announce

if TYPE_CHECKING:
    from spark_kafka_sink.network.calls import Calls
    from spark_kafka_sink.network.rpc import Rpc
    from spark_kafka_sink.spark.rows import End, Rows

_SECOND_LOOK_MS: Final = 500.0
"""A broker may not know yet a topic that was just created."""

_LOOKS_AT_OWN: Final = 4
"""How often a topic of the sink's own is looked up that the brokers may be creating."""

_SUGGESTING_MS: Final = 1_000.0
_POLL_MS: Final = 50.0
_MOST_NAMED: Final = 5

_known: dict[ProducerConfig, dict[str, float]] = {}
"""Topics that exist, and until when (monotonic ms) this process relies on it."""


def ensure_planned_topics(options: SinkOptions) -> None:
    """On the driver. Raises ``TopicCreationError`` if the option topic does not exist and is not created.

    receiptsTopic and deadLetterTopic are requested as by a producer, so that brokers may create them: the tasks'
    requests do not let them. Exactly-once, which connects anyway, looks these two up without topicCreation, too:
    otherwise, the first row that cannot be written would tell that they are missing.
    """
    if options.topic_creation is None and options.exactly_once is None:
        return
    from spark_kafka_sink.network.diagnosis import require

    if options.topic_creation and options.topic is not None and (rows := _unknown(options, (options.topic,))):
        with _connected(options.producer, options.topic_creation, rows) as rpc:
            _ensure(rpc, options.topic_creation, rows, options)
            versions = rpc.any_api_versions()
        require(options.producer, versions)
        _remember(options, rows)
    letters = None if options.dead_letters is None else options.dead_letters.topic
    own = _unknown(options, [topic for topic in (options.receipts_topic, letters) if topic is not None])
    if own:
        from spark_kafka_sink.network.topics import topic_metadata

        creates = options.topic_creation is not None or options.producer.allow_auto_create_topics
        with _connected(options.producer, options.topic_creation, own) as rpc:
            topic_metadata(rpc, own, _deadline(rpc, options), allow_auto_topic_creation=creates)
            _ensure(rpc, None, own, options)
        _remember(options, own)


class RequireTopics:
    """A stage, and ``Topics`` of ``TaskFormats``: the topics of a task's rows are looked up on its producer's
    connections, and created if the options say so.

    Raises ``TopicCreationError`` with the policy, the topics, and names like theirs. Takes at most max.block.ms.
    """

    def __init__(self, options: SinkOptions, end: End) -> None:
        self._options = options
        self._end = end

    def __call__(self, rows: Rows) -> Iterator[Rows]:
        if not rows.are_all_rejected:
            self._ensure(rows.kept_topics.names)
        yield rows

    def require(self, topic: str) -> None:
        """Looks the topic up as an append does, too."""
        self._ensure([topic])
        self._end.core().partition_count(topic)

    def _ensure(self, names: Collection[str]) -> None:
        creation, unknown = self._options.topic_creation, _unknown(self._options, names)
        if creation is not None and unknown:
            calls = self._end.core().calls
            with _explained(creation, unknown):
                _ensure(calls, creation, unknown, self._options)
            _remember(self._options, unknown)


def note_on_missing(topic: str, options: SinkOptions) -> str:
    """What helps if the brokers do not have ``topic``: names like it, and the option. Asks a broker, for a second."""
    from spark_kafka_sink.network.rpc import Rpc

    notes = []
    with suppress(KafkaError), closing(Rpc(options.producer, SystemClock())) as rpc:
        if similar := _similar(rpc, topic):
            notes.append(f"Did you mean {similar}?")
    creation, letters = options.topic_creation, options.dead_letters
    own = (options.receipts_topic, None if letters is None else letters.topic)
    if topic not in own and not (creation is not None and creation.create):
        notes.append("With topicCreation=create, the sink creates missing topics.")
    return " ".join(notes)


def forget_topics(options: SinkOptions) -> None:
    """A write has failed, perhaps because a topic was deleted: the next one looks its topics up."""
    _known.pop(options.producer, None)


def _unknown(options: SinkOptions, names: Collection[str]) -> list[str]:
    known, now = _known.get(options.producer, {}), SystemClock().now()
    return [name for name in names if known.get(name, now) <= now]


def _remember(options: SinkOptions, names: Collection[str]) -> None:
    until = SystemClock().now() + options.producer.metadata_max_age_ms
    _known.setdefault(options.producer, {}).update(dict.fromkeys(names, until))


def _ensure(calls: Calls, creation: TopicCreation | None, names: Sequence[str], options: SinkOptions) -> None:
    """``creation`` is None for the sink's own topics."""
    deadline = _deadline(calls, options)
    missing = _missing(calls, names, deadline)
    if not missing:
        return
    if creation is not None and creation.create:
        for name in missing:
            _create(calls, creation, name, deadline)
        return
    looks = 1 if creation is not None else _LOOKS_AT_OWN
    while missing and looks:
        calls.pause(_SECOND_LOOK_MS)
        missing, looks = _missing(calls, missing, deadline), looks - 1
    if missing:
        named = [f"{name}{_did_you_mean(calls, name)}" for name in missing[:_MOST_NAMED]]
        if creation is None:
            raise TopicCreationError(f"no such topic for dead letters or receipts: {', '.join(named)}. Create it.")
        raise TopicCreationError(
            f"topicCreation=never: no such topic: {', '.join(named)}. Create it, or set topicCreation=create."
        )


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


def _did_you_mean(calls: Calls, name: str) -> str:
    with suppress(KafkaError):
        if similar := _similar(calls, name):
            return f" (did you mean {similar}?)"
    return ""


def _similar(calls: Calls, name: str) -> str:
    from spark_kafka_sink.network.topics import similar_topics

    return " or ".join(similar_topics(calls, name, calls.now() + _SUGGESTING_MS))


@contextmanager
def _connected(config: ProducerConfig, creation: TopicCreation | None, names: Sequence[str]) -> Iterator[Rpc]:
    """Connections for a look-up of ``names``."""
    from spark_kafka_sink.network.rpc import Rpc

    with closing(Rpc(config, SystemClock())) as rpc, _explained(creation, names):
        yield rpc


@contextmanager
def _explained(creation: TopicCreation | None, names: Sequence[str]) -> Iterator[None]:
    """A look-up of ``names``, whose failure is a ``TopicCreationError``."""
    try:
        yield
    except TopicCreationError:
        raise
    except KafkaError as error:
        named = ", ".join(names[:_MOST_NAMED])
        policy = "" if creation is None else f"topicCreation={creation.policy}: "
        raise TopicCreationError(f"{policy}{named} could not be looked up: {error}") from error


def _deadline(calls: Calls, options: SinkOptions) -> float:
    return calls.now() + options.producer.max_block_ms
