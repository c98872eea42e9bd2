"""A program whose calls are interrupted (Ctrl-C) at random moments and which goes on, as a notebook does.

``python -m tests.faults.support.interrupted_program SERVERS PRODUCERS SEED`` prints one line of JSON: the rows of calls
that returned, those of interrupted calls, and the number of interrupts.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from itertools import count
from random import Random

import pyarrow as pa

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.producer.append.future_record_metadata import FutureRecordMetadata
from spark_kafka_sink.producer.append.receipt import SendReceipt

TOPIC = "interrupted"
CALLS = 40
DEADLINE_MS = 120_000.0


class Program:
    """Uses one producer. ``returned`` and ``interrupted``: rows by the end of their call."""

    def __init__(self, servers: str, random: Random, rows: Iterator[int]) -> None:
        compression = random.choice(["none", "lz4"])
        options = {"bootstrap.servers": servers, "linger.ms": random.choice([0, 5]), "compression.type": compression}
        self._producer = KafkaProducer({**options, "batch.size": random.choice([1_000, 16_384])})
        self._random = random
        self._rows = rows
        self._futures: list[FutureRecordMetadata] = []
        self._receipts: list[SendReceipt] = []
        self.returned: list[int] = []
        self.interrupted: list[int] = []
        self.interrupts = 0

    def run(self) -> None:
        calls = [self._send, self._send, self._send_columns, self._flush, self._look_up]
        for _ in range(CALLS):
            self._interrupted(self._random.choice(calls))
        self._producer.flush(DEADLINE_MS)
        for future in self._futures:
            future.result(0)
        for receipt in self._receipts:
            receipt.wait(0)
        held = self._producer.config.buffer_memory - self._producer._core.accumulator.pool.available
        assert held == 0, f"{held} bytes of buffer.memory are lost"
        self._interrupted(self._send)
        self._interrupted(self._close)
        self._producer.close(DEADLINE_MS)
        assert not self._producer._core.is_alive()
        for future in self._futures:
            future.result(0)

    def _interrupted(self, call: Callable[[], None]) -> None:
        try:
            signal.setitimer(signal.ITIMER_REAL, 10 ** self._random.uniform(-5, -2))
            call()
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            self.interrupts += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _send(self) -> None:
        """Records one by one, more of them than fit into the pending records of a topic."""
        for _ in range(self._random.choice([10, 3_000])):
            row = next(self._rows)
            self.interrupted.append(row)
            future = self._producer.send(ProducerRecord(TOPIC, b"%d %0200d" % (row, 0)))
            self._futures.append(future)
            self.returned.append(row)

    def _send_columns(self) -> None:
        rows = [next(self._rows) for _ in range(self._random.choice([1, 50, 2_000]))]
        self.interrupted += rows
        receipt = self._producer.send_columns(TOPIC, value=pa.array([b"%d %0200d" % (row, 0) for row in rows]))
        self._receipts.append(receipt)
        self.returned += rows

    def _flush(self) -> None:
        self._producer.flush(DEADLINE_MS)

    def _look_up(self) -> None:
        self._producer.partitions_for(TOPIC)
        self._producer._core.refreshed_partition_count(TOPIC)

    def _close(self) -> None:
        self._producer.close(DEADLINE_MS)


def main() -> None:
    servers, producers, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    random, rows = Random(seed), count()
    programs = [Program(servers, random, rows) for _ in range(producers)]
    for program in programs:
        program.run()
    returned = {row for program in programs for row in program.returned}
    told = {
        "returned": sorted(returned),
        "interrupted": sorted({row for program in programs for row in program.interrupted} - returned),
        "interrupts": sum(program.interrupts for program in programs),
    }
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main()
