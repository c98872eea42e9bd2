"""Topics as a Java consumer with Amazon's deserializer reads them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Self

from spark_kafka_sink.testing.java import find_java
from tests.support.glue.server import REGION
from tests.support.known_jars import known_jars
from tests.support.waiting import DEADLINE_S

_VERSION = "1.1.27"
# protobuf-java-util prints messages. What is excluded is large, and a reader needs none of it.
_DEPENDENCIES = f"""
    <dependency org="software.amazon.glue" name="schema-registry-serde" rev="{_VERSION}" conf="default"/>
    <dependency org="com.google.protobuf" name="protobuf-java-util" rev="3.25.5" conf="default"/>
    <exclude org="com.amazonaws"/>
    <exclude org="software.amazon.awssdk" module="netty-nio-client"/>
    <exclude org="software.amazon.awssdk" module="apache-client"/>
    <exclude module="kotlin-scripting-compiler-embeddable"/>
    <exclude module="kotlin-scripting-compiler-impl-embeddable"/>
    <exclude module="lombok"/>
"""


class GlueReader:
    """The process of ``GlueReader.java``; a ``with`` block ends it."""

    def __init__(self, servers: str, endpoint: str) -> None:
        digests = Path(__file__).with_name(f"glue-serde-{_VERSION}.sha256")
        jars = known_jars(f"Amazon's deserializer {_VERSION}", digests, _DEPENDENCIES)
        credentials = ("-Daws.accessKeyId=reader", "-Daws.secretAccessKey=reader")
        program = Path(__file__).with_name("GlueReader.java")
        command = [find_java(), "-cp", f"{jars}/*", *credentials, program, servers, endpoint, REGION]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen([*map(str, command)], text=True, **pipes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=DEADLINE_S)

    def read(self, topic: str) -> list[dict[str, Any]]:
        """``partition``, ``key`` and ``value`` of each committed record. Its own errors are on stderr."""
        self._process.stdin.write(f"{topic}\n")
        self._process.stdin.flush()
        records = []
        while (line := self._process.stdout.readline()) != "\n":
            assert line, f"the reader ended with {self._process.wait(DEADLINE_S)}"
            records.append(json.loads(line))
        return records
