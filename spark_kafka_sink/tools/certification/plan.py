"""What ``certify`` writes with: the options of the user's writes, and names for what is thrown away."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self
from uuid import uuid4

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.spark.kafka_write import given_options
from spark_kafka_sink.spark.options import KAFKA_PREFIX, LEDGER_TOPIC, SinkOptions
from spark_kafka_sink.tools.connection_check.check import CheckRequest
from spark_kafka_sink.tools.connection_check.exactly_once_trial import DEFAULT_PREFIX, LONGEST_TOPIC

AT_LEAST_ONCE: Final = "at-least-once"
EXACTLY_ONCE: Final = "exactly-once"
GUARANTEES: Final = (AT_LEAST_ONCE, EXACTLY_ONCE)
BATCH: Final = "batch"
STREAM: Final = "stream"
KINDS: Final = (BATCH, STREAM)
RUNS: Final = 2
"""How often a streaming query is started: the second run continues from the first one's checkpoint."""

_ALSO_KEPT: Final = ("sasltokenprovider", "drivercheck", "loglevel", "unknownoptions")
_REPLACED: Final = (
    "topic", "commitlogtopic", "transactionalidprefix", "checkpointlocation", "deliveryguarantee", "txnappid",
    "txnversion", "neverrepeated", "ledgerstart", "path", "queryname", "includeheaders",
)  # fmt: skip
"""Options of a write for which ``certify`` has values of its own, some of which begin with those of the user."""

_OF_ONE_WRITE: Final = ("txnappid", "txnversion", "neverrepeated", "deliveryguarantee", "ledgerstart")


@dataclass(frozen=True, slots=True)
class Plan:
    """The writes of one run.

    ``options``: those of every write, with names and guarantee missing. ``given``: their names as the user wrote them.
    ``untried``: names of options that are left out, because the rows that are written need no formats, dead letters or
    receipts. ``checkpoint``: the folder of all checkpoints.
    """

    options: Mapping[str, str] = field(repr=False)  # it has passwords
    config: ProducerConfig
    run: str
    topics: str
    ledger: str
    transactional_ids: str
    checkpoint: str
    rows: int
    given: tuple[str, ...]
    untried: tuple[str, ...]
    request: CheckRequest

    @classmethod
    def of(cls, options: Mapping[str, Any], rows: int, *, is_connect: bool) -> Self:
        """Raises ``ConfigError`` with what a write would say of the options."""
        spelt, faults = given_options(options)
        if rows < 1:
            faults.append(f"rows is {rows}, and must be at least 1.")
        given = {name.lower(): value for name, value in spelt.items()}
        if is_connect and "checkpointlocation" not in given:
            faults.append(
                "On Spark Connect, certify needs the option checkpointLocation: a folder of the server's, because a "
                "client cannot name a temporary one there."
            )
        # As those of an exactly-once write, because it has options that other writes refuse.
        as_written = {name: value for name, value in given.items() if name not in _OF_ONE_WRITE}
        SinkOptions.parse({**as_written, "deliveryguarantee": EXACTLY_ONCE}, faults)
        kept = {name: value for name, value in given.items() if name.startswith(KAFKA_PREFIX) or name in _ALSO_KEPT}
        plain = SinkOptions.parse(kept)
        run = uuid4().hex[:8]
        ledger = given.get("commitlogtopic", LEDGER_TOPIC)
        prefix = given.get("transactionalidprefix", DEFAULT_PREFIX)
        return cls(
            # A task that has not ended when its topic is deleted must not create it again.
            options={**kept, f"{KAFKA_PREFIX}allow.auto.create.topics": "false"},
            config=plain.producer,
            run=run,
            topics=given.get("topic", DEFAULT_PREFIX),
            ledger=_shortened(ledger, f"certify-{run}"),
            transactional_ids=f"{prefix}-certify-{run}",
            checkpoint=_checkpoint(given.get("checkpointlocation"), run),
            rows=rows,
            given=tuple(sorted(name for name in spelt if name.lower() in kept)),
            untried=tuple(name for name in spelt if name.lower() not in kept and name.lower() not in _REPLACED),
            request=CheckRequest(plain.producer, transactional_id_prefix=prefix, ledger_topic=ledger),
        )

    def rows_of(self, kind: str) -> int:
        """The rows of a write: each run of a streaming query has as many as the others."""
        return max(1, self.rows // RUNS) * RUNS if kind == STREAM else self.rows

    def topic(self, guarantee: str, kind: str) -> str:
        return _shortened(self.topics, f"certify-{self.run}-{guarantee}-{kind}")

    def write_options(self, guarantee: str, kind: str) -> dict[str, str]:
        """The sink's options of a write, of ``format("pykafka")``."""
        options = {**self.options, "topic": self.topic(guarantee, kind), "deliveryGuarantee": guarantee}
        if guarantee == EXACTLY_ONCE:
            options |= {"commitLogTopic": self.ledger, "transactionalIdPrefix": f"{self.transactional_ids}-{kind}"}
            if kind == BATCH:
                options |= {"txnAppId": f"certify-{self.run}", "txnVersion": "0"}
        return options


def _shortened(prefix: str, suffix: str) -> str:
    """The name of a topic, which has a longest length."""
    return f"{prefix[: LONGEST_TOPIC - len(suffix) - 1]}-{suffix}"


def _checkpoint(location: str | None, run: str) -> str:
    """A folder that does not exist yet. Only the driver writes to the checkpoint of such a query."""
    name = f"spark-kafka-sink-certify-{run}"
    return Path(tempfile.gettempdir(), name).as_uri() if location is None else f"{location.rstrip('/')}/{name}"
