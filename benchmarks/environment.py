"""On what the figures were made."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from benchmarks.spark_jars import AVRO_JAR, SINK_JARS
from spark_kafka_sink.testing.java import find_java, java_version
from spark_kafka_sink.testing.local_kafka import DEFAULT_VERSION

PACKAGES = (
    "pyspark", "pyarrow", "numpy", "kio", "crc32c", "lz4", "zstandard", "cramjam",
    "confluent-kafka", "kafka-python", "aiokafka", "fastavro", "protobuf",
)  # fmt: skip


def environment() -> dict[str, str]:
    """Machine, versions, commit (``+``: with changes to the code), and how busy the machine was."""
    return {
        "commit": _commit(),
        "machine": f"{_cpu_model()}, {os.cpu_count()} cores, {psutil.virtual_memory().total / 2**30:.0f} GiB",
        "load": f"{os.getloadavg()[0]:.1f}",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": str(java_version(find_java())),
        "kafka broker": DEFAULT_VERSION,
        **{name: revision for _, name, revision in (*SINK_JARS, AVRO_JAR)},
        **{name: _version(name) for name in PACKAGES},
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    names = (
        [line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        if info.exists()
        else []
    )
    return names[0] if names else platform.processor() or platform.machine()


def _commit() -> str:
    def git(*arguments: str) -> str:
        folder = Path(__file__).parent
        return subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, check=False
        ).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "../spark_kafka_sink", "*.py")
    return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")
