"""Whether a batch's topics are still those that it was written to: a topic that is created again has another id."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.exactly_once.ledger_format import shown_id
from spark_kafka_sink.exactly_once.session import Session
from spark_kafka_sink.exactly_once.values import TaskReport, TopicId

_METADATA_LAG_MS: Final = 2_000.0
"""A broker may learn of a new topic this late."""

_PAUSE_MS: Final = 100.0


class TopicChanges(NamedTuple):
    """Names of topics. Ids that the brokers do not tell are not compared."""

    missing: tuple[str, ...] = ()
    recreated: tuple[str, ...] = ()

    @property
    def gone(self) -> tuple[str, ...]:
        """Those that no longer hold what was written to them."""
        return tuple(sorted({*self.missing, *self.recreated}))


def topic_changes(session: Session, written: Iterable[TopicId], deadline: float) -> TopicChanges:
    """How the topics differ from ``written``; asks again for a while if they do. Raises ``KafkaError``."""
    topics = frozenset(written)
    patience = min(deadline, session.deadline(_METADATA_LAG_MS))
    while topics:
        found = session.cluster.topics(sorted({topic.name for topic in topics}), deadline)
        missing = {name for name, info in found.items() if info is None}
        ids = {name: info.topic_id for name, info in found.items() if info is not None}
        recreated = {topic.name for topic in topics if ids.get(topic.name) not in (None, topic.id)}
        changes = TopicChanges(tuple(sorted(missing)), tuple(sorted(recreated)))
        if not changes.gone or session.clock.now() >= patience:
            return changes
        session.cluster.pause(_PAUSE_MS)
    return TopicChanges()


def check_replay(session: Session, reports: Iterable[TaskReport], deadline: float) -> tuple[str, ...]:
    """Raises ``ExactlyOnceError`` if a batch that was decided before went to a topic that was created again since.
    Returns the topics that do not exist now."""
    report, *_ = reports
    if not report.decided_topics:
        return ()
    number = report.write_id.number
    try:
        changes = topic_changes(session, report.decided_topics, deadline)
    except KafkaError as error:
        raise ExactlyOnceError(
            f"{report.write} was committed before, but no broker says whether its topics are still those that it was "
            f"written to: {error}. Nothing is written. Start it again."
        ) from error
    if changes.recreated:
        ids = {topic.name: shown_id(topic.id) for topic in report.decided_topics}
        old = ", ".join(f"{name} (topic id {ids[name]})" for name in changes.recreated)
        raise ExactlyOnceError(
            f"{report.write} was committed into topic {old}, which was deleted and created again since: what was "
            f"written to it is gone, and nothing is written now. ledgerStart=trust-ledger:{number} accepts it as "
            f"committed. To write its rows again, also into its other topics, remove its entry with "
            f"`{session.settings.command('forget')}`, then start it with ledgerStart=trust-checkpoint:{number}."
        )
    return changes.missing
