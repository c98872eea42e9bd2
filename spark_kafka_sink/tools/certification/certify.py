"""``certify``: writes and reads back with both guarantees, step by step, and removes what it has made."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from pyspark.sql import SparkSession

from spark_kafka_sink.common.clock import Clock, SystemClock
from spark_kafka_sink.errors import KafkaError, KafkaTimeoutError
from spark_kafka_sink.exactly_once.cluster import Cluster
from spark_kafka_sink.network.diagnosis import advice
from spark_kafka_sink.network.messages import API_KEYS
from spark_kafka_sink.spark.caller_job import is_connect, ran
from spark_kafka_sink.spark.spark_error import reason
from spark_kafka_sink.tools.certification.certificate import BrokerFacts, Certificate, Scrubber
from spark_kafka_sink.tools.certification.plan import EXACTLY_ONCE, GUARANTEES, KINDS, RUNS, STREAM, Plan
from spark_kafka_sink.tools.certification.readers import Reader
from spark_kafka_sink.tools.certification.rows import RowCheck
from spark_kafka_sink.tools.certification.screen import Screen
from spark_kafka_sink.tools.certification.topics import ThrowAwayTopics
from spark_kafka_sink.tools.certification.writes import (
    SparkFacts,
    Write,
    has_format,
    platform_text,
    remove_checkpoints,
    spark_facts,
)
from spark_kafka_sink.tools.connection_check.check import CheckRequest, check
from spark_kafka_sink.tools.connection_check.exactly_once_trial import try_exactly_once
from spark_kafka_sink.tools.connection_check.findings import Finding, Outcome, library_findings, required_libraries
from spark_kafka_sink.tools.connection_check.vendors import guess

ROWS: Final = 100_000
TIMEOUT_S: Final = 300.0
_BROKERS: Final = "brokers"
_CLEAN_UP: Final = "clean-up"
_TOLD_ELSEWHERE: Final = ("Python", "spark-kafka-sink")
_Found = TypeVar("_Found")


def certify(
    spark: SparkSession, options: Mapping[str, Any], *, rows: int = ROWS, timeout_s: float = TIMEOUT_S
) -> Certificate:
    """Tries the sink on this Spark and the brokers of ``options``: a batch job and a streaming query, at least once and
    exactly once, whose rows are read back and compared. Prints each step, then the verdict, and returns it.

    ``options``: those of a write. Topics, transactional ids, commitLogTopic and checkpoints get names that begin with
    the given ones (``topic``, ``transactionalIdPrefix``, ``commitLogTopic``, ``checkpointLocation``) and are thrown
    away, also if a step fails or the call is interrupted. The topics themselves are neither read nor written.

    ``rows``: of each write. ``timeout_s``: how long each job may take. This process must reach the brokers; on Spark
    Connect it is the client.

    Raises ``ConfigError`` for wrong options, before anything is sent. A step that fails is in the verdict.
    """
    plan = Plan.of(options, rows, is_connect=is_connect(spark))
    run = _Run(spark, plan, timeout_s, SystemClock())
    try:
        run.steps()
    finally:
        run.clean_up()
    certificate = run.certificate()
    print(f"\n{certificate.text}", flush=True)
    return certificate


class _Run:
    def __init__(self, spark: SparkSession, plan: Plan, timeout_s: float, clock: Clock) -> None:
        self._spark = spark
        self._plan = plan
        self._timeout_s = timeout_s
        self._clock = clock
        self._screen = Screen()
        self._cluster = Cluster(plan.config, clock)
        self._topics = ThrowAwayTopics(self._cluster, plan.config.max_block_ms)
        self._reader = Reader(plan.config, self._topics)
        self._findings: list[Finding] = []
        self._brokers: BrokerFacts | None = None
        self._spark_facts: SparkFacts | None = None
        self._has_checkpoints = False

    def steps(self) -> None:
        """Goes through the steps. A step that fails ends those that need it."""
        if not self._connects() or not self._tried("Spark", "start", self._start):
            return
        for guarantee in GUARANTEES:
            if guarantee == EXACTLY_ONCE and not self._can_write_exactly_once():
                continue
            for kind in KINDS:
                self._written_and_read(guarantee, kind)

    def clean_up(self) -> None:
        """Deletes the topics and the checkpoints that may exist."""
        try:
            if self._topics.names or self._has_checkpoints:
                self._tried(_CLEAN_UP, "delete", self._removed)
        finally:
            self._screen.close()
            self._cluster.close()

    def certificate(self) -> Certificate:
        nodes = self._cluster.snapshot.nodes.values()
        hosts = [host for host, _ in self._plan.config.bootstrap_servers] + [node.host for node in nodes]
        scrubber = Scrubber(self._plan.config, [*hosts, platform.node()])
        return Certificate(tuple(self._findings), self._facts(), self._clock.epoch_ms(), scrubber)

    # Steps

    def _connects(self) -> bool:
        """Shows what ``check`` finds. The verdict has one line of it, because its texts name hosts."""
        began = self._clock.now()
        self._screen.running("connecting to each broker")
        found = []
        for each in check(CheckRequest(self._plan.config), self._clock):
            self._screen.finding(each)
            found.append(each)
        failed = [each.step for each in found if each.outcome is Outcome.FAILED]
        if failed:
            text = f"step {failed[0]} failed: the lines of check above say what to look at"
        else:
            text = f"{sum(each.outcome is Outcome.OK for each in found)} steps"
        outcome = Outcome.FAILED if failed else Outcome.OK
        self._tell(Finding(_BROKERS, "connect", outcome, text, self._clock.now() - began))
        return not failed and self._tried(_BROKERS, "versions", self._versions)

    def _versions(self) -> str:
        self._cluster.refresh(self._clock.now() + self._plan.config.max_block_ms)
        versions, snapshot = self._cluster.any_api_versions(), self._cluster.snapshot
        ranges = {} if versions is None else versions.ranges
        highest = {api: ranges[key][1] for api, key in API_KEYS.items() if key in ranges}
        found = guess([host for host, _ in self._plan.config.bootstrap_servers], snapshot.cluster_id, highest)
        vendor = "" if found is None else f"perhaps {found.vendor.name}"
        self._brokers = BrokerFacts.of(len(snapshot.nodes), snapshot.cluster_id, versions, vendor)
        count = self._brokers.count
        return f"{count} {'broker' if count == 1 else 'brokers'}, cluster {self._brokers.cluster_id}"

    def _start(self) -> str:
        facts = self._in_job("Spark: a first task", partial(spark_facts, self._spark))
        self._spark_facts = facts
        return f"Spark {facts.version}, {facts.master}, workers with Python {facts.worker[0]}"

    def _can_write_exactly_once(self) -> bool:
        """Tries its rights and APIs, as ``check --exactly-once`` does."""
        began, found = self._clock.now(), []
        self._screen.running("exactly-once: rights and APIs")
        trial = try_exactly_once(self._plan.request, self._clock)
        try:
            for each in trial:
                self._screen.finding(each)
                found.append(each)
        finally:
            trial.close()
        failed = [each for each in found if each.outcome is Outcome.FAILED]
        text = failed[0].text if failed else f"{len(found)} steps of check --exactly-once"
        outcome = Outcome.FAILED if failed else Outcome.OK
        self._tell(Finding(EXACTLY_ONCE, "check", outcome, text, self._clock.now() - began))
        if failed:
            for kind in KINDS:
                self._tell(Finding(EXACTLY_ONCE, kind, Outcome.UNTESTED, f"step {failed[0].step} failed"))
        return not failed

    def _written_and_read(self, guarantee: str, kind: str) -> None:
        write = Write(self._spark, self._plan, guarantee, kind)
        topic, rows = self._plan.topic(guarantee, kind), RowCheck(self._plan.run, self._plan.rows_of(kind))
        if self._tried(guarantee, kind, partial(self._written, write, guarantee, kind)):
            self._tried(guarantee, f"read {kind}", partial(self._read, topic, rows, guarantee))
        elif topic in self._topics.names:
            self._diagnose(topic)

    def _written(self, write: Write, guarantee: str, kind: str) -> str:
        topic, rows = self._plan.topic(guarantee, kind), self._plan.rows_of(kind)
        self._topics.create(topic)
        if guarantee == EXACTLY_ONCE and self._plan.ledger not in self._topics.names:
            self._topics.names.append(self._plan.ledger)
        self._has_checkpoints = self._has_checkpoints or kind == STREAM
        began = self._clock.now()
        self._in_job(f"{guarantee}, {kind}", write.run, write.stop, topic)
        seconds = (self._clock.now() - began) / 1000
        over = f" in {RUNS} micro-batches, over a restart," if kind == STREAM else ""
        return f"{rows:,} rows{over} in {seconds:.1f} s, {rows / seconds:,.0f} rows/s"

    def _read(self, topic: str, rows: RowCheck, guarantee: str) -> str:
        began = self._clock.now()
        rows = self._compared(topic, rows)
        if faults := rows.faults(exactly_once=guarantee == EXACTLY_ONCE):
            raise KafkaError(f"{'; '.join(faults)}, of {rows.rows:,} rows, read by {self._reader.name}")
        twice = f", {rows.repeated:,} of them repeated, which at-least-once allows" if rows.repeated else ""
        seconds = (self._clock.now() - began) / 1000
        return f"{rows.records:,} records{twice} as written, by {self._reader.name}, {rows.rows / seconds:,.0f} rows/s"

    def _compared(self, topic: str, rows: RowCheck) -> RowCheck:
        """The rows as they were read. If librdkafka cannot read them, the package's own reader does."""
        check = rows.afresh()
        try:
            for records in self._reader.read(topic):
                check.add(records)
                self._screen.running(f"reading back: {check.records:,} of {rows.rows:,} records")
        except KafkaError as error:
            if not self._reader.fall_back(error):
                raise
            return self._compared(topic, rows)
        return check

    def _diagnose(self, topic: str) -> None:
        """Shows what ``check`` finds about the topic: a right that is missing, say."""
        for each in check(CheckRequest(self._plan.config, topic=topic), self._clock):
            if each.outcome is Outcome.FAILED:
                self._tell(Finding(each.subject, each.step, each.outcome, each.text, each.elapsed_ms))

    def _removed(self) -> str:
        names = [*self._topics.names]
        self._screen.running(f"deleting {len(names)} topics")
        left = [why for name in names if (why := self._topics.delete(name)) is not None]
        if self._has_checkpoints and (why := self._in_job("removing checkpoints", self._checkpoints_stay)) is not None:
            left.append(why)
        if left:
            raise KafkaError(f"{'; '.join(left)}. Delete what stays by hand")
        return f"{len(names)} topics" + (", the checkpoints" if self._has_checkpoints else "")

    def _checkpoints_stay(self) -> str | None:
        return remove_checkpoints(self._spark, self._plan)

    # What steps share

    def _tried(self, subject: str, step: str, action: Callable[[], str]) -> bool:
        """Tells how the step ended, and returns whether it worked."""
        self._screen.running(f"{subject}: {step}")
        began = self._clock.now()
        try:
            text, outcome = action(), Outcome.OK
        except Exception as error:  # whatever Spark raises
            said = reason(error)
            more = advice(error) if isinstance(error, KafkaError) else ""
            text, outcome = f"{said}. {more}" if more else said, Outcome.FAILED
        self._tell(Finding(subject, step, outcome, text, self._clock.now() - began))
        return outcome is Outcome.OK

    def _tell(self, finding: Finding) -> None:
        self._findings.append(finding)
        self._screen.finding(finding)

    def _in_job(
        self, what: str, action: Callable[[], _Found], stop: Callable[[], None] | None = None, topic: str | None = None
    ) -> _Found:
        """What ``action`` returns, which runs Spark's jobs: they are cancelled at the timeout and by an interrupt."""
        deadline = self._clock.now() + self._timeout_s * 1000

        def meanwhile() -> None:
            if self._clock.now() >= deadline:
                raise KafkaTimeoutError(
                    f"not done after {self._timeout_s:.0f} s (timeout): does Spark have free executors?"
                )
            if topic is not None and self._screen.is_live:
                self._screen.running(f"{what}: {self._progress(topic)}")

        return ran(self._spark, action, "certify", meanwhile, stop or _nothing)

    def _progress(self, topic: str) -> str:
        """The end offsets also count the control records of transactions, so they may exceed the rows."""
        try:
            return f"{min(self._plan.rows, self._topics.end_offsets(topic)):,} of {self._plan.rows:,} rows"
        except KafkaError:  # shown next time
            return "…"

    # The verdict

    def _facts(self) -> dict[str, str]:
        python = f"Python {platform.python_version()}"
        facts = {"platform": f"{platform_text()}, {python}", "Spark": "did not start"}
        if self._spark_facts is not None:
            python, package, system = self._spark_facts.worker
            facts["workers"] = f"{system}, Python {python}, spark-kafka-sink {package}"
            way = 'format("pykafka")' if has_format() else "write_kafka"
            facts["Spark"] = f"{self._spark_facts.version}, {self._spark_facts.master}, {way}"
        libraries = [each for each in library_findings(required_libraries()) if each.step not in _TOLD_ELSEWHERE]
        facts["libraries"] = ", ".join(f"{each.step} {each.text}" for each in libraries)
        config, brokers = self._plan.config, self._brokers
        login = f", {config.sasl_mechanism}" if config.security_protocol.startswith("SASL_") else ""
        facts["login"] = f"{config.security_protocol}{login}"
        if brokers is not None:
            facts["brokers"] = ", ".join(
                filter(None, (f"{brokers.count}, cluster {brokers.cluster_id}", brokers.vendor))
            )
            facts["APIs"] = ", ".join(f"{api} {version}" for api, version in brokers.apis.items())
            facts["features"] = ", ".join(f"{name} {level}" for name, level in sorted(brokers.features.items()))
        facts["options"] = ", ".join(self._plan.given)
        facts["not tried"] = ", ".join(self._plan.untried)
        facts["read by"] = self._reader.name + (f" ({self._reader.note})" if self._reader.note else "")
        return facts


def _nothing() -> None:
    """How to stop what the cancelled job ends by itself."""
