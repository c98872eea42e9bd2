"""Apache Kafka's own jars, fetched once from Maven Central. The jars of the default version are checked by SHA-256."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from spark_kafka_sink.testing.maven import FetchError, IvyModule, cache_folder, fetch, filling

# slf4j needs a logger, which Kafka does not bring: without it a broker that cannot start logs nothing.
_IVY_MODULE = """<ivy-module version="2.0">
  <info organisation="spark-kafka-sink" module="local-kafka"/>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_{scala}" rev="{version}" conf="default"/>{tools}{zookeeper}
    <dependency org="org.slf4j" name="slf4j-simple" rev="1.7.36" conf="default"/>
  </dependencies>
</ivy-module>
"""
# Without their dependencies (Connect and its web server): DumpLogSegments, which moved there in 4.3, needs none of it.
_TOOLS = """
    <dependency org="org.apache.kafka" name="kafka-tools" rev="{version}" conf="default" transitive="false"/>"""
# Instead of the 3.4 and 3.5.x that Kafka 2 names, which find no address on Java 14 and newer (ZOOKEEPER-3779).
_ZOOKEEPER = """
    <dependency org="org.apache.zookeeper" name="zookeeper" rev="3.5.9" conf="default">
      <exclude org="org.slf4j" module="slf4j-log4j12"/>
    </dependency>"""
_ESSENTIAL_JARS = ("kafka_{scala}-{version}.jar", "kafka-clients-{version}.jar")
_TOOLS_JAR = "kafka-tools-{version}.jar"
_LAST_WITH_TOOLS = (4, 3, 1)  # kafka-tools 4.4.0 is not on Maven Central

_ABOUT_MB = 45
"""The approximate size of a broker's jars: 37 MB (Kafka 2.8) to 48 MB (Kafka 3.9)."""

_DIGESTS = Path(__file__).parent
_AGAIN = "Nothing of it was kept: start it again to fetch it once more."
_OLDEST = (2, 1, 0)  # the oldest whose protocol this package speaks
_FIRST_WITH_KRAFT = (3, 3, 0)  # for production
_FIRST_WITH_SCALA_2_13 = (2, 4, 0)


class KafkaJarsError(FetchError):
    """Kafka's jars did not arrive whole, or the cache is incomplete."""


def kafka_jars(version: str) -> Path:
    """The folder ``kafka-<version>`` of the cache with all jars of this broker, which are fetched (45 MB) the first
    time.

    A version with a file ``kafka-<version>.sha256`` beside this one has exactly the jars that the file lists, as
    ``sha256sum *.jar`` writes it. The folder gets its name only when it is complete. Offline, fill it with the ``libs``
    of Kafka's own distribution. Raises ``FetchError``.
    """
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise KafkaJarsError(f"Kafka version {version!r} is not of the form 4.4.0.")
    if _numbers(version) < _OLDEST:
        raise KafkaJarsError(f"Kafka {version} is too old: LocalKafka runs {'.'.join(map(str, _OLDEST))} or newer.")
    folder = cache_folder() / f"kafka-{version}"
    with filling(folder) as scratch:
        if scratch is not None:
            name = f"Apache Kafka {version}"
            tools = _TOOLS if tools_version(version) == version else ""
            module = _IVY_MODULE.format(
                version=version,
                scala=_scala(version),
                tools=tools.format(version=version),
                zookeeper=_ZOOKEEPER if needs_zookeeper(version) else "",
            )
            jars = fetch(IvyModule(name, module, ("jar", "bundle"), about_mb=_ABOUT_MB), scratch)
            if lacking := _missing(version, jars):
                raise KafkaJarsError(f"{name} did not arrive whole: {', '.join(lacking)} is missing. {_AGAIN}")
            if other := _other_jars(version, jars):
                raise KafkaJarsError(
                    f"{name}: {', '.join(other)} is not the known file, by its SHA-256. A proxy or mirror may have "
                    f"changed it. {_AGAIN}"
                )
            jars.rename(folder)
    missing = _missing(version, folder)
    if missing:
        raise KafkaJarsError(f"{folder} lacks {', '.join(missing)}. Remove the folder to have it fetched again.")
    return folder


def needs_zookeeper(version: str) -> bool:
    """Whether a broker of this release runs with ZooKeeper here, because it has no KRaft for production yet."""
    return _numbers(version) < _FIRST_WITH_KRAFT


def _scala(version: str) -> str:
    return "2.12" if _numbers(version) < _FIRST_WITH_SCALA_2_13 else "2.13"


def tools_version(version: str) -> str:
    """The release whose tools read the files of ``version``: itself, or the last one with tools on Maven Central."""
    return version if _numbers(version) <= _LAST_WITH_TOOLS else ".".join(map(str, _LAST_WITH_TOOLS))


def tools_jar(version: str) -> Path:
    """Kafka's command line tools for ``version``; the folder has the jars that they need. Raises ``FetchError``."""
    version = tools_version(version)
    return kafka_jars(version) / _TOOLS_JAR.format(version=version)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _missing(version: str, folder: Path) -> list[str]:
    essential = (*_ESSENTIAL_JARS, _TOOLS_JAR) if tools_version(version) == version else _ESSENTIAL_JARS
    names = [jar.format(version=version, scala=_scala(version)) for jar in essential]
    return [name for name in names if not (folder / name).is_file()]


def _other_jars(version: str, folder: Path) -> list[str]:
    """The names of jars that are missing, superfluous or of another content. None for a version without known
    digests."""
    known = _DIGESTS / f"kafka-{version}.sha256"
    if not known.is_file():
        return []
    wanted = {tuple(line.split()) for line in known.read_text().splitlines()}
    found = {(hashlib.sha256(jar.read_bytes()).hexdigest(), jar.name) for jar in folder.iterdir()}
    return sorted({name for _, name in wanted ^ found})
