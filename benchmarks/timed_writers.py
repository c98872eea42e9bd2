"""``format("timed")`` and ``format("timed-nothing")``: the sink and a writer that does nothing, which note when each of
their calls begins and ends, and each request, in files of the folder that ``BENCHMARK_TIMELINE`` names.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.nothing import NothingDataSource, NothingStreamWriter
from benchmarks.timeline import COMMIT, PLAN, WRITE, Span
from spark_kafka_sink.spark.sink_write import KafkaStreamWriter
from spark_kafka_sink.spark.source import KafkaDataSource

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

    from spark_kafka_sink.network.client import NetworkClient
    from spark_kafka_sink.network.messages import Request, Response

FOLDER = "BENCHMARK_TIMELINE"


@contextlib.contextmanager
def _spanned(what: str) -> Iterator[None]:
    begin = time.time()
    try:
        yield
    finally:
        _note(what, begin, time.time())


def _note(what: str, begin: float, end: float) -> None:
    from pyspark import TaskContext

    task = TaskContext.get()
    span = Span(what, -1 if task is None else task.partitionId(), begin * 1000, end * 1000)
    with Path(os.environ[FOLDER], str(os.getpid())).open("a") as file:
        file.write(json.dumps(span) + "\n")


class TimedStreamWriter(KafkaStreamWriter):
    def begin(self) -> None:
        _watch_requests()
        with _spanned(PLAN):
            super().begin()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
        _watch_requests()
        with _spanned(WRITE):
            return super().write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        _watch_requests()
        with _spanned(COMMIT):
            super().commit(messages, batchId)


class TimedDataSource(KafkaDataSource):
    @classmethod
    def name(cls) -> str:
        return "timed"

    def streamWriter(self, schema: StructType, overwrite: bool) -> KafkaStreamWriter:  # noqa: N802 (Spark's name)
        return TimedStreamWriter.of(schema, self.options)


class TimedNothingWriter(NothingStreamWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with _spanned(WRITE):
            return super().write(iterator)


class TimedNothing(NothingDataSource):
    @classmethod
    def name(cls) -> str:
        return "timed-nothing"

    def streamWriter(self, schema: StructType, overwrite: bool) -> NothingStreamWriter:  # noqa: N802 (Spark's name)
        return TimedNothingWriter()


def _watch_requests() -> None:
    """Notes each request of this process, from when it is sent until its response is handled."""
    from spark_kafka_sink.network import client, messages

    send = client.NetworkClient.send
    if hasattr(send, "watched"):
        return

    def watched(self: NetworkClient, node_id: int, request: Request, now: float) -> None:
        begin, complete = time.time(), request.on_complete

        def completed(response: Response) -> None:
            _note(messages.api_name(request.api_key), begin, time.time())
            complete(response)

        request.on_complete = completed
        send(self, node_id, request, now)

    watched.watched = True  # type: ignore[attr-defined]
    client.NetworkClient.send = watched  # type: ignore[method-assign]
