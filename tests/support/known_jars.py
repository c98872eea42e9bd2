"""Jars of Maven Central that are all known by their SHA-256, fetched once into the cache."""

from __future__ import annotations

import hashlib
from pathlib import Path

from spark_kafka_sink.testing.maven import FetchError, IvyModule, cache_folder, fetch, filling


def known_jars(name: str, digests: Path, dependencies: str) -> Path:
    """The folder of the cache that has exactly the jars of ``digests``, which is written by ``sha256sum *.jar``.
    ``dependencies``: the elements of an Ivy module. Raises ``FetchError``.
    """
    folder = cache_folder() / digests.stem
    with filling(folder) as scratch:
        if scratch is not None:
            module = f"""<ivy-module version="2.0"><info organisation="spark-kafka-sink" module="{digests.stem}"/>
                <dependencies>{dependencies}</dependencies></ivy-module>"""
            jars = fetch(IvyModule(name, module, ("jar", "bundle")), scratch)
            known = {tuple(line.split()) for line in digests.read_text().splitlines()}
            found = {(hashlib.sha256(jar.read_bytes()).hexdigest(), jar.name) for jar in jars.iterdir()}
            if others := sorted({name for _, name in known ^ found}):
                raise FetchError(f"{name}: not the known jars by their SHA-256: {', '.join(others)}")
            jars.rename(folder)
    return folder
