"""The jars of YARN's ResourceManager and NodeManager, fetched once from Maven Central and checked by SHA-256."""

from __future__ import annotations

import hashlib
from pathlib import Path

from spark_kafka_sink.testing.maven import FetchError, IvyModule, cache_folder, fetch, filling

HADOOP = "3.4.1"
_DIGESTS = Path(__file__).parent / f"hadoop-yarn-{HADOOP}.sha256"
# The last two are "provided" in the descriptors of the others.
_IVY_MODULE = f"""<ivy-module version="2.0">
  <info organisation="spark-kafka-sink" module="local-yarn"/>
  <dependencies>
    <dependency org="org.apache.hadoop" name="hadoop-yarn-server-resourcemanager" rev="{HADOOP}" conf="default"/>
    <dependency org="org.apache.hadoop" name="hadoop-yarn-server-nodemanager" rev="{HADOOP}" conf="default"/>
    <dependency org="org.apache.hadoop" name="hadoop-yarn-server-timelineservice" rev="{HADOOP}" conf="default"
        transitive="false"/>
    <dependency org="org.apache.hadoop" name="hadoop-common" rev="{HADOOP}" conf="default"/>
  </dependencies>
</ivy-module>
"""


def hadoop_jars() -> Path:
    """The folder of the cache that has exactly the jars of the list beside this file. Raises ``FetchError``."""
    folder = cache_folder() / f"hadoop-yarn-{HADOOP}"
    with filling(folder) as scratch:
        if scratch is not None:
            jars = fetch(IvyModule(f"Apache Hadoop YARN {HADOOP}", _IVY_MODULE, ("jar", "bundle")), scratch)
            known = {tuple(line.split()) for line in _DIGESTS.read_text().splitlines()}
            found = {(hashlib.sha256(jar.read_bytes()).hexdigest(), jar.name) for jar in jars.iterdir()}
            if others := sorted({name for _, name in known ^ found}):
                raise FetchError(f"Hadoop {HADOOP}: not the known jars by their SHA-256: {', '.join(others)}")
            jars.rename(folder)
    return folder
