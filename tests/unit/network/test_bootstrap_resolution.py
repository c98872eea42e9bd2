"""``bootstrap.resolve.timeout.ms`` (KIP-909): how long the names of ``bootstrap.servers`` may stay unresolved."""

from __future__ import annotations

import socket
from random import Random

import pytest

from spark_kafka_sink import KafkaProducer
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import ClusterSnapshot, Node
from spark_kafka_sink.errors import (
    BootstrapResolutionError,
    ConfigError,
    ConnectionStep,
    FailedStep,
    KafkaTimeoutError,
    NetworkError,
)
from spark_kafka_sink.network.metadata import Metadata
from spark_kafka_sink.testing import TestBroker
from spark_kafka_sink.testing.manual_clock import ManualClock
from tests.waiting import DEADLINE_S, eventually

NAME = "kafka.example"
TIMEOUT = {"bootstrap.resolve.timeout.ms": "5000"}
LATE = 5_000.0


class Names:
    """Name servers that know ``NAME`` or do not; ``asked``: how often they were."""

    def __init__(self) -> None:
        self.known = False
        self.asked = 0
        self._real = socket.getaddrinfo

    def getaddrinfo(self, host: str, port: int, *args: object, flags: int = 0, **options: object) -> object:
        if host != NAME or flags & socket.AI_NUMERICHOST:
            return self._real(host, port, *args, flags=flags, **options)  # type: ignore[arg-type]
        self.asked += 1
        if not self.known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self._real("127.0.0.1", port, type=socket.SOCK_STREAM)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    found = Names()
    monkeypatch.setattr(socket, "getaddrinfo", found.getaddrinfo)
    return found


def options(broker: TestBroker, **more: str) -> dict[str, str]:
    port = broker.bootstrap_servers.split(":")[1]
    return {"bootstrap.servers": f"{NAME}:{port}", "reconnect.backoff.ms": "10", **more}


def metadata(**given: str) -> Metadata:
    return Metadata(ProducerConfig.parse({"bootstrap.servers": f"{NAME}:1,{NAME}:2", **given}), Random(1))


def fails(each: Metadata, now: float, *steps: ConnectionStep) -> None:
    """An attempt to connect to each bootstrap server fails at its step."""
    each.candidates(0)
    for node, step in zip(each.bootstrap_nodes, steps, strict=False):
        error = NetworkError("no")
        error.failed_step = FailedStep(step, f"{NAME}:1", bootstrap=True)
        each.note_connection_error(node, error, now)


def wait(each: Metadata) -> None:
    each.wait_for_topic("t", None, 0, ManualClock(), lambda: None)


DNS, TCP = ConnectionStep.DNS, ConnectionStep.TCP


def test_when_the_time_is_over_every_call_fails_at_once_and_for_good():
    each = metadata(**TIMEOUT)
    fails(each, LATE, DNS, DNS)
    for _ in range(2):
        with pytest.raises(
            BootstrapResolutionError, match=r"kafka\.example:1,kafka\.example:2\) could be resolved with"
        ):
            wait(each)
        with pytest.raises(BootstrapResolutionError):
            each.await_update(0, lambda: None)


@pytest.mark.parametrize(
    ("now", "steps", "given"),
    [
        (LATE - 1, (DNS, DNS), TIMEOUT),
        (LATE, (DNS, TCP), TIMEOUT),
        (LATE, (DNS,), TIMEOUT),
        (LATE, (DNS, DNS), {}),
    ],
    ids=["still-time", "one-is-resolved", "one-is-untried", "no-timeout"],
)
def test_otherwise_a_call_waits_for_max_block_ms(now, steps, given):
    each = metadata(**given)
    fails(each, now, *steps)
    with pytest.raises(KafkaTimeoutError, match="Topic t not present in metadata after 0 ms"):
        wait(each)


def test_after_the_first_response_the_time_does_not_count():
    each = metadata(**TIMEOUT)
    each.updated(ClusterSnapshot(nodes={1: Node(1, "h", 1)}), 0)
    fails(each, LATE, DNS, DNS)
    with pytest.raises(KafkaTimeoutError, match="Topic t not present"):
        wait(each)


def test_a_producer_fails_with_the_error_while_max_block_ms_goes_on(names):
    with (
        TestBroker() as broker,
        KafkaProducer(options(broker, **{"bootstrap.resolve.timeout.ms": "50", "max.block.ms": "3600000"})) as producer,
    ):
        with pytest.raises(BootstrapResolutionError, match=r"within 50 ms \(bootstrap\.resolve\.timeout\.ms\)"):
            producer.send_columns("t", value=["x"])
        names.known = True
        with pytest.raises(BootstrapResolutionError):
            producer.send_columns("t", value=["x"])


@pytest.mark.parametrize("timeout_ms", ["0", "3600000"])
def test_a_name_that_is_known_later_is_used(names, timeout_ms):
    with (
        TestBroker() as broker,
        KafkaProducer(options(broker, **{"bootstrap.resolve.timeout.ms": timeout_ms})) as producer,
    ):
        eventually(lambda: names.asked > 2)
        names.known = True
        producer.send_columns("t", value=["x"]).wait(DEADLINE_S * 1000)
        assert [record.value for record in broker.topic("t").records()] == [b"x"]


CANONICAL = {"client.dns.lookup": "resolve_canonical_bootstrap_servers_only"}


def test_canonical_names_are_looked_up_at_the_creation_for_so_long(names):
    with pytest.raises(BootstrapResolutionError, match="within 50 ms"):
        metadata(**CANONICAL, **{"bootstrap.resolve.timeout.ms": "50", "retry.backoff.ms": "10"})
    assert names.asked > 2


def test_canonical_names_without_the_option_are_looked_up_once(names):
    with pytest.raises(ConfigError, match="no server of bootstrap.servers can be resolved"):
        metadata(**CANONICAL)
    assert names.asked == 2
