"""``End``: where the rows of a task's pipeline go. At-least-once it is a producer, exactly-once a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from spark_kafka_sink.producer.append.receipt import RefusalReceipt
    from spark_kafka_sink.producer.core import ProducerCore
    from spark_kafka_sink.producer.task_meter import TaskMeter
    from spark_kafka_sink.records.columns import Int32Array, RecordColumns, TopicColumn


class End(Protocol):
    """``spark.write.LeasedProducer`` and ``exactly_once.task.TaskTransaction``. One thread."""

    @property
    def meter(self) -> TaskMeter: ...

    @property
    def writes(self) -> bool:
        """False for a replay, whose rows are only counted."""

    @property
    def is_transaction(self) -> bool:
        """Whether nothing is written if the task fails."""

    def core(self) -> ProducerCore:
        """The producer's core, leased at the first call. Its transaction may still have to begin."""

    def append(self, topics: TopicColumn, columns: RecordColumns, partitions: Int32Array | None) -> None:
        """Rows, as for ``ProducerCore.append_columns``."""

    def append_own(self, topic: str, columns: RecordColumns) -> None:
        """The sink's own records: dead letters and receipts."""

    def count(self, topics: TopicColumn, columns: RecordColumns, partitions: Int32Array | None) -> None:
        """Adds rows to a replay's checksum that are written in another form, as dead letters."""

    def partition_count(self, topic: str) -> int:
        """Number of partitions; 0 in a replay, which writes nothing."""

    def keep_refused(self) -> tuple[RefusalReceipt, RefusalReceipt] | None:
        """Call it before the first row. Records that only a broker finds too large do not fail the write from here on,
        but can be taken from the receipts of the rows and of ``append_own`` as soon as they are refused, up to
        ``flush``. None: they fail it nevertheless, because they have failed its transaction.
        """

    def flush(self) -> None:
        """Waits until every record is acknowledged, or can be taken as refused."""
