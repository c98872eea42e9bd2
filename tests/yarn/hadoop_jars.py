"""The jars of YARN's ResourceManager and NodeManager, fetched once from Maven Central and checked by SHA-256."""

from __future__ import annotations

from pathlib import Path

from tests.support.known_jars import known_jars

HADOOP = "3.4.1"
# The last two are "provided" in the descriptors of the others.
_DEPENDENCIES = f"""
    <dependency org="org.apache.hadoop" name="hadoop-yarn-server-resourcemanager" rev="{HADOOP}" conf="default"/>
    <dependency org="org.apache.hadoop" name="hadoop-yarn-server-nodemanager" rev="{HADOOP}" conf="default"/>
    <dependency org="org.apache.hadoop" name="hadoop-yarn-server-timelineservice" rev="{HADOOP}" conf="default"
        transitive="false"/>
    <dependency org="org.apache.hadoop" name="hadoop-common" rev="{HADOOP}" conf="default"/>
"""


def hadoop_jars() -> Path:
    """The folder with the jars. Raises ``FetchError``."""
    digests = Path(__file__).with_name(f"hadoop-yarn-{HADOOP}.sha256")
    return known_jars(f"Apache Hadoop YARN {HADOOP}", digests, _DEPENDENCIES)
