"""The driver of the producer's transactions: ``python transfers.py WORKLOAD SETTINGS``, without Spark.

Each number is one transaction, which no other driver repeats. Every fifth one is aborted. An error before the commit is
asked for aborts as well; one of the commit itself leaves open what became of it, and ends the process.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import defaultdict
from pathlib import Path

from spark_kafka_sink import KafkaProducer, ProducerRecord
from tests.soak.drivers import print_failure
from tests.soak.events import Recorder, recorder_of_environment
from tests.soak.processes import START
from tests.soak.workloads import ROWS, STOP_FILE

_APART_S = 1.0
_ABORTED = 5
_OPTIONS = {
    "request.timeout.ms": 6_000,
    "delivery.timeout.ms": 30_000,
    "max.block.ms": 30_000,
    "transaction.timeout.ms": 60_000,
}


class AbortedError(Exception):
    """The transaction was to be aborted."""


class Transfer:
    """One transaction, and what the history says of it."""

    def __init__(self, producer: KafkaProducer, record: Recorder, workload: str, number: int) -> None:
        start = os.environ[START]
        self._producer, self._record = producer, record
        self._write = f"{workload}/{number}"
        self._of_run = {"start": start, "entry": self._write}
        self._of_task = {"write": self._write, "task": 0, "attempt": f"{start}-{number}"}
        self._transaction = [workload, int(start), number]
        self._number = number

    def run(self) -> None:
        self._record("began", write=self._write, start=self._of_run["start"])
        self._producer.begin_transaction()
        try:
            self._send()
        except Exception as error:
            self._producer.abort_transaction()
            self._record("end", transaction=self._transaction, commit=False, outcome="aborted")
            self._tell("failed", f"{error}; the transaction was aborted")
            return
        self._commit()

    def _send(self) -> None:
        rows = [f"{self._write}/{row}" for row in range(ROWS)]
        self._record("handed", **self._of_task, rows=rows)
        records = [ProducerRecord("transfers", key=row.encode(), value=row.rsplit("/")[-1].encode()) for row in rows]
        futures = [self._producer.send(record) for record in records]
        self._producer.flush()
        offsets: dict[int, list[int]] = defaultdict(list)
        for future in futures:
            metadata = future.result()
            offsets[metadata.partition].append(metadata.offset)
        places = [["transfers", partition, min(each), max(each), len(each)] for partition, each in offsets.items()]
        self._record("reported", **self._of_task, entry=self._write, transaction=self._transaction, places=places)
        if self._number % _ABORTED == 0:
            raise AbortedError("this was its end")

    def _commit(self) -> None:
        intent = {**self._of_run, "transactions": [self._transaction]}
        self._record("intent", **intent, outcome="asked")
        try:
            self._producer.commit_transaction()
        except Exception:
            self._record("intent", **intent, outcome="unknown")
            raise
        self._record("intent", **intent, outcome="decided")
        self._record("end", transaction=self._transaction, commit=True, outcome="committed")
        self._tell("committed", "")

    def _tell(self, outcome: str, error: str) -> None:
        start = self._of_run["start"]
        self._record("verdict", write=self._write, start=start, by="job", outcome=outcome, error=error)


def claimed(folder: Path) -> int:
    """The next number, which no other driver gets, though another one of this workload may be alive."""
    folder.mkdir(exist_ok=True)
    number = 1 + max((int(file.name) for file in folder.iterdir()), default=0)
    (folder / str(number)).touch(exist_ok=False)
    return number


def main(workload: str, settings: str) -> None:
    given = json.loads(settings)
    folder = Path(given["folder"])
    record = recorder_of_environment()
    config = {"bootstrap.servers": given["servers"], "transactional.id": f"{workload}-0", **_OPTIONS}
    try:
        with KafkaProducer(config) as producer:
            producer.init_transactions()
            while not (folder / STOP_FILE).exists():
                Transfer(producer, record, workload, claimed(folder / "claimed")).run()
                time.sleep(_APART_S)
    except Exception as error:
        print_failure(error)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main(*sys.argv[1:])
