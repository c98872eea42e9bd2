"""Producers without Spark, one per child process: ``python -m benchmarks.clients CLIENT WORK-AS-JSON``.

Prints the measures as one line of JSON. Every client is warm before anything is timed: it has sent some records, knows
its topic and has its connections. All with acks=all and idempotent, the rest by their own defaults or ``options``.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import string
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from benchmarks.processes import peak_rss_mib

if TYPE_CHECKING:
    from spark_kafka_sink import KafkaProducer

VALUES = 10_000
VALUE_BYTES = 100
KEY_BYTES = 8
COLUMN_ROWS = 10_000
FLUSH_S = 60.0
BURSTS_PER_S = 1_000


@dataclass(frozen=True, slots=True)
class Work:
    """``rate``: records a second, for the latency of each; None: as many as go. ``keyed``: with keys of 8 bytes."""

    servers: str
    topic: str
    rows: int
    options: Mapping[str, str]
    rate: int | None = None
    keyed: bool = False

    @property
    def first_rows(self) -> int:
        """Records that are sent before the others and not timed."""
        return 1 if self.rate is not None else self.rows // 10

    def first_values(self) -> Iterator[bytes]:
        return itertools.islice(itertools.cycle(distinct_values()), self.first_rows)

    def values(self) -> Iterator[bytes]:
        return itertools.islice(itertools.cycle(distinct_values()), self.rows)

    def paced_values(self) -> Iterator[bytes]:
        """In a burst every millisecond."""
        assert self.rate is not None
        burst = self.rate // BURSTS_PER_S
        started = time.perf_counter()
        for number, value in enumerate(self.values()):
            if number % burst == 0 and (early := started + number / self.rate - time.perf_counter()) > 0:
                time.sleep(early)
            yield value


@cache
def distinct_values() -> list[bytes]:
    letters = random.Random(1)
    alphabet = string.ascii_letters + string.digits
    return ["".join(letters.choices(alphabet, k=VALUE_BYTES)).encode() for _ in range(VALUES)]


class Stopwatch:
    """Wall and CPU seconds of a ``with`` block."""

    def __enter__(self) -> Stopwatch:
        distinct_values()  # made before the time counts
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._wall
        self.cpu_s = time.process_time() - self._cpu

    def measures(self, rows: int) -> dict[str, float]:
        measures = {
            "seconds": self.seconds,
            "rows_per_s": rows / self.seconds,
            "client_us": self.cpu_s / rows * 1e6,
        }
        if (peak := peak_rss_mib(os.getpid())) is not None:
            measures["peak_rss_mib"] = peak
        return measures


def percentiles(latencies_s: list[float]) -> dict[str, float]:
    ordered = sorted(latencies_s)
    return {f"p{share}_ms": ordered[int(len(ordered) * share / 100)] * 1e3 for share in (50, 99)}


def ours(work: Work) -> dict[str, float]:
    from spark_kafka_sink import KafkaProducer, ProducerRecord, RecordMetadata

    with KafkaProducer({"bootstrap.servers": work.servers, **work.options}) as producer:
        _send(producer, work, work.first_values())
        if work.rate is None:
            with Stopwatch() as watch:
                _send(producer, work, work.values())
            return watch.measures(work.rows)
        latencies: list[float] = []
        with Stopwatch() as watch:
            for value in work.paced_values():

                def acknowledged(
                    metadata: RecordMetadata | None, error: Exception | None, sent: float = time.perf_counter()
                ) -> None:
                    latencies.append(time.perf_counter() - sent)

                producer.send(ProducerRecord(work.topic, value), acknowledged)
            producer.flush()
        return {**percentiles(latencies), "client_us": watch.measures(work.rows)["client_us"]}


def _send(producer: KafkaProducer, work: Work, values: Iterator[bytes]) -> None:
    from spark_kafka_sink import ProducerRecord

    topic, keyed = work.topic, work.keyed
    for value in values:
        producer.send(ProducerRecord(topic, value, key=value[:KEY_BYTES] if keyed else None))
    producer.flush()


def callbacks(work: Work) -> dict[str, float]:
    """A callback for each record."""
    from spark_kafka_sink import KafkaProducer, ProducerRecord

    settled = itertools.count()

    def told(*_: object) -> None:
        next(settled)

    with KafkaProducer({"bootstrap.servers": work.servers, **work.options}) as producer:

        def send(values: Iterator[bytes]) -> None:
            for value in values:
                key = value[:KEY_BYTES] if work.keyed else None
                producer.send(ProducerRecord(work.topic, value, key=key), told)
            producer.flush()

        send(work.first_values())
        with Stopwatch() as watch:
            send(work.values())
    if (count := next(settled)) != work.first_rows + work.rows:
        raise RuntimeError(f"{count} callbacks were called for {work.first_rows + work.rows} records")
    return watch.measures(work.rows)


def columns(work: Work) -> dict[str, float]:
    import pyarrow as pa

    from spark_kafka_sink import KafkaProducer

    values = work.values()
    batches = [pa.array(itertools.islice(values, COLUMN_ROWS), pa.binary()) for _ in range(work.rows // COLUMN_ROWS)]
    with KafkaProducer({"bootstrap.servers": work.servers, **work.options}) as producer:
        _send(producer, work, work.first_values())
        with Stopwatch() as watch:
            receipts = [producer.send_columns(work.topic, value=batch) for batch in batches]
            producer.flush()
            for receipt in receipts:
                receipt.wait(FLUSH_S * 1000)
    return watch.measures(work.rows)


def confluent(work: Work) -> dict[str, float]:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": work.servers, "enable.idempotence": "true", **work.options})
    topic, keyed = work.topic, work.keyed

    def send(values: Iterator[bytes]) -> None:
        for value in values:
            while True:
                try:
                    producer.produce(topic, value, key=value[:KEY_BYTES] if keyed else None)
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.flush(FLUSH_S)

    send(work.first_values())
    if work.rate is None:
        with Stopwatch() as watch:
            send(work.values())
        return watch.measures(work.rows)
    latencies: list[float] = []
    sending = threading.Event()
    sending.set()

    def poll() -> None:
        while sending.is_set():
            producer.poll(0.1)

    polling = threading.Thread(target=poll)
    polling.start()
    with Stopwatch() as watch:
        for value in work.paced_values():

            def acknowledged(error: object, message: object, sent: float = time.perf_counter()) -> None:
                latencies.append(time.perf_counter() - sent)

            producer.produce(work.topic, value, on_delivery=acknowledged)
        producer.flush(FLUSH_S)
    sending.clear()
    polling.join()
    return {**percentiles(latencies), "client_us": watch.measures(work.rows)["client_us"]}


def kafka_python(work: Work) -> dict[str, float]:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=work.servers, acks="all", enable_idempotence=True)

    def send(values: Iterator[bytes]) -> None:
        for value in values:
            producer.send(work.topic, value)
        producer.flush(FLUSH_S)

    send(work.first_values())
    with Stopwatch() as watch:
        send(work.values())
    producer.close()
    return watch.measures(work.rows)


def aiokafka(work: Work) -> dict[str, float]:
    import asyncio

    from aiokafka import AIOKafkaProducer

    async def produce() -> dict[str, float]:
        producer = AIOKafkaProducer(bootstrap_servers=work.servers, acks="all", enable_idempotence=True)
        await producer.start()

        async def send(values: Iterator[bytes]) -> None:
            for value in values:
                await producer.send(work.topic, value)
            await producer.flush()

        await send(work.first_values())
        with Stopwatch() as watch:
            await send(work.values())
        await producer.stop()
        return watch.measures(work.rows)

    return asyncio.run(produce())


CLIENTS: Mapping[str, Callable[[Work], dict[str, float]]] = {
    "ours": ours,
    "callbacks": callbacks,
    "columns": columns,
    "confluent": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}

if __name__ == "__main__":
    print(json.dumps(CLIENTS[sys.argv[1]](Work(**json.loads(sys.argv[2])))))
