"""Apache Kafka's own jars, fetched once from Maven Central by the Ivy inside PySpark's jars."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import logging
import os
import re
import shutil
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.testing.child_processes import GuardedProcess, tail
from spark_kafka_sink.testing.java import find_java

CACHE_VARIABLE = "SPARK_KAFKA_SINK_CACHE"
FETCH_DEADLINE_S = 600.0
_ATTEMPTS = 3

# slf4j needs a logger, which Kafka does not bring: without it a broker that cannot start logs nothing. The tools
# without their dependencies (Connect and its web server): DumpLogSegments, which moved there in 4.3, needs none of it.
_IVY_MODULE = """<ivy-module version="2.0">
  <info organisation="spark-kafka-sink" module="local-kafka"/>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{version}" conf="default"/>
    <dependency org="org.apache.kafka" name="kafka-tools" rev="{version}" conf="default" transitive="false"/>
    <dependency org="org.slf4j" name="slf4j-simple" rev="1.7.36" conf="default"/>
  </dependencies>
</ivy-module>
"""
_ESSENTIAL_JARS = ("kafka_2.13-{version}.jar", "kafka-clients-{version}.jar", "kafka-tools-{version}.jar")

logger = logging.getLogger(__name__)


class KafkaJarsError(KafkaError):
    """Kafka's jars could not be fetched, or the cache is incomplete."""


def cache_folder() -> Path:
    """``$SPARK_KAFKA_SINK_CACHE``, else ``$XDG_CACHE_HOME/spark-kafka-sink``, else ``~/.cache/spark-kafka-sink``."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "spark-kafka-sink")


def kafka_jars(version: str) -> Path:
    """Folder ``kafka-<version>`` of the cache with all jars of that broker; fetches them (43 MB) the first time.

    The folder gets its name only when it is complete. Only one process fetches at a time. Offline, fill it with
    the ``libs`` of Kafka's own distribution.
    """
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise KafkaJarsError(f"Kafka version {version!r} is not of the form 4.1.1.")
    folder = cache_folder() / f"kafka-{version}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder.with_suffix(folder.suffix + ".lock")):
            if not folder.is_dir():
                _fetch(version, folder)
    missing = _missing(version, folder)
    if missing:
        raise KafkaJarsError(f"{folder} lacks {', '.join(missing)}. Remove the folder to have it fetched again.")
    return folder


def _fetch(version: str, folder: Path) -> None:
    for left_over in folder.parent.glob(f".{folder.name}-*"):  # of a process killed while it fetched
        shutil.rmtree(left_over, ignore_errors=True)
    logger.info("Fetching Apache Kafka %s (43 MB, only this once) into %s", version, folder)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
        jars = Path(scratch, "jars")
        jars.mkdir()
        _run_ivy(version, Path(scratch))
        broken = [jar.name for jar in jars.iterdir() if not _is_whole(jar)]
        if broken or _missing(version, jars):
            raise KafkaJarsError(f"Apache Kafka {version} did not arrive whole: {broken or _missing(version, jars)}")
        jars.rename(folder)


def _run_ivy(version: str, scratch: Path) -> None:
    module = scratch / "ivy.xml"
    module.write_text(_IVY_MODULE.format(version=version))
    command = [
        str(find_java()), "-cp", str(_ivy_jar()), "org.apache.ivy.Main",
        "-ivy", str(module), "-cache", str(scratch / "ivy"), "-confs", "default", "-types", "jar", "bundle",
        "-retrieve", f"{scratch / 'jars'}/[artifact]-[revision].[ext]",
    ]  # fmt: skip
    log = scratch / "ivy.log"
    # Ivy's cache keeps the files of one attempt for the next.
    for _ in range(_ATTEMPTS):
        if GuardedProcess(command, log=log).wait(FETCH_DEADLINE_S) == 0:
            return
    raise KafkaJarsError(f"Apache Kafka {version} could not be fetched from Maven Central:\n{tail(log)}")


def _ivy_jar() -> Path:
    # The folder of the package, without the second that importing it takes.
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise KafkaJarsError("The Ivy that fetches Kafka is in PySpark: pip install 'spark-kafka-sink[spark]'")
    found = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar"))
    if not found:
        raise KafkaJarsError(f"No Ivy in {Path(spec.origin).parent / 'jars'}: is this a pip-installed PySpark?")
    return found[-1]


def _missing(version: str, folder: Path) -> list[str]:
    return [name for jar in _ESSENTIAL_JARS if not (folder / (name := jar.format(version=version))).is_file()]


def _is_whole(jar: Path) -> bool:
    try:
        with zipfile.ZipFile(jar) as archive:
            return archive.testzip() is None
    except (OSError, zipfile.BadZipFile):
        return False


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Held by one process at a time; the kernel releases it when that process dies."""
    deadline = time.monotonic() + FETCH_DEADLINE_S
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise KafkaJarsError(f"Another process has held {path} for {FETCH_DEADLINE_S:.0f} s.") from None
                time.sleep(0.2)
        yield
