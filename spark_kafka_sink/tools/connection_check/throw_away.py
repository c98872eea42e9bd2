"""Topics that are thrown away: their names, and how they are deleted."""

from __future__ import annotations

from typing import Final

from spark_kafka_sink.errors import BrokerError, KafkaError
from spark_kafka_sink.network.error_table import FORBIDDEN
from spark_kafka_sink.network.rpc import BlockingCalls
from spark_kafka_sink.network.topics import delete_topic
from spark_kafka_sink.tools.connection_check.findings import Outcome

_LONGEST_NAME: Final = 249
"""Characters of a topic's name (Kafka: ``Topic.MAX_NAME_LENGTH``)."""


def throw_away_name(prefix: str, suffix: str) -> str:
    """A topic's name that begins with ``prefix``, so that the prefixed ACLs of real topics hold for it."""
    return f"{prefix[: _LONGEST_NAME - len(suffix) - 1]}-{suffix}"


def thrown_away(calls: BlockingCalls, name: str, deadline: float) -> tuple[Outcome, str]:
    """Deletes the topic, if it exists. Without the right to delete it, it stays, which is not a failure."""
    try:
        delete_topic(calls, name, deadline)
    except BrokerError as error:
        if error.code in FORBIDDEN:
            text = (
                f"topic {name} stays, because the principal may not delete it ({error.name}). Writes do not need that "
                "right: delete the topic by hand"
            )
            return Outcome.UNTESTED, text
        return Outcome.FAILED, _told(name, error)
    except KafkaError as error:
        return Outcome.FAILED, _told(name, error)
    return Outcome.OK, f"topic {name} (DELETE on the topic)"


def _told(name: str, error: KafkaError) -> str:
    return f"topic {name} could not be deleted, delete it by hand: {error}"
