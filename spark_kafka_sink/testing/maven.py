"""Files of Maven Central, fetched by the Ivy inside PySpark's jars into the user's cache."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import logging
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from spark_kafka_sink.testing.child_processes import GuardedProcess, WithLogError, tail
from spark_kafka_sink.testing.java import find_java

CACHE_VARIABLE = "SPARK_KAFKA_SINK_CACHE"
FETCH_DEADLINE_S = 600.0
_ATTEMPTS = 3
_LOOK_S = 0.2

logger = logging.getLogger(__name__)


class FetchError(WithLogError):
    """Files could not be fetched, or the cache is incomplete."""

    escapes = False


class IvyModule(NamedTuple):
    """A module for Ivy to fetch. ``name``, ``about_mb`` (the expected size, 0 if unknown): for messages. ``module``:
    Ivy's XML with the dependencies. ``settings``: Ivy's settings in XML, "" for its defaults.
    """

    name: str
    module: str
    types: Sequence[str]
    settings: str = ""
    about_mb: int = 0


def cache_folder() -> Path:
    """The cache: ``$SPARK_KAFKA_SINK_CACHE``, or ``$XDG_CACHE_HOME/spark-kafka-sink``, or
    ``~/.cache/spark-kafka-sink``."""
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
        for left_over in folder.parent.glob(f".{folder.name}-*"):  # left by a process that was killed while it fetched
            shutil.rmtree(left_over, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
            yield Path(scratch)


def fetch(module: IvyModule, scratch: Path) -> Path:
    """The folder ``scratch/files`` with all files of the module. Raises ``FetchError``.

    Files that have arrived are kept until all have, so that after a failure the next fetch needs only the others. Ivy
    compares each with Maven Central's checksum.
    """
    size = f" (about {module.about_mb} MB)" if module.about_mb else ""
    _say(f"Fetching {module.name}{size} from Maven Central, only this once, into {scratch.parent}")
    files, log = scratch / "files", scratch / "ivy.log"
    arrived = scratch.parent / f".ivy-{re.sub('[^A-Za-z0-9.]+', '-', module.name)}"
    files.mkdir()
    (scratch / "ivy.xml").write_text(module.module)
    (scratch / "settings.xml").write_text(module.settings)
    command = [
        str(find_java()), "-cp", str(_ivy_jar()), "org.apache.ivy.Main",
        *(["-settings", str(scratch / "settings.xml")] if module.settings else []),
        "-ivy", str(scratch / "ivy.xml"), "-cache", str(arrived), "-confs", "default",
        "-types", *module.types, "-retrieve", f"{files}/[artifact]-[revision].[ext]",
    ]  # fmt: skip
    for _ in range(_ATTEMPTS):
        if _ended_well(GuardedProcess(command, log=log)):
            _say(f"Fetched {module.name}")
            shutil.rmtree(arrived, ignore_errors=True)
            return files
    raise FetchError(
        f"{module.name} could not be fetched from Maven Central. The next start fetches only the files that have not "
        f"arrived.\nIvy, which fetches them, said:\n{tail(log)}"
    )


def _say(text: str) -> None:
    """Logs the line, or shows it on stderr where no logging is configured: the download takes a minute."""
    if logger.hasHandlers():
        logger.info("%s", text)
    else:
        sys.stderr.write(f"{text}\n")


def _ended_well(ivy: GuardedProcess) -> bool:
    deadline = time.monotonic() + FETCH_DEADLINE_S
    try:
        while (code := ivy.poll()) is None:
            if time.monotonic() > deadline:
                raise FetchError(f"The download took longer than {FETCH_DEADLINE_S:.0f} s. The next start goes on.")
            time.sleep(_LOOK_S)
    finally:
        ivy.stop()  # even after Ctrl-C
    return code == 0


def _ivy_jar() -> Path:
    # The folder of the package, without the second that importing it takes.
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise FetchError("The Ivy that fetches files is in PySpark: pip install 'pyspark>=3.5'")
    found = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar"))
    if not found:
        raise FetchError(f"No Ivy in {Path(spec.origin).parent / 'jars'}: is this a pip-installed PySpark?")
    return found[-1]


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """A lock that one process holds at a time. The kernel releases it when the process dies."""
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
