"""Names of ``bootstrap.servers`` that cannot be resolved yet."""

from __future__ import annotations

import socket
from random import Random

import pytest

from spark_kafka_sink import KafkaProducer
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.network.metadata import Metadata
from spark_kafka_sink.testing import TestBroker
from tests.support.waiting import DEADLINE_S, eventually

NAME = "kafka.example"


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


def test_a_name_that_is_known_later_is_used(names):
    with TestBroker() as broker, KafkaProducer(options(broker)) as producer:
        eventually(lambda: names.asked > 2)
        names.known = True
        producer.send_columns("t", value=["x"]).wait(DEADLINE_S * 1000)
        assert [record.value for record in broker.topic("t").records()] == [b"x"]


def test_canonical_names_are_looked_up_once(names):
    given = {"bootstrap.servers": f"{NAME}:1,{NAME}:2", "client.dns.lookup": "resolve_canonical_bootstrap_servers_only"}
    with pytest.raises(ConfigError, match="no server of bootstrap.servers can be resolved"):
        Metadata(ProducerConfig.parse(given), Random(1))
    assert names.asked == 2
