"""``certify``: writes with both guarantees, reads the rows back, and deletes its topics and checkpoints."""

from __future__ import annotations

import platform
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from typing import Any, Final, TypeVar

from pyspark.sql import SparkSession

from spark_kafka_sink.common.clock import Clock, SystemClock
from spark_kafka_sink.common.foreign_text import shown
from spark_kafka_sink.errors import KafkaError, KafkaTimeoutError
from spark_kafka_sink.exactly_once.cluster import Cluster
from spark_kafka_sink.network.api_versions import camel_case
from spark_kafka_sink.network.diagnosis import advice
from spark_kafka_sink.spark.caller_job import is_connect, nothing, ran
from spark_kafka_sink.spark.spark_error import reason
from spark_kafka_sink.tools.certification import ROWS, TIMEOUT_S
from spark_kafka_sink.tools.certification.certificate import Certificate
from spark_kafka_sink.tools.certification.plan import BATCH, EXACTLY_ONCE, KINDS, RUNS, STREAM, Kind, Plan
from spark_kafka_sink.tools.certification.rows import RowCheck
from spark_kafka_sink.tools.certification.screen import Screen
from spark_kafka_sink.tools.certification.scrubber import Scrubber, process_user
from spark_kafka_sink.tools.certification.topics import ThrowAwayTopics
from spark_kafka_sink.tools.certification.writes import (
    Write,
    platform_text,
    remove_checkpoints,
    spark_facts,
    spark_hosts,
)
from spark_kafka_sink.tools.connection_check.check import CheckRequest, check
from spark_kafka_sink.tools.connection_check.exactly_once_trial import DELETE, try_exactly_once
from spark_kafka_sink.tools.connection_check.findings import Finding, Outcome, library_findings, required_libraries
from spark_kafka_sink.tools.connection_check.throw_away import throw_away_name

_BROKERS: Final = "brokers"
_CLEAN_UP: Final = "clean-up"
_REPEATED: Final = Kind(EXACTLY_ONCE, BATCH)
"""The write that runs twice. It is the first one that needs the rights of exactly-once."""

_LABELS: Final = (
    "platform", "Spark", "workers", "libraries", "login", "brokers", "APIs", "features", "options", "not tried",
    "read by",
)  # fmt: skip
_SHOWN_APIS: Final = (
    "produce", "fetch", "metadata", "create_topics", "init_producer_id", "add_partitions_to_txn", "end_txn",
    "list_transactions", "describe_transactions",
)  # fmt: skip
_TOLD_ELSEWHERE: Final = ("Python", "spark-kafka-sink")
_Found = TypeVar("_Found")


def certify(
    spark: SparkSession, options: Mapping[str, Any], *, rows: int = ROWS, timeout_s: float = TIMEOUT_S
) -> Certificate:
    """Tries the sink on this Spark and the brokers of ``options``. It runs a batch job and a streaming query, at least
    once and exactly once, reads their rows back and compares them. It prints each step, then the verdict, and returns
    the verdict.

    ``options`` are the options of a write. ``certify`` writes to topics of its own. Their names begin with ``topic``,
    and likewise its transactional ids, ledger and checkpoints begin with ``transactionalIdPrefix``, ``commitLogTopic``
    and ``checkpointLocation``. They are deleted at the end, also if a step fails or the call is interrupted. The topic
    in the options is neither read nor written.

    ``rows`` is the number of rows of each write, and ``timeout_s`` the time that each Spark job may take. The process
    that calls this function must reach the brokers. On Spark Connect that is the client.

    Raises ``ConfigError`` for wrong options, before anything is sent. A failed step does not raise; the verdict reports
    it.
    """
    return certified(nullcontext(spark), Plan.of(options, rows, is_connect=is_connect(spark)), timeout_s)


def certified(session: AbstractContextManager[SparkSession], plan: Plan, timeout_s: float) -> Certificate:
    """Carries out a plan: the steps, the clean-up and the verdict. ``session`` is entered once the brokers respond,
    because Spark takes long to start. If it cannot be entered, that is a failed step.
    """
    run = _Run(plan, timeout_s, SystemClock())
    with ExitStack() as started:
        try:
            if run.brokers_respond():
                run.steps(partial(started.enter_context, session))
            run.tell_what_was_not_tried()
        finally:
            run.clean_up()
        certificate = run.certificate()
    print(f"\n{certificate.text}", flush=True)
    return certificate


class _Run:
    """One run of ``certify``. Collects the findings and facts of the verdict while it goes through the steps."""

    def __init__(self, plan: Plan, timeout_s: float, clock: Clock) -> None:
        self._plan = plan
        self._timeout_s = timeout_s
        self._clock = clock
        self._screen = Screen()
        self._cluster = Cluster(plan.config, clock)
        self._topics = ThrowAwayTopics(self._cluster, plan.config)
        self._findings: list[Finding] = []
        self._facts = dict.fromkeys(_LABELS, "")
        self._not_begun = [*KINDS]
        self._spark: SparkSession | None = None
        self._spark_hosts: set[str] = set()
        self._checkpoints = ""
        """The folder of the checkpoints, or "" as long as no query has been started."""

    def brokers_respond(self) -> bool:
        """The steps without Spark. Returns whether they worked."""
        connection = check(CheckRequest(self._plan.config), self._clock)
        return self._checked(_BROKERS, "connect", connection) and self._tried(_BROKERS, "versions", self._versions)

    def steps(self, started: Callable[[], SparkSession]) -> None:
        """Goes through the steps with Spark. After a step that fails, those that depend on it are left out."""
        if not self._tried("Spark", "start", partial(self._start, started)):
            return
        for kind in KINDS:
            if kind == _REPEATED and not self._can_write_exactly_once():
                return
            self._not_begun.remove(kind)
            topic = self._plan.topic(kind)
            if self._tried(kind.guarantee, kind.way, partial(self._written, kind, topic)):
                is_right = self._tried(kind.guarantee, f"read {kind.way}", partial(self._read, kind, topic))
                if is_right and kind == _REPEATED:
                    self._tried(kind.guarantee, f"repeat {kind.way}", partial(self._written_again, kind, topic))
                continue
            request = CheckRequest(self._plan.config, topic=topic if topic in self._topics.names else None)
            if not self._checked(_BROKERS, "check", check(request, self._clock)):
                return

    def tell_what_was_not_tried(self) -> None:
        """Names the writes that a failed step has left out."""
        for guarantee in dict.fromkeys(kind.guarantee for kind in self._not_begun):
            ways = " and ".join(kind.way for kind in self._not_begun if kind.guarantee == guarantee)
            last = self._failed[-1]
            text = f"not tried, because {last.step} of {last.subject} failed"
            self._tell(Finding(guarantee, ways, Outcome.UNTESTED, text))

    def clean_up(self) -> None:
        """Deletes the topics and the checkpoints that may exist, also without a terminal to show it on."""
        self._screen.outlive_terminal()
        try:
            if self._topics.names or self._checkpoints:
                self._remove()
        except BaseException:  # interrupted again
            self._screen.line(f"Not cleaned up. {self._left()}")
            raise
        finally:
            self._screen.close()
            self._cluster.close()

    def certificate(self) -> Certificate:
        """The verdict on the steps so far, without anything secret."""
        nodes = self._cluster.snapshot.nodes.values()
        hosts = [host for host, _ in self._plan.config.bootstrap_servers] + [node.host for node in nodes]
        known = [*hosts, platform.node(), *sorted(self._spark_hosts)]
        scrubbed = Scrubber(self._plan.config, known, [process_user()], self._plan.mark, self._plan.prefixes)
        findings = [Finding(each.subject, each.step, each.outcome, scrubbed(each.text)) for each in self._findings]
        config = self._plan.config
        login = f", {config.sasl_mechanism}" if config.security_protocol.startswith("SASL_") else ""
        libraries = [each for each in library_findings(required_libraries()) if each.step not in _TOLD_ELSEWHERE]
        facts = self._facts | {
            "platform": platform_text(),
            "libraries": ", ".join(f"{each.step} {each.text.removeprefix(f'{each.step} ')}" for each in libraries),
            "login": f"{config.security_protocol}{login}",
            # The brokers' own words. In the other facts, a version such as 2.9.post0 would become a host.
            **{label: scrubbed(self._facts[label]) for label in ("brokers", "features")},
            "options": ", ".join(self._plan.given),
            "not tried": ", ".join(self._plan.untried),
            "read by": scrubbed(self._topics.reader),
        }
        return Certificate(findings, facts, self._clock.epoch_ms())

    # Steps

    def _versions(self) -> str:
        self._cluster.refresh(self._clock.now() + self._plan.config.max_block_ms)
        versions, snapshot = self._cluster.any_api_versions(), self._cluster.snapshot
        highest = {} if versions is None else versions.highest
        features = {} if versions is None else versions.features
        found = f"{len(snapshot.nodes)}, cluster {snapshot.cluster_id or 'without an id'}"
        self._facts |= {
            "brokers": found,
            "APIs": ", ".join(f"{camel_case(api)} {highest[api]}" for api in _SHOWN_APIS if api in highest),
            "features": ", ".join(f"{shown(name)} {level}" for name, level in sorted(features.items())),
        }
        return found

    def _start(self, started: Callable[[], SparkSession]) -> str:
        self._spark = started()
        self._facts |= self._in_job("Spark: a first task", partial(spark_facts, self._spark))
        return f"Spark {self._facts['Spark']}"

    def _can_write_exactly_once(self) -> bool:
        """Tries the rights and APIs that exactly-once needs, as ``check --exactly-once`` does."""
        suffix = f"{self._plan.mark}-check"
        self._topics.also_delete(throw_away_name(self._plan.ledger, suffix))
        request = CheckRequest(self._plan.config, None, self._plan.transactional_ids, self._plan.ledger)
        return self._checked(EXACTLY_ONCE, "check", try_exactly_once(request, self._clock, suffix))

    def _written(self, kind: Kind, topic: str) -> str:
        rows = self._plan.rows_of(kind)
        self._topics.create(topic)
        if kind.guarantee == EXACTLY_ONCE:
            self._topics.also_delete(self._plan.ledger_topic)
        if kind.way == STREAM:
            self._checkpoints = self._plan.checkpoint
        seconds = self._write(kind, topic)
        over = f" in {RUNS} micro-batches, over a restart," if kind.way == STREAM else ""
        return f"{rows:,} rows{over} in {seconds:.1f} s, {rows / seconds:,.0f} rows/s"

    def _write(self, kind: Kind, topic: str) -> float:
        """Writes the rows, and returns how many seconds that took."""
        assert self._spark is not None
        write, began = Write(self._spark, self._plan, kind), self._clock.now()
        self._in_job(f"{kind.guarantee}, {kind.way}", write.run, write.stop, topic)
        return (self._clock.now() - began) / 1000

    def _written_again(self, kind: Kind, topic: str) -> str:
        """Runs the same batch job again, with the same txnAppId and txnVersion, as a scheduler does after an error."""
        seconds = self._write(kind, topic)
        self._read(kind, topic)
        return f"the same txnVersion in {seconds:.1f} s, each of {self._plan.rows_of(kind):,} rows is there once"

    def _read(self, kind: Kind, topic: str) -> str:
        began = self._clock.now()
        rows = RowCheck(self._plan.mark, self._plan.rows_of(kind))
        for records in self._topics.read(topic):
            rows.add(records)
            self._screen.running(f"reading back: {rows.records:,} of {rows.rows:,} records")
        if faults := rows.faults(exactly_once=kind.guarantee == EXACTLY_ONCE):
            raise KafkaError(f"{'; '.join(faults)}, of {rows.rows:,} rows")
        twice = f", {rows.repeated:,} of them repeated, which at-least-once allows" if rows.repeated else ""
        seconds = (self._clock.now() - began) / 1000
        return f"{rows.records:,} records{twice} as written, {rows.rows / seconds:,.0f} rows/s"

    # Removal

    def _remove(self) -> None:
        """Deletes the topics and checkpoints. If some cannot be deleted, that is told as advice, not as a failure."""
        began, count, had = self._clock.now(), len(self._topics.names), bool(self._checkpoints)
        topics = "1 topic" if count == 1 else f"{count} topics"
        self._screen.running(f"deleting {topics}")
        why = [self._topics.delete()]
        if self._checkpoints:
            try:
                assert self._spark is not None
                why.append(self._in_job("removing checkpoints", partial(remove_checkpoints, self._spark, self._plan)))
                self._checkpoints = why[-1] and self._checkpoints
            except Exception as error:  # whatever Spark raises
                why.append(reason(error))
        if told := ". ".join(filter(None, why)):
            text, outcome = f"{told}. {self._left()}", Outcome.ADVICE
        else:
            text, outcome = f"{topics}{', the checkpoints' if had else ''}", Outcome.OK
        self._tell(Finding(_CLEAN_UP, "delete", outcome, text, self._clock.now() - began))

    def _left(self) -> str:
        """Says what may not have been deleted, and how to delete it."""
        left = [*self._topics.names, *filter(None, [self._checkpoints])]
        command = ""
        if self._topics.names:
            servers = ",".join(f"{host}:{port}" for host, port in self._plan.config.bootstrap_servers)
            command = (
                f". The topics are deleted by: kafka-topics.sh --bootstrap-server {servers} --delete --topic "
                f"'.*{self._plan.mark}.*' (with --command-config, if it is needed to log in)"
            )
        return f"There may be left: {', '.join(left)}{command}"

    # What steps share

    def _checked(self, subject: str, step: str, findings: Generator[Finding, None, None]) -> bool:
        """Shows what ``check`` finds, which is one step of the verdict. Returns whether that step has worked."""
        began = self._clock.now()
        self._screen.running(f"{subject}: {step}")
        # What cannot be deleted is told by the clean-up.
        found = [each for each in self._screen.all(findings) if each.step != DELETE]
        failed = [each for each in found if each.outcome is Outcome.FAILED]
        if failed:
            outcome, text = Outcome.FAILED, f"{failed[0].step} of {failed[0].subject}: {failed[0].text}"
        else:
            outcome, text = Outcome.OK, f"{sum(each.outcome is Outcome.OK for each in found)} steps"
        self._tell(Finding(subject, step, outcome, text, self._clock.now() - began))
        return not failed

    def _tried(self, subject: str, step: str, action: Callable[[], str]) -> bool:
        """Runs a step and shows how it ended. Returns whether it worked."""
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

    @property
    def _failed(self) -> list[Finding]:
        return [each for each in self._findings if each.outcome is Outcome.FAILED]

    def _tell(self, finding: Finding) -> None:
        self._findings.append(finding)
        self._screen.finding(finding)

    def _in_job(
        self, what: str, action: Callable[[], _Found], stop: Callable[[], None] = nothing, topic: str | None = None
    ) -> _Found:
        """Runs ``action``, which starts Spark jobs, and returns its result. Interrupt and timeout cancel the jobs."""
        deadline = self._clock.now() + self._timeout_s * 1000

        def observed() -> _Found:
            try:
                return action()
            finally:
                assert self._spark is not None
                self._spark_hosts |= spark_hosts(self._spark)  # in the job's thread: no interrupt strikes there

        def meanwhile() -> None:
            if self._clock.now() >= deadline:
                rows = "" if topic is None else f", {self._progress(topic)} are in the topic"
                raise KafkaTimeoutError(
                    f"not done after {self._timeout_s:.0f} s (timeout){rows}: does Spark have free executors, and "
                    "enough time?"
                )
            if topic is not None and self._screen.is_live:
                self._screen.running(f"{what}: {self._progress(topic)}")

        assert self._spark is not None
        return ran(self._spark, observed, "certify", self._clock, meanwhile, stop)

    def _progress(self, topic: str) -> str:
        """How many rows are in the topic. Its end offsets may exceed them, because they count transaction markers."""
        try:
            return f"{min(self._plan.rows, self._topics.end_offsets(topic)):,} of {self._plan.rows:,} rows"
        except KafkaError:  # slow brokers
            return f"? of {self._plan.rows:,} rows"
