"""``SinkWrite`` is a write on the driver and in its tasks; its subclasses are the writers that Spark pickles. Errors
get Spark's names of options on their way to Spark, and notes on their causes.

Spark 3.5 has no Python data sources, so there only ``SinkWrite`` is of use. This file imports neither the producer nor
Arrow nor kio: the first task that writes does.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Self

from pyspark import TaskContext
from pyspark.sql.types import StructType

from spark_kafka_sink import __version__
from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import config_warnings_to
from spark_kafka_sink.errors import (
    AuthenticationError,
    ConfigError,
    DeadLetterLimitError,
    InvalidRecordError,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
    sanitize,
)
from spark_kafka_sink.spark.commit_message import (
    Committed,
    KafkaCommitMessage,
    LogLine,
    WriterCommitMessage,
    aborted,
    committed,
)
from spark_kafka_sink.spark.options import DeadLetterOptions, Reason, SinkOptions, letter_option, with_prefix
from spark_kafka_sink.spark.python_process import (
    acknowledge_at_once,
    announce,
    freeze_imports,
    log_at,
    return_unused_memory,
)
from spark_kafka_sink.spark.schema import EncodedFields, RowLayout, SchemaError, encoded_fields
from spark_kafka_sink.spark.topic_creation import ensure_planned_topics, forget_topics, look_up_again

try:
    from pyspark.sql.datasource import DataSourceArrowWriter
except ImportError:
    DataSourceArrowWriter = object  # type: ignore[assignment,misc]

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # Spark 4.0 gives Arrow batches to every DataSourceArrowWriter, a stream's, too
    DataSourceStreamArrowWriter = DataSourceArrowWriter  # type: ignore[assignment,misc]

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_kafka_sink.exactly_once.values import WritePlan
    from spark_kafka_sink.schemas.formats.plan import FormatPlan


def config_warnings_logged() -> AbstractContextManager[None]:
    """A block in a process of the driver, whose program is Spark's: ``ConfigWarning``s go to the log."""
    return config_warnings_to(lambda text: announce(text, logging.WARNING))


class SinkWrite:
    """A write: it plans, writes, commits and aborts.

    ``begin`` runs once on the driver, before the write is pickled for its tasks; ``write`` runs in every task;
    ``end`` or ``give_up`` runs on the driver, perhaps in another process than ``begin``.
    """

    _is_batch = True
    """Whether the write is a batch job's, which may be one of several in a foreachBatch."""
    _overrides_topic = False
    """Whether the option topic takes the place of a column topic, as in a job that mirrors topics."""

    @classmethod
    def of(cls, schema: StructType, options: Mapping[str, str], faults: Sequence[str] = ()) -> Self:
        """The write of rows of this schema. Raises ``ConfigError`` with all faults of the options, including the faults
        that the caller has found, or ``SchemaError``.
        """
        try:
            chosen = SinkOptions.parse(options, [*faults], is_batch=cls._is_batch)
        except ConfigError as error:
            raise ConfigError([*error.faults, *_schema_faults(schema, options)]) from None
        layout = RowLayout.of(schema, chosen.topic, chosen.timestamp_column, chosen.formats)
        fields = None if chosen.formats is None else encoded_fields(schema, layout, chosen.formats)
        write = cls(layout, chosen, fields)
        write._overrides_topic = chosen.topic is not None and "topic" in schema.names
        return write

    def __init__(self, layout: RowLayout, options: SinkOptions, fields: EncodedFields | None = None) -> None:
        self.layout = layout
        self.options = options
        self.plan: WritePlan | None = None
        self.formats: FormatPlan | None = None
        self.release = __version__
        """The release that the driver runs."""
        self.logged_in = False
        """Whether brokers have accepted the driver's login, so that a refusal in a task may pass."""
        self._fields = fields
        self._has_begun = False

    def begin(self) -> None:
        """Plans formats, topics and, with exactly-once, the transactions. A second call plans nothing again.

        Raises ``KafkaError``, for example ``PlanningError``; then no task has started.
        """
        log_at(self.options.log_level)
        if self._has_begun:
            return
        if self._overrides_topic:
            from spark_kafka_sink.spark.application import is_first

            text = f"The option topic sends all rows to {self.options.topic}, so the column topic is not read"
            if is_first(text):
                announce(text)
        if self._fields is not None:
            from spark_kafka_sink.spark.formats import plan_column_formats

            self.formats = plan_column_formats(self.options, self._fields)
        with with_hints(self.options):
            if self.options.driver_check:
                from spark_kafka_sink.spark.driver_check import check_brokers

                self.logged_in = check_brokers(self.options)
            ensure_planned_topics(self.options, is_batch=self._is_batch)
        if self.options.exactly_once is not None:
            from spark_kafka_sink.spark.exactly_once import plan_transactions

            with with_hints(self.options):
                self.plan = plan_transactions(self.options)
            if self.formats is not None:
                from spark_kafka_sink.spark.formats import with_earlier_schemas

                self.formats = with_earlier_schemas(self.formats, self.plan.entries)
        self._has_begun = True
        freeze_imports()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> KafkaCommitMessage:
        """Writes the rows of a task. Raises ``ConfigError`` if the driver runs another release than this worker."""
        if self.release != __version__:
            raise ConfigError([
                f"The driver runs spark-kafka-sink {self.release}, and this worker {__version__}: install the same "
                "release for the driver and all executors, and start the job again."
            ])  # fmt: skip
        acknowledge_at_once()
        return_unused_memory()
        log_at(self.options.log_level)
        if self.logged_in:
            from spark_kafka_sink.network.login.refusals import note_accepted

            note_accepted(self.options.producer)
        try:
            with with_token_hint(), with_hints(self.options):
                message = self._write(iterator)
        except Exception:
            forget_topics(self.options)
            raise
        freeze_imports()
        return message

    def _write(self, iterator: Iterator[pa.RecordBatch]) -> KafkaCommitMessage:
        if self.plan is not None:
            from spark_kafka_sink.spark.exactly_once_task import write_exactly_once

            return write_exactly_once(iterator, self.layout, self.options, self.plan, self.formats)
        from spark_kafka_sink.spark.write import write_rows

        return write_rows(iterator, self.layout, self.options, self.formats)

    def end(self, messages: list[WriterCommitMessage | None], micro_batch: str = "") -> Committed:
        """Commits the rows that the tasks wrote. ``micro_batch``: the beginning of an at-least-once line. Raises
        ``KafkaError``; then ``give_up`` is next.
        """
        log_at(self.options.log_level)
        check_reports(messages, micro_batch)
        check_dead_letters(messages, self.options)
        if self.options.exactly_once is not None:
            from spark_kafka_sink.spark.exactly_once import commit_exactly_once

            with with_hints(self.options):
                outcome = commit_exactly_once(messages, self.options, SystemClock())
        else:
            outcome = Committed(micro_batch + committed(messages, SystemClock()))
        written = any(isinstance(message, KafkaCommitMessage) and message.writes for message in messages)
        if written or outcome.replayed or not micro_batch:  # a query may have an empty micro-batch each second
            announce(outcome.line)
        formats = self.options.formats
        if self._fields and formats and formats.registry and self.options.topic is None:
            from spark_kafka_sink.spark.formats import learn_topics

            learn_topics(self.options, self._fields, messages)
        freeze_imports()
        return outcome

    def give_up(self, messages: list[WriterCommitMessage | None], micro_batch: str = "") -> LogLine:
        """Aborts the write. ``messages``: the tasks' messages, None for a failed task. Returns the line that it has
        logged."""
        log_at(self.options.log_level)
        look_up_again(self.options)
        from spark_kafka_sink.spark.driver_check import check_again

        check_again(self.options)
        if self.options.exactly_once is not None:
            from spark_kafka_sink.spark.exactly_once import abort_exactly_once

            with with_hints(self.options):
                line = abort_exactly_once(messages, self.options, self.plan)
        else:
            line = aborted(messages)
        line = line._replace(text=micro_batch + line.text)
        announce(line.text, line.level)
        return line


def _schema_faults(schema: StructType, options: Mapping[str, str]) -> list[str]:
    """The faults of the options, and the faults of the columns that do not depend on formats."""
    given = {name.lower(): value for name, value in options.items()}
    if "keyformat" in given or "valueformat" in given:
        return []
    try:
        RowLayout.of(schema, given.get("topic"), given.get("timestampcolumn"))
    except SchemaError as error:
        return [str(error)]
    return []


def check_reports(messages: Sequence[WriterCommitMessage | None], micro_batch: str = "") -> None:
    """Raises ``KafkaError`` for a task that reported nothing although Spark commits: its rows were not written.

    Continuous processing gives each row to ``PythonBatchWriterFactory.write``, which drops it, and then commits without
    a message of the task. The error keeps Spark from noting the epoch as committed; Spark logs it, and the query waits.
    """
    silent = sum(message is None for message in messages)
    if silent:
        raise KafkaError(
            f"{micro_batch}{silent} of {len(messages)} tasks reported nothing: their rows were not written, and "
            "nothing is committed. This happens with trigger(continuous=…), which no Python data source supports. "
            "Stop the query, and start it with trigger(processingTime=…) and a new checkpoint, because with this "
            "checkpoint it would skip rows."
        )


def check_dead_letters(messages: list[WriterCommitMessage | None], options: SinkOptions) -> None:
    """Raises ``DeadLetterLimitError`` if the tasks have more than deadLetterLimit together."""
    if options.dead_letters is None:
        return
    figures = [message.figures for message in messages if isinstance(message, KafkaCommitMessage)]
    text = options.dead_letters.over_limit(sum(rows for figure in figures for _, rows in figure.dead_letters))
    if text is None:
        return
    kept = "" if options.exactly_once is not None else " What the tasks sent stays in Kafka (at least once)."
    raise DeadLetterLimitError(f"The tasks' {text}{kept}")


class PlansWhenPickled(SinkWrite):
    """A write that begins when Spark pickles its writer for the tasks. (Spark pickles it twice.)"""

    def __getstate__(self) -> dict[str, Any]:
        self.begin()
        return self.__dict__


class KafkaBatchWriter(PlansWhenPickled, DataSourceArrowWriter):
    """The writer of a batch job. Pickled once per job; ``commit`` or ``abort`` runs in another process of the
    driver."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.end(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.give_up(messages)


class KafkaStreamWriter(PlansWhenPickled, DataSourceStreamArrowWriter):
    """The writer of a micro-batch. Spark makes one per micro-batch, and another one for its ``commit`` or ``abort``.

    The other one is never pickled, so it plans nothing. (Planning would fence the tasks' transactional ids.)
    """

    _is_batch = False

    def __init__(self, layout: RowLayout, options: SinkOptions, fields: EncodedFields | None = None) -> None:
        """Raises ``ConfigError`` for options that only a batch write has."""
        super().__init__(layout, options, fields)
        asked = options.exactly_once
        if asked is not None and asked.version is not None:
            raise ConfigError([
                "txnAppId and txnVersion are for batch writes. Leave them out of a query, whose micro-batches have "
                "numbers."
            ])  # fmt: skip
        if asked is not None and asked.name is None:
            raise ConfigError([
                "transactionalIdPrefix is required: the query has neither a checkpointLocation option nor a name. "
                "Set one that is unique per query and stable across restarts."
            ])  # fmt: skip

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        self.end(messages, self._micro_batch(batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        self.give_up(messages, self._micro_batch(batchId))

    def _micro_batch(self, number: int) -> str:
        name = self.options.query_name
        return f"micro-batch {number}: " if name is None else f"micro-batch {number} of query {sanitize(name)}: "


_TOKEN_SETTINGS = "spark.kafka.clusters."
_TOKEN_ADVICE = (
    "are set, but the delegation tokens that Spark fetches for them are not available in Python workers, so this sink "
    "cannot use them: set kafka.sasl.mechanism and kafka.sasl.jaas.config."
)
_warned_of_tokens = False

_OWN_LIMIT = "that limit (for kafka.max.request.size also the topic's max.message.bytes)"
_BROKERS_LIMIT = "the topic's max.message.bytes"


@contextmanager
def with_hints(options: SinkOptions) -> Iterator[None]:
    """A block whose errors name the producer's options as Spark's, with ``kafka.``. An error gets a note: after a
    failed connection attempt the step, the option and the command to check it; for a record that is too large, or a
    topic that the brokers do not have, what helps; for a row that a broker refused, or whose partition does not exist,
    its number in the task.
    """
    try:
        yield
    except KafkaError as error:
        from spark_kafka_sink.network.diagnosis import check_command, diagnosis
        from spark_kafka_sink.producer.receipt import is_refusal

        if isinstance(error, ConfigError):
            error.faults = tuple(with_prefix(fault, error) for fault in error.faults)
        if error.row is not None and not isinstance(
            error, InvalidRecordError
        ):  # rows of these errors have their numbers already
            from spark_kafka_sink.spark.rows import row_text

            error.args = (f"{error.args[0]} ({row_text(error.row)})", *error.args[1:])
        if error.args:
            error.args = (with_prefix(str(error.args[0]), error), *error.args[1:])
        refused = is_refusal(error)
        if refused or isinstance(error, RecordTooLargeError):
            limit = _BROKERS_LIMIT if refused else _OWN_LIMIT
            _add_remedy(error, options.dead_letters, Reason.RECORD_TOO_LARGE, f"Raise {limit}")
        if isinstance(error, KafkaTimeoutError) and error.missing_partition is not None:
            topic = error.missing_partition[0]
            remedy = f"Correct the row's partition, or add partitions to topic {topic}"
            _add_remedy(error, options.dead_letters, Reason.INVALID_PARTITION, remedy)
        if isinstance(error, KafkaTimeoutError) and error.missing_topic is not None:
            from spark_kafka_sink.spark.topic_creation import note_on_missing

            if note := note_on_missing(error.missing_topic, options):
                error.add_note(note)
        if note := diagnosis(error, check_command(options.producer, options.topic)):
            error.add_note(with_prefix(note, error))
        raise


def _add_remedy(error: KafkaError, letters: DeadLetterOptions | None, reason: Reason, remedy: str) -> None:
    """Notes what helps, unless rows are dead letters for this reason: then no row alone is at fault."""
    reasons = frozenset[Reason]() if letters is None else letters.reasons
    if reason not in reasons:
        error.add_note(f"{remedy}, or {letter_option(reasons, reason)}, so that such rows become dead letters.")


@contextmanager
def with_token_hint() -> Iterator[None]:
    """A block around a task's work, in case Spark has settings of delegation tokens, which it copies into its tasks'
    local properties. An authentication error gets a note on them; without an error, the worker warns once.
    """
    global _warned_of_tokens
    properties = getattr(TaskContext.get(), "_localProperties", None) or {}
    settings = ", ".join(sorted(name for name in properties if name.startswith(_TOKEN_SETTINGS)))
    try:
        yield
    except KafkaError as error:
        if settings and (isinstance(error, AuthenticationError) or isinstance(error.__cause__, AuthenticationError)):
            _warned_of_tokens = True
            error.add_note(f"{settings} {_TOKEN_ADVICE}")
        raise
    if settings and not _warned_of_tokens:
        _warned_of_tokens = True
        logging.getLogger("spark_kafka_sink.spark").warning("%s %s", settings, _TOKEN_ADVICE)
