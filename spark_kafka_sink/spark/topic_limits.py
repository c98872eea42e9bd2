"""``max.message.bytes`` of topics, which tasks with dead letters ask brokers for before they send a row."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from kio.schema.errors import ErrorCode

from spark_kafka_sink.errors import BrokerError, KafkaError, shown
from spark_kafka_sink.network.api_versions import every
from spark_kafka_sink.network.calls import Call, CodeAt
from spark_kafka_sink.network.error_table import FORBIDDEN, Action, action, broker_error
from spark_kafka_sink.producer.core import ProducerCore

_log = logging.getLogger("spark_kafka_sink.spark")

MAX_MESSAGE_BYTES: Final = "max.message.bytes"

_API: Final = "describe_configs"
_TOPIC: Final = 2
_POSITIVE: Final = re.compile(r"[1-9][0-9]{0,9}")  # Kafka: an int of Java
_ASK_AGAIN_MS: Final = 5_000.0
_SHOWN: Final = 5
"""The most topics that a warning names."""


class _Answer(NamedTuple):
    """A topic's limit, or why the limit is unknown. ``until``: when it is too old (monotonic ms)."""

    outcome: int | KafkaError
    asked_at: float
    until: float


_answers: WeakKeyDictionary[ProducerCore, dict[str, _Answer]] = WeakKeyDictionary()


def known_limits(core: ProducerCore, topics: Sequence[str]) -> Mapping[str, int]:
    """The limits of the topics of which they are known. Asks anew after metadata.max.age.ms, for at most
    request.timeout.ms. Warns once of each topic whose limit is unknown.
    """
    answers, now = _answers.setdefault(core, {}), core.calls.now()
    if due := [topic for topic in topics if topic not in answers or answers[topic].until <= now]:
        of_cause: dict[str, list[str]] = {}
        outcomes = _ask(core, due)
        for topic, outcome in outcomes.items():
            before = answers.get(topic)
            if isinstance(outcome, KafkaError) and (before is None or isinstance(before.outcome, int)):
                of_cause.setdefault(_cause(outcome), []).append(topic)
            answers[topic] = _Answer(outcome, now, now + core.config.metadata_max_age_ms)
        for cause, named in of_cause.items():
            _log.warning(
                "%s of topic %s is unknown (%s): rows larger than that are found only when a broker refuses them, and "
                "in a transaction they fail their task. %s",
                MAX_MESSAGE_BYTES, _shown(named), cause, _remedy(outcomes[named[0]], named),
            )  # fmt: skip
    return {topic: limit for topic in topics if isinstance(limit := answers[topic].outcome, int)}


def doubt_limit(core: ProducerCore, topic: str) -> None:
    """A broker has refused a record that the topic's limit allows: ``known_limits`` asks again, at most every five
    seconds.
    """
    answers = _answers.get(core, {})
    if (answer := answers.get(topic)) is not None and isinstance(answer.outcome, int):
        answers[topic] = answer._replace(until=min(answer.until, answer.asked_at + _ASK_AGAIN_MS))


def why_refused(core: ProducerCore, topic: str) -> str:
    """Why only a broker found a record too large for the topic, although tasks check sizes before they send."""
    answer = _answers.get(core, {}).get(topic)
    limit = KafkaError("not asked for") if answer is None else answer.outcome
    if isinstance(limit, int):
        return (
            f"The topic's {MAX_MESSAGE_BYTES} was {limit} when this task asked for it, and the record is "
            "below: it was changed since, or the topic's compression.type makes batches larger. The next attempt "
            "asks again."
        )
    return (
        f"The topic's {MAX_MESSAGE_BYTES} is unknown ({_cause(limit)}), so that only the broker found the record "
        f"too large, and its transaction cannot go on. {_remedy(limit, [topic])}."
    )


def _ask(core: ProducerCore, topics: Sequence[str]) -> Mapping[str, int | KafkaError]:
    """One request, which needs the right DESCRIBE_CONFIGS on each topic."""
    try:
        body = core.calls.call(limits_call(topics), core.calls.now() + core.config.request_timeout_ms)
    except KafkaError as error:
        return dict.fromkeys(topics, error)
    described = {each.resource_name: described_limit(each) for each in body.results}
    return {topic: described[topic] for topic in topics}


def limits_call(topics: Sequence[str]) -> Call:
    """A call that looks up the limits. A topic's permanent error stays in its result, so the others keep theirs."""

    def make(module: ModuleType, version: int) -> Any:
        resource = module.request.DescribeConfigsResource
        asked = [
            resource(resource_type=_TOPIC, resource_name=topic, configuration_keys=(MAX_MESSAGE_BYTES,))
            for topic in topics
        ]
        return module.DescribeConfigsRequest(resources=tuple(asked))

    def codes(body: Any) -> list[CodeAt]:
        return [
            CodeAt(_where(each), each.error_code if _is_retried(each.error_code) else ErrorCode.none)
            for each in body.results
        ]

    return Call(_API, every(_API), None, make, codes, asked={f"DescribeConfigs of {topic}" for topic in topics})


def described_limit(result: Any) -> int | KafkaError:
    """The topic's ``max.message.bytes``, or why it is not known."""
    if result.error_code is not ErrorCode.none:
        return broker_error(result.error_code, _where(result), result.error_message, _API)
    value = next((config.value for config in result.configs if config.name == MAX_MESSAGE_BYTES), None)
    if not value:
        return KafkaError("the response does not have it")
    if not _POSITIVE.fullmatch(value):
        return KafkaError(f"the response has {shown(value)}, which is not a positive number")
    return int(value)


def _where(result: Any) -> str:
    return f"DescribeConfigs of {result.resource_name}"


def _is_retried(code: ErrorCode) -> bool:
    return action(_API, code) < Action.SPLIT


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
