"""Apicurio Registry, fetched once from Maven Central and checked against its SHA-256."""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path
from typing import Final

from spark_kafka_sink.testing.maven import FetchError, IvyModule, cache_folder, fetch, filling

_MODULE: Final = """<ivy-module version="2.0">
  <info organisation="spark-kafka-sink" module="local-schema-registry"/>
  <dependencies>
    <dependency org="io.apicurio" name="apicurio-registry-app" rev="{version}" conf="default">
      <artifact name="apicurio-registry-app" type="tar.gz" ext="tar.gz"/>
    </dependency>
  </dependencies>
</ivy-module>
"""
# Without POMs, because Maven Central lacks the parent of this artifact's POM. "all" is the artifact's classifier.
_SETTINGS: Final = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers>
    <ibiblio name="central" m2compatible="true" usepoms="false"
      pattern="[organisation]/[module]/[revision]/[artifact]-[revision]-all.[ext]"/>
  </resolvers>
</ivysettings>
"""
_ABOUT_MB: Final = 109
_ARCHIVE: Final = "apicurio-registry-app-{version}.tar.gz"
_RUNNER: Final = "apicurio-registry-app-{version}-runner.jar"
VERSION: Final = "3.0.9"
_SHA_256: Final = "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43"


class ApicurioError(FetchError):
    """Apicurio Registry did not arrive whole, or the cache is incomplete."""


def apicurio_runner() -> Path:
    """The jar to start, beside its libraries in ``apicurio-registry-<VERSION>`` of the cache; fetched (109 MB) the
    first time.

    The folder gets its name only when it is complete. Offline, fill it with the content of the archive. Raises
    ``FetchError``.
    """
    folder = cache_folder() / f"apicurio-registry-{VERSION}"
    with filling(folder) as scratch:
        if scratch is not None:
            name = f"Apicurio Registry {VERSION}"
            module = IvyModule(name, _MODULE.format(version=VERSION), ("tar.gz",), _SETTINGS, _ABOUT_MB)
            files = fetch(module, scratch)
            _unpack(name, files / _ARCHIVE.format(version=VERSION), scratch / "content")
            (scratch / "content").rename(folder)
    runner = folder / _RUNNER.format(version=VERSION)
    if not runner.is_file():
        raise ApicurioError(f"{folder} lacks {runner.name}. Remove the folder to have it fetched again.")
    return runner


def _unpack(name: str, archive: Path, to: Path) -> None:
    with archive.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != _SHA_256:
            raise ApicurioError(f"{name} did not arrive whole: what arrived has another SHA-256.")
    with tarfile.open(archive) as members:
        members.extractall(to, filter="data")
