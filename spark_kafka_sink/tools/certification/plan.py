"""The plan of a run: the options of its writes, and the names of the topics and ids that are thrown away."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Self
from uuid import uuid4

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.spark.kafka_write import given_options
from spark_kafka_sink.spark.options import KAFKA_PREFIX, LEDGER_TOPIC, SinkOptions
from spark_kafka_sink.tools.connection_check.exactly_once_trial import DEFAULT_PREFIX
from spark_kafka_sink.tools.connection_check.throw_away import throw_away_name

AT_LEAST_ONCE: Final = "at-least-once"
EXACTLY_ONCE: Final = "exactly-once"
BATCH: Final = "batch"
STREAM: Final = "stream"
RUNS: Final = 2
"""How often a streaming query is started: the second run continues from the first one's checkpoint."""

_ALSO_KEPT: Final = ("sasltokenprovider", "drivercheck", "loglevel", "unknownoptions")
_REPLACED: Final = (
    "txnappid", "txnversion", "neverrepeated", "deliveryguarantee", "ledgerstart", "topic", "commitlogtopic",
    "transactionalidprefix", "checkpointlocation", "path", "queryname", "includeheaders",
)  # fmt: skip
"""Options whose values ``certify`` replaces by its own. Its names begin with the ones that the user gave."""


class Kind(NamedTuple):
    """One write of the run: its guarantee, and whether it is a batch job or a streaming query."""

    guarantee: str
    way: str


KINDS: Final = tuple(Kind(guarantee, way) for guarantee in (AT_LEAST_ONCE, EXACTLY_ONCE) for way in (BATCH, STREAM))


@dataclass(frozen=True, slots=True)
class Plan:
    """The writes of one run. Every name that it makes contains ``mark``.

    ``options``: what all writes have in common, so without names and guarantee. ``given``: the names of these options
    as the user wrote them. ``untried``: the options that are left out, because the rows need no formats, dead letters
    or receipts. ``topics``, ``ledger`` and ``transactional_ids`` are prefixes of names. ``checkpoint``: the folder of
    all checkpoints.
    """

    options: Mapping[str, str] = field(repr=False)  # it has passwords
    config: ProducerConfig
    mark: str
    topics: str
    ledger: str
    transactional_ids: str
    checkpoint: str
    rows: int
    given: tuple[str, ...]
    untried: tuple[str, ...]

    @classmethod
    def of(cls, options: Mapping[str, Any], rows: int, *, is_connect: bool) -> Self:
        """Makes a plan. Raises ``ConfigError`` with the faults that a write would find in the user's options."""
        spelt, faults = given_options(options)
        if rows < 1:
            faults.append(f"rows is {rows}, and must be at least 1.")
        given = {name.lower(): value for name, value in spelt.items()}
        if is_connect and "checkpointlocation" not in given:
            faults.append(
                "On Spark Connect, certify needs the option checkpointLocation: a folder that the server can write to, "
                "such as s3a://bucket/checkpoints."
            )
        if not given.get("checkpointlocation", "/").strip():
            faults.append("checkpointLocation is blank; give it a value or leave it out.")
        SinkOptions.parse(_as_written(given), faults)
        kept = {name: value for name, value in given.items() if name.startswith(KAFKA_PREFIX) or name in _ALSO_KEPT}
        mark = f"certify-{uuid4().hex[:8]}"
        location = given.get("checkpointlocation", Path(tempfile.gettempdir()).as_uri())
        return cls(
            # A task that has not ended when its topic is deleted must not create it again.
            options={**kept, f"{KAFKA_PREFIX}allow.auto.create.topics": "false"},
            config=SinkOptions.parse(kept).producer,
            mark=mark,
            topics=given.get("topic", DEFAULT_PREFIX),
            ledger=given.get("commitlogtopic", LEDGER_TOPIC),
            transactional_ids=given.get("transactionalidprefix", DEFAULT_PREFIX),
            checkpoint=f"{location.rstrip('/')}/spark-kafka-sink-{mark}",
            rows=rows,
            given=tuple(sorted(name for name in spelt if name.lower() in kept)),
            untried=tuple(name for name in spelt if name.lower() not in kept and name.lower() not in _REPLACED),
        )

    def rows_of(self, kind: Kind) -> int:
        """How many rows a write has. Those of a streaming query are a multiple of its runs."""
        return max(1, self.rows // RUNS) * RUNS if kind.way == STREAM else self.rows

    @property
    def prefixes(self) -> tuple[str, ...]:
        """What the names of topics and transactional ids begin with."""
        return self.topics, self.ledger, self.transactional_ids

    def topic(self, kind: Kind) -> str:
        """The topic of a write."""
        return throw_away_name(self.topics, f"{self.mark}-{kind.guarantee}-{kind.way}")

    @property
    def ledger_topic(self) -> str:
        return throw_away_name(self.ledger, self.mark)

    def write_options(self, kind: Kind) -> dict[str, str]:
        """The options of a write, as ``format("pykafka")`` takes them."""
        options = {**self.options, "topic": self.topic(kind), "deliveryGuarantee": kind.guarantee}
        if kind.guarantee == EXACTLY_ONCE:
            ids = f"{self.transactional_ids}-{self.mark}-{kind.way}"
            options |= {"commitLogTopic": self.ledger_topic, "transactionalIdPrefix": ids}
            if kind.way == BATCH:
                options |= {"txnAppId": f"{self.mark}-{BATCH}", "txnVersion": "0"}
        return options


def _as_written(given: Mapping[str, str]) -> dict[str, str]:
    """The given options with the guarantee exactly-once, to check them all: other writes refuse some of them."""
    options = {**given}
    if given.get("deliveryguarantee", AT_LEAST_ONCE).lower() in (AT_LEAST_ONCE, EXACTLY_ONCE):
        options["deliveryguarantee"] = EXACTLY_ONCE
    if "txnappid" in given:
        options.setdefault("txnversion", "0")  # those of kafka_batches have none: each batch has its own
    return options
