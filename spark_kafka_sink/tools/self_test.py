"""Writes with both guarantees by the user's Spark, reads every row back, and deletes what it has created.

Standard output has versions and results, without hosts, users and paths, so that it can be pasted. What failed and why
goes to standard error.
"""

from __future__ import annotations

import importlib.util
import platform
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

import spark_kafka_sink
from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import KafkaError, KafkaTimeoutError, sanitize
from spark_kafka_sink.exactly_once.committer import Cluster
from spark_kafka_sink.network.api_versions import camel_case
from spark_kafka_sink.network.diagnosis import advice
from spark_kafka_sink.spark.caller_job import is_connect, reason, run_cancellable
from spark_kafka_sink.spark.kafka_write import activate_session, given_options, kafka_batches, write_kafka
from spark_kafka_sink.spark.options import KAFKA_PREFIX, SinkOptions
from spark_kafka_sink.tools.connection_check import CheckRequest, check
from spark_kafka_sink.tools.findings import Outcome, library_findings, lines, required_libraries
from spark_kafka_sink.tools.trial_topics import DEFAULT_PREFIX, OWN, Existing, TrialTopics, throw_away_name
from spark_kafka_sink.tools.worker_check import check_on_workers

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

ROWS: Final = 10_000
RUNS: Final = 2
"""How often a streaming query is started: the second run continues from the checkpoint of the first one."""

_JOB_MS: Final = 300_000.0
_POLL_S: Final = 0.5
_AT_LEAST_ONCE: Final = "at-least-once"
_EXACTLY_ONCE: Final = "exactly-once"
_BATCH, _STREAM, _AGAIN = "batch", "stream, stopped and started again", "batch, the same txnVersion again"
STEPS: Final = (
    (_AT_LEAST_ONCE, _BATCH), (_AT_LEAST_ONCE, _STREAM),
    (_EXACTLY_ONCE, _BATCH), (_EXACTLY_ONCE, _AGAIN), (_EXACTLY_ONCE, _STREAM),
)  # fmt: skip
_TAKEN: Final = ("sasltokenprovider", "drivercheck", "loglevel", "unknownoptions", "checkpointlocation")
_SHOWN_APIS: Final = ("produce", "fetch", "metadata", "init_producer_id", "end_txn", "list_transactions")
_LIBRARIES: Final = ("kio", "numpy", "pyarrow", "pyspark")
_Result = TypeVar("_Result")


def selftest(
    spark: SparkSession,
    options: Mapping[str, Any],
    *,
    prefix: str = DEFAULT_PREFIX,
    topic: str | None = None,
    ledger_topic: str | None = None,
    write: bool = True,
) -> bool:
    """Tries the sink on this Spark and the brokers of ``options``, and returns whether every row was read back.

    First it runs the steps of ``spark-kafka-sink check`` here and on each executor, and says what differs there and at
    which step. With ``write=False``, that is all, and the result is whether no step has failed. For each guarantee it
    runs a batch job and a streaming query that is stopped and started again, 10,000 rows each, and with exactly-once
    the same ``txnVersion`` a second time. It prints each step, and failures to standard error. It deletes its topics,
    ledger and checkpoints at the end, even if the call is interrupted.

    ``options``: a write's options about the brokers (``kafka.*``, ``saslTokenProvider``), and ``checkpointLocation``,
    which Spark Connect needs. ``prefix``: the prefix of the topics, the ledger and the transactional ids. ``topic`` and
    ``ledger_topic``: an existing empty topic and an existing ledger, if the principal may not create or delete topics;
    the rows and entries stay there. This process, which is the client on Spark Connect, must reach the brokers.

    Raises ``ConfigError`` for wrong options, and ``KafkaError`` if the brokers cannot be reached.
    """
    given = Existing(topic, ledger_topic)
    return run(nullcontext(spark), Plan.of(options, prefix, is_connect=is_connect(spark), existing=given, writes=write))


@dataclass(frozen=True, slots=True)
class Plan:
    """The writes of one run. ``options``: the options of every write. ``mark``: a part of every name that the run
    makes, after the user's prefix. ``checkpoint``: the folder of all checkpoints.
    """

    options: Mapping[str, str] = field(repr=False)  # it has passwords
    config: ProducerConfig
    prefix: str
    mark: str
    checkpoint: str
    existing: Existing
    writes: bool

    @classmethod
    def of(
        cls, options: Mapping[str, Any], prefix: str, *, is_connect: bool, existing: Existing = OWN, writes: bool = True
    ) -> Self:
        """The plan for a user's options. Raises ``ConfigError`` with every fault."""
        spelt, faults = given_options(options)
        given = {name.lower(): value for name, value in spelt.items()}
        kept = {name: value for name, value in given.items() if name.startswith(KAFKA_PREFIX) or name in _TAKEN}
        if others := [name for name in spelt if name.lower() not in kept]:
            faults.append(f"{', '.join(others)}: selftest has topics and names of its own; leave out these options.")
        location = kept.pop("checkpointlocation", None)
        if is_connect and writes and not location:
            faults.append(
                "On Spark Connect, selftest needs checkpointLocation: a folder that the server can write to, such as "
                "s3a://bucket/checkpoints."
            )
        mark = uuid4().hex[:8]
        folder = (location or f"file://{gettempdir()}").rstrip("/")
        return cls(
            # A task that has not ended when its topic is deleted must not create it again.
            options={**kept, f"{KAFKA_PREFIX}allow.auto.create.topics": "false"},
            config=SinkOptions.parse({**kept, "topic": prefix}, faults).producer,
            prefix=prefix,
            mark=mark,
            checkpoint=f"{folder}/{DEFAULT_PREFIX}-{mark}",
            existing=existing,
            writes=writes,
        )

    @property
    def ledger(self) -> str:
        return self.existing.ledger or throw_away_name(self.prefix, f"{self.mark}-ledger")

    @property
    def request(self) -> CheckRequest:
        """The request for the check here and on each executor. Rights of exactly-once are checked only on the user's
        own ledger."""
        prefix = None if self.existing.ledger is None else self.prefix
        return CheckRequest(self.config, self.existing.topic, prefix, self.ledger)

    def topic(self, guarantee: str, way: str) -> str:
        return self.existing.topic or throw_away_name(self.prefix, self.mark_of(guarantee, way))

    def mark_of(self, guarantee: str, way: str) -> str:
        """The beginning of the value of each row of a step. A repeated ``txnVersion`` has the same rows as the first
        one."""
        return f"{self.mark}-{guarantee}-{way.partition(',')[0]}"

    def own_name(self, way: str) -> str:
        """The name of a query or a batch write that belongs to this run alone."""
        return f"{self.prefix}-{self.mark}-{way}"

    def write_options(self, guarantee: str, way: str) -> dict[str, str]:
        """The options of a write, as ``format("pykafka")`` takes them."""
        options = {**self.options, "topic": self.topic(guarantee, way), "deliveryGuarantee": guarantee}
        if guarantee == _EXACTLY_ONCE:
            stream = {"transactionalIdPrefix": self.own_name("stream")}
            batch = {"txnAppId": self.own_name("batch"), "txnVersion": "0"}
            options |= {"ledgerTopic": self.ledger, **(stream if way == _STREAM else batch)}
        return options


def run(session: AbstractContextManager[SparkSession], plan: Plan) -> bool:
    """Carries out a plan. ``session`` is entered once the brokers respond, because Spark takes long to start."""
    clock = SystemClock()
    cluster = Cluster(plan.config, clock)
    topics = TrialTopics(cluster, plan.config, plan.existing)
    try:
        cluster.await_brokers(clock.now() + plan.config.max_block_ms)
        if plan.writes:
            topics.require_empty()
        system = f"{platform.system()} {platform.machine()}"
        print(f"spark-kafka-sink {spark_kafka_sink.__version__}, Python {platform.python_version()}, {system}")
        print(", ".join(f"{name} {importlib.import_module(name).__version__}" for name in _LIBRARIES))
        print(f"brokers: {_brokers(cluster)}", flush=True)
        with session as spark:
            steps = _Run(plan, spark, topics, clock)
            if not plan.writes:
                return steps.workers()
            try:
                return steps.steps()
            finally:
                _clean_up(plan, spark, topics)
    finally:
        cluster.close()


class _Run:
    def __init__(self, plan: Plan, spark: SparkSession, topics: TrialTopics, clock: SystemClock) -> None:
        self._plan = plan
        self._spark = spark
        self._topics = topics
        self._clock = clock
        self._stopped = False

    def steps(self) -> bool:
        """Runs the steps up to the first one that fails. Returns whether all have worked."""
        if not self.workers():
            _print_untested(STEPS)
            return False
        for number, (guarantee, way) in enumerate(STEPS):
            try:
                text, outcome = self._step(guarantee, way), "ok"
            except Exception as error:  # whatever Spark raises
                text, outcome = "the reason is on standard error", "FAILED"
                more = advice(error) if isinstance(error, KafkaError) else ""
                print(". ".join(filter(None, (f"{guarantee}, {way}: {reason(error)}", more))), file=sys.stderr)
            print(f"{outcome:8}{guarantee}, {way}: {text}", flush=True)
            if outcome != "ok":
                _print_untested(STEPS[number + 1 :])
                return False
        print(f"whole: every row was read back by {self._topics.reader}", flush=True)
        return True

    def workers(self) -> bool:
        """Runs the check here and on each executor. False if a step failed on an executor that works here; without a
        write to follow, if any step failed.
        """
        print(f"Spark: {_spark_versions(self._spark)}", flush=True)
        here = [*library_findings(required_libraries()), *check(self._plan.request, self._clock)]
        failed = [finding for finding in here if finding.outcome is Outcome.FAILED]
        for finding in failed:
            print(f"{finding.subject}\n{lines(finding)}", file=sys.stderr)
        ends = f"FAILED at {failed[0].step}" if failed else "no step failed"
        print(f"{'FAILED' if failed else 'ok':8}connection of the driver: {ends}", flush=True)
        found = self._in_job("workers", partial(check_on_workers, self._spark, self._plan.request)).compared(here)
        print(*found.lines, sep="\n", end="\n" if found.lines else "", file=sys.stderr)
        print(f"{'FAILED' if found.failed else 'ok':8}connection of the executors: {found.summary}", flush=True)
        return not found.failed and (self._plan.writes or not failed)

    def _step(self, guarantee: str, way: str) -> str:
        topic = self._plan.topic(guarantee, way)
        if way != _AGAIN:
            self._topics.create(topic)
        if guarantee == _EXACTLY_ONCE:
            self._topics.also_delete(self._plan.ledger)
        began = self._clock.now()
        self._in_job(f"{guarantee}, {way}", partial(self._write, guarantee, way))
        seconds = (self._clock.now() - began) / 1000
        compare(
            self._topics.read(topic), self._plan.mark_of(guarantee, way), repeats_allowed=guarantee == _AT_LEAST_ONCE
        )
        return f"{ROWS:,} rows, {ROWS / seconds:,.0f} rows/s" if way != _AGAIN else "no row was added"

    def _write(self, guarantee: str, way: str) -> None:
        options, mark = self._plan.write_options(guarantee, way), self._plan.mark_of(guarantee, way)
        if has_format():
            activate_session(self._spark)
        if way == _STREAM:
            self._stream(options, mark, f"{self._plan.checkpoint}/{guarantee}")
            return
        frame = records(self._spark.range(ROWS), "id", mark)
        if has_format():
            frame.write.format("pykafka").options(**options).mode("append").save()
        else:
            write_kafka(frame, options)

    def _stream(self, options: dict[str, str], mark: str, checkpoint: str) -> None:
        """Runs the query to its end several times. Each run is one micro-batch, all of the same size."""
        if not has_format() and "transactionalIdPrefix" in options:
            options["txnAppId"] = options.pop("transactionalIdPrefix")
        source = self._spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS // RUNS)
        for _ in range(RUNS):
            writer = records(source.load(), "value", mark).writeStream
            if has_format():
                writer = writer.format("pykafka").options(**options)
            else:
                writer = writer.foreachBatch(kafka_batches(options))
            self._await(writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start())

    def _await(self, query: StreamingQuery) -> None:
        try:
            while not query.awaitTermination(_POLL_S):  # type: ignore[arg-type] # Spark takes a float, too
                if self._stopped:
                    raise KafkaError("The query was stopped.")
        finally:
            query.stop()

    def _stop(self) -> None:
        self._stopped = True

    def _in_job(self, what: str, action: Callable[[], _Result]) -> _Result:
        """Runs ``action``, which starts Spark jobs. Interrupt and timeout cancel them."""
        deadline = self._clock.now() + _JOB_MS

        def check_time() -> None:
            if self._clock.now() >= deadline:
                raise KafkaTimeoutError(f"{what} is not done after {_JOB_MS / 1000:.0f} s: has Spark free executors?")

        return run_cancellable(self._spark, action, "selftest", self._clock, check_time, self._stop)


def records(frame: DataFrame, number: str, mark: str) -> DataFrame:
    """The rows to write, from a frame that numbers them in the column ``number``. The value is the mark and a digest of
    mark and number, so that a record of another run or step is recognised.
    """
    text = f"CAST({number} AS STRING)"
    return frame.selectExpr(f"{text} AS key", f"concat('{mark} ', sha2(concat('{mark}:', {text}), 256)) AS value")


def compare(
    read: Iterator[list[tuple[bytes | None, bytes | None]]], mark: str, *, repeats_allowed: bool, rows: int = ROWS
) -> None:
    """Raises ``KafkaError`` unless the rows of ``records`` were read, each of them once. Ignores the rows of other
    steps of this run, which may have written to the same topic.
    """
    wanted = {b"%d" % number: _value(mark, number) for number in range(rows)}
    of_run, of_step = f"{mark.partition('-')[0]}-".encode(), f"{mark} ".encode()
    seen: Counter[bytes] = Counter()
    foreign = 0
    for some in read:
        for key, value in some:
            if key is not None and wanted.get(key, b"") == value:
                seen[key] += 1
            elif value is None or not value.startswith(of_run) or value.startswith(of_step):
                foreign += 1
    counts = {
        "missing": rows - len(seen),
        "records that match no row": foreign,
        "duplicates": 0 if repeats_allowed else seen.total() - len(seen),
    }
    if faults := [f"{count:,} {what}" for what, count in counts.items() if count]:
        raise KafkaError(f"{'; '.join(faults)}, of {rows:,} rows")


def _value(mark: str, number: int) -> bytes:
    return f"{mark} {sha256(f'{mark}:{number}'.encode()).hexdigest()}".encode()


def _print_untested(steps: Sequence[tuple[str, str]]) -> None:
    for left in steps:
        print(f"{'untested':8} {', '.join(left)}")
    print("NOT whole", flush=True)


def _clean_up(plan: Plan, spark: SparkSession, topics: TrialTopics) -> None:
    """Deletes topics and checkpoints. Prints to standard error what it could not delete, and why."""
    left = [text for outcome, text in topics.delete() if outcome is not Outcome.OK]
    if plan.existing.topic is not None:
        left.append(f"Topic {plan.existing.topic} keeps the rows of this run")
    if plan.existing.ledger is not None:
        names = f"{plan.prefix}-{plan.mark}"
        left.append(f"Ledger {plan.existing.ledger} keeps the entries of this run, whose names begin with {names}")
    try:
        if is_connect(spark):
            left.append(f"A client of Spark Connect cannot remove the checkpoints in {plan.checkpoint}")
        else:
            jvm: Any = spark._jvm
            path = jvm.org.apache.hadoop.fs.Path(plan.checkpoint)
            path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()).delete(path, True)
    except Exception as error:  # whatever Spark raises
        left.append(f"The checkpoints stay in {plan.checkpoint}: {reason(error)}")
    for text in left:
        print(text, file=sys.stderr)


def has_format() -> bool:
    """Whether this Spark has Python data sources, which came with Spark 4.0."""
    return importlib.util.find_spec("pyspark.sql.datasource") is not None


def _spark_versions(spark: SparkSession) -> str:
    master = "Connect" if is_connect(spark) else str(spark.sparkContext.master).partition(":")[0].partition("[")[0]
    return f"{spark.version}, {master}, {'format' if has_format() else 'write_kafka'}"


def _brokers(cluster: Cluster) -> str:
    versions = cluster.any_api_versions()
    highest, features = ({}, {}) if versions is None else (versions.highest, versions.features)
    apis = (f"{camel_case(api)} {highest[api]}" for api in _SHOWN_APIS if api in highest)
    levels = (f"{sanitize(name)} {level}" for name, level in sorted(features.items()))
    return ", ".join([str(len(cluster.snapshot.nodes)), *apis, *levels])
