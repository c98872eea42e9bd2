"""A real schema registry on this machine for the duration of a ``with`` block: Apicurio, needs Java 17."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
import urllib.request
from http.client import HTTPException
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from spark_kafka_sink.testing.apicurio import VERSION, apicurio_runner
from spark_kafka_sink.testing.child_processes import GuardedProcess, WithLogError, tail
from spark_kafka_sink.testing.java import find_java
from spark_kafka_sink.testing.kafka_node import HOST, free_ports, is_free

DEADLINE_S: Final = 120.0
_POLL_S: Final = 0.1

_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class LocalSchemaRegistryError(WithLogError):
    """The local registry failed; the message ends with its log."""

    escapes = False


class LocalSchemaRegistry:
    """A real schema registry. Starts on ``__enter__`` (about 15 s), and on ``__exit__`` ends its process and removes
    its files.

    Processes and files are removed even after kill -9 of this process. ``url`` has Confluent's API, on 127.0.0.1 at a
    free port, or at ``port``. Schemas survive ``kill`` and ``stop``. It has no GUIDs, and no compatibility level until
    one is set (``PUT /config/<subject>``). Apicurio Registry is fetched once.

    Methods raise ``LocalSchemaRegistryError``. For one thread at a time.
    """

    def __init__(self, port: int | None = None) -> None:
        self._port = port
        self._process: GuardedProcess | None = None
        self._owner = os.getpid()

    def __enter__(self) -> Self:
        if self._port is None:
            (self._port,) = free_ports(1)
        elif not is_free(self._port):
            raise LocalSchemaRegistryError(f"Port {self._port} is in use; choose another one.")
        self._java = find_java()
        self._runner = apicurio_runner()
        self.folder = Path(tempfile.mkdtemp(prefix="local-schema-registry-"))
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Kills the registry and removes its data. A second call, or one in a fork, does nothing."""
        if os.getpid() != self._owner:
            return
        if self._process is not None:
            self._process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def url(self) -> str:
        """The URL for ``schema.registry.url``."""
        return f"http://{HOST}:{self._port}/apis/ccompat/v7"

    def alive(self) -> bool:
        """Whether the process exists. A paused process does."""
        return self._process is not None and self._process.poll() is None

    def log_tail(self) -> str:
        """The last lines that the registry logged."""
        return tail(self._log)

    def kill(self) -> None:
        """SIGKILL."""
        self._running().kill()

    def stop(self) -> None:
        """Stops the registry by SIGTERM, and by SIGKILL after 30 s."""
        self._running().stop(30.0)

    def pause(self) -> None:
        """SIGSTOP: connections stay open without responses."""
        self._running().pause()

    def resume(self) -> None:
        """SIGCONT after ``pause``."""
        self._running().send_signal(signal.SIGCONT)

    def start(self) -> None:
        """Starts a killed or stopped registry on its old port and data; returns when it responds."""
        if self.alive():
            raise LocalSchemaRegistryError("The registry is running.")
        environment = {
            **os.environ,
            "QUARKUS_HTTP_HOST": HOST,
            "QUARKUS_HTTP_PORT": str(self._port),
            "APICURIO_DATASOURCE_URL": f"jdbc:h2:file:{self.folder / 'schemas'};WRITE_DELAY=0",
        }
        command = [str(self._java), "-Xmx512m", "-XX:TieredStopAtLevel=1", "-jar", str(self._runner)]
        self._process = GuardedProcess(command, log=self._log, env=environment, cwd=self.folder, scratch=self.folder)
        self._await_ready()

    def _await_ready(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not self._responds():
            if not self.alive():
                raise LocalSchemaRegistryError(f"Apicurio Registry {VERSION} ended at once:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise LocalSchemaRegistryError(
                    f"Waited {DEADLINE_S:.0f} s in vain until {self.url} responds:\n{self.log_tail()}"
                )
            time.sleep(_POLL_S)

    def _responds(self) -> bool:
        try:
            with _direct.open(f"{self.url}/subjects", timeout=5.0) as response:
                return bool(response.status == 200)
        except (OSError, HTTPException):
            return False

    @property
    def _log(self) -> Path:
        return self.folder / "log"

    def _running(self) -> GuardedProcess:
        if self._process is None or self._process.poll() is not None:
            raise LocalSchemaRegistryError("The registry is not running.")
        return self._process
