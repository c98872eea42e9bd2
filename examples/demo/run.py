"""Runs the demo, step by step."""

from __future__ import annotations

import logging
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pyspark
from confluent_kafka import KafkaException

from examples.demo import flights as demo_flights
from examples.demo import spark as demo_spark
from examples.demo.check import TopicCheck, Topics
from examples.demo.flights import KEY, ROWS, WITHOUT_TAIL_NUMBER, Flights
from examples.demo.librdkafka import librdkafka_options
from examples.demo.report import Report, repeated
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.testing.local_kafka import DEFAULT_VERSION, LocalKafka
from spark_kafka_sink.testing.maven import cache_folder

PARTITIONS = 4
_NOTHING: Final[Mapping[str, object]] = MappingProxyType({})
_WATCH_S = 0.2
_SPEED = "rows/s: the whole job by the clock, reading CSV and starting Python included"


class Demo:
    """``broker`` None: starts a Kafka. ``keep``: keeps the topics ``<prefix>-…`` on the given broker.

    ``options``: of the clients of the given broker, by Kafka's names.
    """

    def __init__(self, broker: str | None, prefix: str, keep: bool, options: Mapping[str, object] = _NOTHING) -> None:
        self._broker = broker
        self._batch, self._stream, self._keys = (f"{prefix}-{name}" for name in ("batch", "stream", "keys"))
        self._keep = keep
        self._options = options
        self._report = Report()
        self._titles: dict[str, str] = {}

    def run(self) -> int:
        """Exit code: 0 if every record is right, else 1."""
        began = time.monotonic()
        logging.getLogger("spark_kafka_sink").setLevel(logging.WARNING)  # the steps show it
        logging.getLogger("py4j").setLevel(logging.CRITICAL)  # on Ctrl-C it logs each call
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="demo-", ignore_cleanup_errors=True)))
            servers = self._broker or stack.enter_context(self._kafka())
            config = ProducerConfig.parse({**self._options, "bootstrap.servers": servers})
            topics = Topics(librdkafka_options(config), PARTITIONS)
            keep = self._keep or self._broker is None  # its own Kafka is removed with its topics
            stack.enter_context(topics.created(self._batch, self._stream, self._keys, keep=keep))
            with self._report.step("flights.csv.zip") as step:
                flights = demo_flights.unpack(folder / "flights")
                step.detail(f"{ROWS:,} rows, {WITHOUT_TAIL_NUMBER:,} without {KEY}")
            self._write(folder, flights, servers, topics)
            checks = self._check(flights, topics)
            for check in checks:
                self._report.topic(check, f"{check.topic}: {self._titles[check.topic]}")
            self._report.note(_SPEED)
            self._report.samples(checks[0])
        return self._conclude(checks, time.monotonic() - began)

    @contextmanager
    def _kafka(self) -> Iterator[str]:
        with ExitStack() as stack:
            with self._report.step(f"Apache Kafka {DEFAULT_VERSION}") as step:
                if not (cache_folder() / f"kafka-{DEFAULT_VERSION}").is_dir():
                    step.detail("fetching 45 MB, only this once")
                kafka = stack.enter_context(LocalKafka())
                step.detail(f"one KRaft node, {kafka.bootstrap_servers}")
            yield kafka.bootstrap_servers

    def _write(self, folder: Path, flights: Flights, servers: str, topics: Topics) -> None:
        given = {**self._options, "bootstrap.servers": servers}
        options = {f"kafka.{name}": str(value) for name, value in given.items()}
        with ExitStack() as stack:
            with self._report.step(f"Spark {pyspark.__version__}") as step:
                spark = stack.enter_context(demo_spark.local_spark(folder))
                step.detail(f"{spark.sparkContext.master}, {spark.sparkContext.defaultParallelism} cores")
            with self._writing("batch job", self._batch, topics):
                demo_spark.write_batch(spark, flights.folder, options, self._batch)
            with self._writing("streaming query", self._stream, topics):
                checkpoint = folder / "checkpoint"
                batches = demo_spark.write_stream(spark, flights.folder, options, self._stream, checkpoint)
        self._titles[self._stream] += f", {len(batches)} micro-batches"

    @contextmanager
    def _writing(self, kind: str, topic: str, topics: Topics) -> Iterator[None]:
        """The bar shows the topic's end offsets, as another client reads them."""
        with self._report.step(kind, ROWS) as step:

            def show() -> None:
                with suppress(KafkaException):  # shown next time
                    step.advance_to(acknowledged := topics.acknowledged(topic))
                    step.detail(f"{acknowledged:,} rows")

            with repeated(show, _WATCH_S):
                yield
                step.stop_clock()
            speed = f"{ROWS / step.seconds:,.0f} rows/s"
            acknowledged = topics.acknowledged(topic)
            step.advance_to(acknowledged)
            step.detail(f"{acknowledged:,} rows, {speed}")
        self._titles[topic] = f"{kind}, {speed}"

    def _check(self, flights: Flights, topics: Topics) -> list[TopicCheck]:
        keys = flights.keys
        with self._report.step("partitioner") as step:
            places = topics.partitions_of(self._keys, keys)
            step.detail(f"librdkafka placed {len(keys):,} keys")
        with self._report.step("reading back", 2 * ROWS) as step:
            written = (self._batch, self._stream)
            checks = [topics.check(topic, flights.records, places, step.advance) for topic in written]
            step.detail(f"{sum(check.records for check in checks):,} records compared")
        return checks

    def _conclude(self, checks: list[TopicCheck], seconds: float) -> int:
        self._report.blank()
        for check in checks:
            for fault in check.faults():
                self._report.failed(fault)
            if not check.faults():
                keyed = check.records - check.without_key
                self._report.passed(
                    f"{check.topic}: each of {ROWS:,} rows is there once, none twice,",
                    f"{keyed:,} keyed ones on the partition librdkafka's murmur2 chooses",
                )
        self._report.note(f"{seconds:.1f} s in all. {self._left()}")
        return 1 if any(check.faults() for check in checks) else 0

    def _left(self) -> str:
        if self._broker is None:
            return "Kafka and Spark have ended, their files are removed."
        topics = f"topics {self._batch}, {self._stream} and {self._keys}"
        return f"Spark has ended, the {topics} {'stay' if self._keep else 'are removed'}."
