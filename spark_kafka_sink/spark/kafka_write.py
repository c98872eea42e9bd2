"""The functions for programs: ``write_kafka``, a write without a data source, for Spark 3.5 and for sessions where none
can be registered; ``kafka_batches``; and functions that make Spark find ``format("pykafka")``.

The tasks of ``write_kafka`` run in ``DataFrame.mapInArrow``, each returns its commit message as a row, and the caller's
process commits. Spark takes the rows of one attempt of each task, so what other attempts wrote is not committed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.utils import to_str

from spark_kafka_sink.common.clock import Clock, SystemClock
from spark_kafka_sink.errors import ConfigError, KafkaError, clause, sanitize
from spark_kafka_sink.spark.application import name_application
from spark_kafka_sink.spark.caller_job import is_connect, reason, run_cancellable
from spark_kafka_sink.spark.commit_message import Committed, KafkaCommitMessage, PartitionWrite, WriterCommitMessage
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.python_process import callers_level_afterwards, leave_logging_to_caller
from spark_kafka_sink.spark.schema import RowLayout
from spark_kafka_sink.spark.sink_write import SinkWrite

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_SCHEMA: Final = "message string"


def write_kafka(frame: DataFrame, options: Mapping[str, Any]) -> WriteResult:
    """Writes the rows of a batch frame as ``format("pykafka")`` does, with its columns and options.

    It works on Spark 3.5 and newer, classic and Connect, from any thread, and in ``foreachBatch``. On Connect this
    process is the client: an exactly-once write needs the brokers to be reachable from it.

    Returns when all rows are acknowledged and, with exactly-once, committed. Raises a ``KafkaError`` before the job
    starts or if the commit fails, and Spark's exception if the job fails, with notes on the reason.

    A failed or interrupted call cancels its job, then aborts the transactions of its tasks. The transactions of a
    killed process are aborted by the next write of the same txnAppId.
    """
    return _write(frame, options)


@callers_level_afterwards()
def _write(frame: DataFrame, options: Mapping[str, Any], micro_batch: int = 0) -> WriteResult:
    """The write. ``micro_batch``: the number from ``kafka_batches``, because Spark may not know it on the calling
    thread."""
    if TaskContext.get() is not None:
        raise ConfigError([
            "write_kafka was called in a task. It starts a Spark job itself: call it on the driver, or use "
            "KafkaProducer in the task."
        ])  # fmt: skip
    if not hasattr(frame, "mapInArrow"):
        kind = f"{type(frame).__module__}.{type(frame).__qualname__}"
        raise TypeError(f"write_kafka takes a Spark DataFrame, not {kind}. spark.createDataFrame makes a DataFrame.")
    if frame.isStreaming:
        raise ConfigError([
            "write_kafka writes batch frames, and this one is streaming: use "
            "frame.writeStream.foreachBatch(kafka_batches(options)).start()."
        ])  # fmt: skip
    _require_pandas()
    leave_logging_to_caller()
    clock = SystemClock()
    began_at = clock.now()
    given, faults = given_options(options)
    write = SinkWrite.of(frame.schema, given, faults)
    if write.options.formats is not None:
        name_application(frame.sparkSession)
    write.begin()
    if write.plan is not None and write.plan.write_id is not None:
        from spark_kafka_sink.exactly_once.decisions import check_ledger_of_foreach_batch

        check_ledger_of_foreach_batch(write.plan, write.plan.write_id, micro_batch)
    messages: list[KafkaCommitMessage] = []
    try:
        messages = _run(frame, _Task(write), clock)
        committed = write.end([*messages])
    except BaseException as error:
        _give_up(write, messages, error)
        raise
    return WriteResult.of(messages, committed, (clock.now() - began_at) / 1000)


def _require_pandas() -> None:
    """Raises ``ImportError`` before anything is written, as PySpark would after the write has begun."""
    if find_spec("pandas") is None:
        raise ImportError(
            'write_kafka needs pandas in this process, because PySpark\'s mapInArrow does: pip install "pandas<3"'
        )


@dataclass(frozen=True)
class KafkaBatches:
    """The function that ``kafka_batches`` returns."""

    options: Mapping[str, str] = field(repr=False)  # the options have passwords

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        options = dict(self.options)
        if _APP in options:
            options[_VERSION] = str(batch_id)
        _write(frame, options, batch_id)


_APP, _VERSION = "txnappid", "txnversion"


def kafka_batches(options: Mapping[str, Any]) -> KafkaBatches:
    """The function for ``frame.writeStream.foreachBatch``, which writes each micro-batch with ``write_kafka``.

    With ``deliveryGuarantee=exactly-once``, ``txnAppId`` must name the query, and the batch id is the ``txnVersion``:
    a micro-batch that Spark repeats after a failure is written once. Raises ``ConfigError``.
    """
    _require_pandas()
    spelt, faults = given_options(options)
    given = {name.lower(): value for name, value in spelt.items()}
    if given.get("deliveryguarantee", "").strip().lower() == "exactly-once":
        if _APP not in given:
            faults.append(
                "txnAppId is required: it names the query in ledgerTopic. Set it to a name that no other query has, "
                "and that this query keeps across restarts."
            )
        if _VERSION in given:
            faults.append("txnVersion is refused: the batch id is the version of a micro-batch. Leave it out.")
        probe = {**given, _APP: given.get(_APP, "unnamed"), _VERSION: "0"}
    else:
        probe = given
    try:
        SinkOptions.parse(probe)
    except ConfigError as error:
        faults += error.faults
    if faults:
        raise ConfigError(faults)
    return KafkaBatches(given)


def given_options(options: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    """The options as Spark's writer passes them, and a fault for each that is given twice. Raises ``TypeError`` if
    they are not a mapping with names as keys.
    """
    if not isinstance(options, Mapping):
        raise TypeError(f"options is a mapping of option names to values, not {type(options).__qualname__}.")
    given: dict[str, str] = {}
    spelt: dict[str, str] = {}
    faults = []
    for name, value in options.items():
        if not isinstance(name, str):
            raise TypeError(f"The name of an option is a string, not {type(name).__qualname__}: {name!a}.")
        text = to_str(value)
        if text is None:
            continue
        earlier = spelt.setdefault(name.lower(), name)
        if earlier != name:
            faults.append(f"{sanitize(earlier)} and {sanitize(name)} are the same option: leave out one of them.")
        given[name] = text
    return given, faults


@dataclass(frozen=True)
class _Task:
    """The function that each task of the job runs."""

    write: SinkWrite

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        message = self.write.write(batches).to_json()
        yield pa.RecordBatch.from_arrays([pa.array([message], pa.string())], names=["message"])

    def run_without_rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            """Spark's worker expects its input to be read."""
        yield from self.run(iter(()))


def _select_written(frame: DataFrame, write: SinkWrite) -> DataFrame:
    """The columns that are written, found by their places, because names of the others may be ambiguous."""
    places = {name: place for name, place in asdict(write.layout).items() if place is not None}
    write.layout = RowLayout(**{name: place for place, name in enumerate(places)})
    frame = frame.toDF(*(f"c{place}" for place in range(len(frame.columns))))
    return frame.select(*(frame[f"c{place}"].alias(name) for name, place in places.items()))


def _run(frame: DataFrame, task: _Task, clock: Clock) -> list[KafkaCommitMessage]:
    """Runs the job and returns the tasks' messages. A frame without partitions gets a task, as in Spark's own writes,
    so that its batch is committed. If the call is interrupted, its job is cancelled, and has ended when this raises.
    """
    job = _select_written(frame, task.write).mapInArrow(task.run, _SCHEMA)
    rows = run_cancellable(frame.sparkSession, job.collect, "write_kafka", clock)
    if not rows:
        job = frame.sparkSession.range(0, 1, 1, 1).mapInArrow(task.run_without_rows, _SCHEMA)
        rows = run_cancellable(frame.sparkSession, job.collect, "write_kafka", clock)
    return [KafkaCommitMessage.from_json(row[0]) for row in rows]


def _give_up(write: SinkWrite, messages: list[KafkaCommitMessage], error: BaseException) -> None:
    """Aborts what the tasks wrote. Notes on ``error`` say why the job failed, and what was aborted."""
    if isinstance(error, Exception) and not isinstance(error, KafkaError):  # Spark 3.5 raises py4j's own error
        error.add_note(f"The write failed: {reason(error)}")
    # A job that failed returns no messages, as if no task had finished. A query that cannot be analyzed has no tasks.
    reports: list[WriterCommitMessage | None] = [*messages]
    if not messages and not isinstance(error, AnalysisException):
        reports = [None]
    try:
        error.add_note(write.give_up(reports).text)
    except KafkaError as failure:
        error.add_note(
            f"Its transactions could not be aborted: {clause(failure)}. The next write of the same name aborts them, "
            "or else the brokers do, after kafka.transaction.timeout.ms."
        )


_FOUND: Final = "DATA_SOURCE_ALREADY_EXISTS"


def register_format(spark: SparkSession) -> None:
    """Registers ``format("pykafka")`` in the session, where Spark does not find the installed package by itself, and
    makes the session active in the calling thread.

    Newer Sparks than 4.0 prefer what is registered to what they have found; Spark 4.0 takes no second format of the
    name, so there registering has no effect if it has found one. Needs Spark 4.0 or newer.
    """
    from spark_kafka_sink.spark.source import KafkaDataSource

    activate_session(spark)
    try:
        spark.dataSource.register(KafkaDataSource)
    except AnalysisException as error:
        if error.getCondition() != _FOUND:
            raise


def activate_session(spark: Any) -> None:
    """Makes the session active in the calling thread, so that ``format("pykafka")`` is found there.

    Call it once in each thread that writes, for example as the initializer of a pool:
    ``ThreadPoolExecutor(4, initializer=activate_session, initargs=(spark,))``. The thread that created the session
    needs it only after Ctrl-C, which leaves it without an active session. On Spark Connect the call does nothing.

    It needs Spark 4.0 or newer and a thread of the JVM for each Python thread: ``PYSPARK_PIN_THREAD``, which is on by
    default. Raises ``TypeError`` if ``spark`` is not a session.
    """
    if not isinstance(spark, SparkSession) and not is_connect(spark):
        raise TypeError(f"Give a SparkSession, not {type(spark).__qualname__}.")
    if not is_connect(spark):
        SparkSession._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)


@dataclass(frozen=True)
class WriteResult:
    """A write that has succeeded. Its text is the line that the sink logs.

    - ``rows``, ``bytes``: acknowledged rows, and their bytes as records before compression. 0 for a replay.
    - ``seconds``: how long the call took.
    - ``partitions``: for each topic and partition, sorted: count, bytes, first and last offset (-1 with ``acks=0``).
      Records of other writers may lie between them.
    - ``dead_letters``: reason → rows.
    - ``replayed``: txnAppId had written this txnVersion before, so nothing was written.
    """

    rows: int
    bytes: int
    seconds: float
    partitions: tuple[PartitionWrite, ...] = ()
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    replayed: bool = False
    text: str = ""

    def __str__(self) -> str:
        return self.text

    @classmethod
    def of(cls, messages: Sequence[KafkaCommitMessage], committed: Committed, seconds: float) -> WriteResult:
        """The result of a write whose tasks reported ``messages``."""
        if committed.replayed:
            return cls(0, 0, seconds, replayed=True, text=committed.line)
        partitions = _merge(write for message in messages for write in message.writes)
        letters: dict[str, int] = defaultdict(int)
        for why, rows in (letter for message in messages for letter in message.figures.dead_letters):
            letters[why] += rows
        return cls(
            rows=sum(partition.count for partition in partitions),
            bytes=sum(partition.bytes for partition in partitions),
            seconds=seconds,
            partitions=partitions,
            dead_letters=dict(letters),
            text=committed.line,
        )


def _merge(writes: Iterable[PartitionWrite]) -> tuple[PartitionWrite, ...]:
    """The writes of all tasks, merged to one for each topic and partition."""
    merged: dict[tuple[str, int], PartitionWrite] = {}
    for write in writes:
        place = write.topic, write.partition
        before = merged.get(place)
        merged[place] = write if before is None else PartitionWrite(
            *place,
            before.count + write.count,
            before.bytes + write.bytes,
            min(before.first_offset, write.first_offset),
            max(before.last_offset, write.last_offset),
        )  # fmt: skip
    return tuple(merged[place] for place in sorted(merged))
