"""A query that runs in a process of its own, on ``local[2,4]``, while a test changes what it logs in with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from confluent_kafka import Consumer, TopicPartition

from tests.contract.security.librdkafka import produce
from tests.support.child_processes import PYTHON_PATH
from tests.support.waiting import DEADLINE_S, eventually, holds_for

ROOT = Path(__file__).parents[2]
MASTER = "local[2,4]"
_DEADLINE_S = 200.0
_END = b"end"


class RunningStream:
    """Writes numbers, each once, to a topic of one partition. ``servers``: of a listener without a login.

    ``restarts``: how often the query failed and was started again from its checkpoint.
    """

    def __init__(self, folder: Path, servers: str, topic: str, options: Mapping[str, str]) -> None:
        self.restarts = 0
        self.written = 0
        self._folder = folder
        self._open = {"bootstrap.servers": servers}
        self._topic = topic
        self._options = {**options, "topic": topic}
        self._process: subprocess.Popen[bytes] | None = None
        self._found: Counter[bytes] = Counter()

    def __enter__(self) -> Self:
        (self._folder / "in").mkdir()
        self._log = (self._folder / "log").open("wb")
        settings = {"group.id": "reader", "enable.auto.commit": False, "isolation.level": "read_committed"}
        self._consumer = Consumer({**self._open, **settings})
        self._consumer.assign([TopicPartition(self._topic, 0, 0)])
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._log.close()

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")

    def add(self, count: int) -> None:
        """Numbers for two tasks."""
        for first in (self.written, self.written + count // 2):
            hidden = self._folder / "in" / f".{first}"
            hidden.write_text("".join(f"{number}\n" for number in range(first, first + count // 2)))
            hidden.rename(self._folder / "in" / f"{first}")
        self.written += count // 2 * 2

    def await_written(self) -> None:
        """Until all numbers so far can be read; starts the query again if it has failed."""

        def all_found() -> bool:
            self._read()
            self.go_on()
            return len(self._found) >= self.written

        try:
            eventually(all_found, "not everything is there", _DEADLINE_S)
        except AssertionError as error:
            raise AssertionError(f"{len(self._found)} of {self.written}: {error}\n{self.log[-5000:]}") from None

    def write_for(self, seconds: float, count: int = 40) -> None:
        """Micro-batches, one after the other."""

        def write() -> bool:
            self.add(count)
            self.await_written()
            return True

        holds_for(write, seconds)

    def go_on(self) -> None:
        """Starts the query again if it has failed."""
        if self._process is not None and self._process.poll() is not None:
            self.restarts += 1
            self._start()

    def finish(self) -> Counter[int]:
        """Stops the query. How often each number was written."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(DEADLINE_S) == 0, self.log[-5000:]
        produce(self._open, self._topic, [_END])
        eventually(lambda: self._read() or self._found[_END], "the last value does not come", _DEADLINE_S)
        del self._found[_END]
        return Counter({int(value): count for value, count in self._found.items()})

    def _read(self) -> None:
        for message in self._consumer.consume(1000, timeout=0.05):
            assert message.error() is None, message.error()
            self._found[message.value()] += 1

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(ROOT / "tests/spark/stream_job.py"), MASTER, str(self._folder)],
            env={**os.environ, "PYTHONPATH": PYTHON_PATH},
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(self._options).encode() + b"\n")
        self._process.stdin.flush()
