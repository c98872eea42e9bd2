"""A standalone Spark cluster, and a Spark Connect server, out of the pip-installed pyspark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self

import pyspark

from spark_kafka_sink.testing.child_processes import GuardedProcess, tail
from spark_kafka_sink.testing.kafka_node import free_ports
from tests.support.waiting import until

_HOME = Path(pyspark.__file__).parent
_DEPLOY = "org.apache.spark.deploy"


class StandaloneCluster:
    """One master and ``workers`` workers of ``cores`` on 127.0.0.1; they end with the block, or with this process."""

    def __init__(self, folder: Path, workers: int = 2, cores: int = 1) -> None:
        (self._port,) = free_ports(1)
        self.url = f"spark://127.0.0.1:{self._port}"
        self._folder = folder
        self._worker_count = workers
        self._cores = cores
        self._processes: list[GuardedProcess] = []

    def __enter__(self) -> Self:
        try:
            log = self._start("master.Master", "master", "--port", str(self._port))
            _await_line(log, "I have been elected leader")
            common = ("--cores", str(self._cores), "--memory", "2g", "--work-dir", str(self._folder / "work"), self.url)
            logs = [self._start("worker.Worker", f"worker-{n}", *common) for n in range(self._worker_count)]
            for log in logs:
                _await_line(log, "Successfully registered with master")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for process in reversed(self._processes):
            process.kill()

    def executors(self) -> int:
        """How many executors have run so far."""
        return len(list((self._folder / "work").glob("app-*/*")))

    def _start(self, main_class: str, name: str, *arguments: str) -> Path:
        log = self._folder / f"{name}.log"
        command = [str(_HOME / "bin" / "spark-class"), f"{_DEPLOY}.{main_class}", "--host", "127.0.0.1"]
        environment = {**os.environ, "SPARK_HOME": str(_HOME), "SPARK_DAEMON_MEMORY": "256m"}
        process = GuardedProcess([*command, "--webui-port", "0", *arguments], log=log, env=environment)
        self._processes.append(process)
        return log


class ConnectServer:
    """A Spark Connect server of ``master`` on 127.0.0.1; it ends with the block, or with this process."""

    def __init__(self, folder: Path, master: str = "local[2]") -> None:
        (self._port,) = free_ports(1)
        self.url = f"sc://127.0.0.1:{self._port}"
        self._folder = folder
        self._master = master

    def __enter__(self) -> Self:
        log = self._folder / "connect.log"
        settings = [f"spark.connect.grpc.binding.port={self._port}", "spark.ui.enabled=false"]
        command = [
            str(_HOME / "bin" / "spark-submit"), "--master", self._master,
            "--class", "org.apache.spark.sql.connect.service.SparkConnectServer",
            *(word for setting in settings for word in ("--conf", setting)), "spark-internal",
        ]  # fmt: skip
        environment = {**os.environ, "SPARK_HOME": str(_HOME)}
        self._process = GuardedProcess(command, log=log, cwd=self._folder, env=environment)
        try:
            _await_line(log, "Spark Connect server started")
        except BaseException:
            self._process.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()


def _await_line(log: Path, line: str) -> None:
    until(lambda: tail(log), lambda _: line in log.read_text(errors="replace"), f"no {line!r} in {log.name}")
