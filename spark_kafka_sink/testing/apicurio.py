"""Apicurio Registry, fetched once from Maven Central and checked against its SHA-256."""

from __future__ import annotations

import hashlib
import logging
import shutil
import tarfile
import tempfile
import urllib.request
from pathlib import Path
from types import MappingProxyType
from typing import Final

from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.testing.kafka_jars import cache_folder, locked

_ADDRESS: Final = "https://repo1.maven.org/maven2/io/apicurio/apicurio-registry-app/{version}/{name}"
_ARCHIVE: Final = "apicurio-registry-app-{version}-all.tar.gz"
_RUNNER: Final = "apicurio-registry-app-{version}-runner.jar"
_SHA_256: Final = MappingProxyType({"3.0.9": "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43"})
_ATTEMPTS: Final = 3
_TIMEOUT_S: Final = 60.0

logger = logging.getLogger(__name__)


class ApicurioError(KafkaError):
    """Apicurio Registry could not be fetched, or the cache is incomplete."""


def apicurio_runner(version: str) -> Path:
    """The jar to start, beside its libraries in ``apicurio-registry-<version>`` of the cache (109 MB).

    The folder gets its name only when it is complete. Only one process fetches at a time. Offline, fill it with the
    content of the archive.
    """
    if version not in _SHA_256:
        raise ApicurioError(f"Apicurio Registry {version} is unknown; write one of {', '.join(_SHA_256)}.")
    folder = cache_folder() / f"apicurio-registry-{version}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder.with_suffix(folder.suffix + ".lock")):
            if not folder.is_dir():
                _fetch(version, folder)
    runner = folder / _RUNNER.format(version=version)
    if not runner.is_file():
        raise ApicurioError(f"{folder} lacks {runner.name}. Remove the folder to have it fetched again.")
    return runner


def _fetch(version: str, folder: Path) -> None:
    for left_over in folder.parent.glob(f".{folder.name}-*"):  # of a process killed while it fetched
        shutil.rmtree(left_over, ignore_errors=True)
    logger.info("Fetching Apicurio Registry %s (109 MB, only this once) into %s", version, folder)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
        archive, content = Path(scratch, "archive"), Path(scratch, "content")
        _download(version, archive)
        with tarfile.open(archive) as members:
            members.extractall(content, filter="data")
        content.rename(folder)


def _download(version: str, archive: Path) -> None:
    address = _ADDRESS.format(version=version, name=_ARCHIVE.format(version=version))
    problem = ""
    for _ in range(_ATTEMPTS):
        try:
            with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as response, archive.open("wb") as file:
                shutil.copyfileobj(response, file)
        except OSError as error:
            problem = str(error)
            continue
        with archive.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() == _SHA_256[version]:
                return
        problem = "what arrived has another SHA-256"
    raise ApicurioError(f"Apicurio Registry {version} could not be fetched from {address}: {problem}")
