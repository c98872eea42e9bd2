"""``max.message.bytes`` of the topics that tasks write to, per producer, for metadata.max.age.ms."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.errors import BrokerError, KafkaError
from spark_kafka_sink.network.error_table import FORBIDDEN
from spark_kafka_sink.network.rpc import Rpc
from spark_kafka_sink.network.topic_configs import MAX_MESSAGE_BYTES, look_up_limits
from spark_kafka_sink.producer import KafkaProducer

_log = logging.getLogger("spark_kafka_sink.spark")

_ASK_AGAIN_MS: Final = 5_000.0
_SHOWN: Final = 5
"""Topics in a warning."""


class _Limit(NamedTuple):
    """Bytes, or why they are not known. Monotonic ms."""

    outcome: int | KafkaError
    asked_at: float
    until: float


class TopicLimitCache:
    """Used by one task at a time, as its producer is. A limit that is not known is None, with one warning."""

    def __init__(self) -> None:
        self._limits: WeakKeyDictionary[KafkaProducer, dict[str, _Limit]] = WeakKeyDictionary()

    def limits(self, producer: KafkaProducer, topics: Sequence[str], clock: Clock) -> Mapping[str, int | None]:
        """Looks up those that are not known; takes at most request.timeout.ms."""
        known = self._limits.setdefault(producer, {})
        now = clock.now()
        unknown = [topic for topic in topics if topic not in known or known[topic].until <= now]
        if unknown:
            self._look_up(producer, unknown, clock, known)
        outcomes = {topic: known[topic].outcome for topic in topics}
        return {topic: outcome if isinstance(outcome, int) else None for topic, outcome in outcomes.items()}

    def ask_again(self, producer: KafkaProducer, topic: str, clock: Clock) -> None:
        """A broker has refused a record that the topic's limit allows: it is looked up with the next rows, at most
        every five seconds.
        """
        known = self._limits.get(producer, {})
        limit = known.get(topic)
        if limit is not None and isinstance(limit.outcome, int):
            known[topic] = limit._replace(until=min(limit.until, limit.asked_at + _ASK_AGAIN_MS))

    def why_refused(self, producer: KafkaProducer, topic: str) -> str:
        """Why a record was too large for the topic, though such records are looked for before they are sent."""
        limit = self._limits.get(producer, {}).get(topic)
        if limit is not None and isinstance(limit.outcome, int):
            return (
                f"The topic's {MAX_MESSAGE_BYTES} was {limit.outcome} when this task asked for it, and the record is "
                "below: it was changed since, or the topic's compression.type makes batches larger. The next attempt "
                "asks again."
            )
        unknown = KafkaError("not asked for") if limit is None else limit.outcome
        return (
            f"The topic's {MAX_MESSAGE_BYTES} is unknown ({_cause(unknown)}), so that only the broker found the record "
            f"too large, and its transaction cannot go on. {_remedy(unknown, [topic])}."
        )

    def _look_up(self, producer: KafkaProducer, topics: Sequence[str], clock: Clock, known: dict[str, _Limit]) -> None:
        config = producer.config
        asked_at = clock.now()
        rpc = Rpc(config, clock)
        try:
            found: Mapping[str, int | KafkaError] = look_up_limits(rpc, topics, asked_at + config.request_timeout_ms)
        except KafkaError as error:
            found = dict.fromkeys(topics, error)
        finally:
            rpc.close()
        until = clock.now() + config.metadata_max_age_ms
        for topic, outcome in found.items():
            if isinstance(outcome, int):
                producer.set_max_message_bytes(topic, outcome)
        new: dict[str, list[str]] = {}
        for topic, outcome in found.items():
            if not isinstance(outcome, int) and (topic not in known or isinstance(known[topic].outcome, int)):
                new.setdefault(_cause(outcome), []).append(topic)
        known |= {topic: _Limit(outcome, asked_at, until) for topic, outcome in found.items()}
        for cause, of in new.items():
            _log.warning(
                "%s of topic %s is unknown (%s): rows larger than that are found only when a broker refuses them, and "
                "in a transaction they fail their task. %s",
                MAX_MESSAGE_BYTES, _shown(of), cause, _remedy(found[of[0]], of),
            )  # fmt: skip


def _cause(error: int | KafkaError) -> str:
    """The error's text without the advice on the right to write."""
    return error.name if isinstance(error, BrokerError) and error.code in FORBIDDEN else str(error)


def _remedy(error: int | KafkaError, topics: Sequence[str]) -> str:
    if isinstance(error, BrokerError) and error.code in FORBIDDEN:
        return f"Give the principal DESCRIBE_CONFIGS on topic {_shown(topics)}"
    return "Look at the brokers"


def _shown(topics: Sequence[str]) -> str:
    more = f" and {len(topics) - _SHOWN} more" if len(topics) > _SHOWN else ""
    return ", ".join(topics[:_SHOWN]) + more


LIMITS: Final = TopicLimitCache()
