"""Brokers that do not come from Apache Kafka: franz-go's kfake as a process, librdkafka's mock cluster in this one."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

_SOURCES = Path(__file__).parent / "kfake"
_BUILT = Path(__file__).parents[2] / ".cache" / "foreign" / "kfake"
_BUILD_S = 600
_END_S = 30
_TOPIC_S = 60
MOCK = "librdkafka's mock cluster"


def build_kfake() -> Path:
    """The program. Fails where Go is missing or too old, with what to install."""
    go = shutil.which("go")
    if go is None:
        required = next(line for line in (_SOURCES / "go.mod").read_text().splitlines() if line.startswith("go "))
        pytest.fail(f"kfake is built with {required} or newer: install it from https://go.dev/dl", pytrace=False)
    built = subprocess.run(
        [go, "build", "-o", _BUILT, "."], check=False, cwd=_SOURCES, capture_output=True, timeout=_BUILD_S
    )
    if built.returncode:
        pytest.fail(f"kfake could not be built:\n{built.stderr.decode()}", pytrace=False)
    return _BUILT


@dataclass(frozen=True)
class Foreign:
    """A running cluster. ``calm`` ends its faults, so that what was written can be read."""

    name: str
    servers: str
    calm: Callable[[], None] = lambda: None


@contextmanager
def kfake(profile: str, flags: Sequence[str] = ()) -> Iterator[Foreign]:
    """Three nodes with the API versions of ``profile``; ``flags`` as its --help says."""
    command = [str(build_kfake()), "-profile", profile, *flags]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            servers = process.stdout.readline().strip()
            assert servers, f"kfake has ended with {process.wait(_END_S)}"
            yield Foreign(profile, servers, lambda: print(file=process.stdin, flush=True))
        finally:
            process.stdin.close()
            process.wait(_END_S)


@contextmanager
def mock_cluster() -> Iterator[Foreign]:
    """Three nodes of librdkafka's own mock cluster, without faults."""
    owner = Producer({"test.mock.num.brokers": 3})
    brokers = owner.list_topics(timeout=_TOPIC_S).brokers.values()
    yield Foreign(MOCK, ",".join(f"{broker.host}:{broker.port}" for broker in brokers))
    owner.flush(_END_S)


def create_topic(cluster: Foreign, topic: str, partitions: int = 4) -> None:
    """By librdkafka, whose mock cluster lacks CreateTopics but creates what is asked for, with four partitions."""
    if cluster.name == MOCK:
        found = Producer({"bootstrap.servers": cluster.servers}).list_topics(topic, _TOPIC_S).topics[topic]
        assert len(found.partitions) == partitions
        return
    admin = AdminClient({"bootstrap.servers": cluster.servers})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(_TOPIC_S)
