"""Files of Maven Central, fetched by the Ivy inside PySpark's jars into the user's cache."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.testing.child_processes import GuardedProcess, tail
from spark_kafka_sink.testing.java import find_java

CACHE_VARIABLE = "SPARK_KAFKA_SINK_CACHE"
FETCH_DEADLINE_S = 600.0
_ATTEMPTS = 3

logger = logging.getLogger(__name__)


class FetchError(KafkaError):
    """Files could not be fetched, or the cache is incomplete."""


class IvyModule(NamedTuple):
    """``name``: for messages. ``module``: Ivy's XML with the dependencies. ``settings``: XML, "" for Ivy's own."""

    name: str
    module: str
    types: Sequence[str]
    settings: str = ""


def cache_folder() -> Path:
    """``$SPARK_KAFKA_SINK_CACHE``, else ``$XDG_CACHE_HOME/spark-kafka-sink``, else ``~/.cache/spark-kafka-sink``."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "spark-kafka-sink")


@contextlib.contextmanager
def filling(folder: Path) -> Iterator[Path | None]:
    """A scratch folder beside ``folder``, which the caller fills and renames to it; None when it is there already.

    Only one process fills it at a time.
    """
    if folder.is_dir():
        yield None
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _lock(folder.with_suffix(folder.suffix + ".lock")):
        if folder.is_dir():
            yield None
            return
        for left_over in folder.parent.glob(f".{folder.name}-*"):  # of a process killed while it fetched
            shutil.rmtree(left_over, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
            yield Path(scratch)


def fetch(module: IvyModule, scratch: Path) -> Path:
    """The folder ``scratch/files`` with all files of the module. Raises ``FetchError``."""
    logger.info("Fetching %s, only this once, into %s", module.name, scratch.parent)
    files, log = scratch / "files", scratch / "ivy.log"
    files.mkdir()
    (scratch / "ivy.xml").write_text(module.module)
    (scratch / "settings.xml").write_text(module.settings)
    command = [
        str(find_java()), "-cp", str(_ivy_jar()), "org.apache.ivy.Main",
        *(["-settings", str(scratch / "settings.xml")] if module.settings else []),
        "-ivy", str(scratch / "ivy.xml"), "-cache", str(scratch / "ivy"), "-confs", "default",
        "-types", *module.types, "-retrieve", f"{files}/[artifact]-[revision].[ext]",
    ]  # fmt: skip
    # Ivy's cache keeps the files of one attempt for the next.
    for _ in range(_ATTEMPTS):
        if GuardedProcess(command, log=log).wait(FETCH_DEADLINE_S) == 0:
            return files
    raise FetchError(f"{module.name} could not be fetched from Maven Central:\n{tail(log)}")


def _ivy_jar() -> Path:
    # The folder of the package, without the second that importing it takes.
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise FetchError("The Ivy that fetches files is in PySpark: pip install 'spark-kafka-sink[spark]'")
    found = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar"))
    if not found:
        raise FetchError(f"No Ivy in {Path(spec.origin).parent / 'jars'}: is this a pip-installed PySpark?")
    return found[-1]


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Held by one process at a time; the kernel releases it when that process dies."""
    deadline = time.monotonic() + FETCH_DEADLINE_S
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise FetchError(f"Another process has held {path} for {FETCH_DEADLINE_S:.0f} s.") from None
                time.sleep(0.2)
        yield
