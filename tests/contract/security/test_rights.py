"""The rights that docs/security.md names are enough for an exactly-once write, and each is needed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.exactly_once.session import CommitSettings
from spark_kafka_sink.testing import LocalKafka
from tests.contract.exactly_once.runs import Query
from tests.contract.scenario import name
from tests.contract.security.librdkafka import consume

LISTENER = "SASL_TLS"


@dataclass
class QueryOfAUser(Query):
    """With a ledger of its own."""

    ledger: str = ""

    @property
    def settings(self) -> CommitSettings:
        return replace(super().settings, topic=self.ledger)


RIGHTS = [
    ("TOPIC", "topic", "WRITE"),
    ("TRANSACTIONAL_ID", "prefix", "WRITE"),
    ("TOPIC", "ledger", "CREATE"),
    ("TOPIC", "ledger", "READ"),
    ("TOPIC", "ledger", "WRITE"),
    ("TOPIC", "ledger", "DESCRIBE_CONFIGS"),
]


def query_with(kafka: LocalKafka, rights: list[tuple[str, str, str]]) -> QueryOfAUser:
    """A query whose topic, transactional ids and ledger are closed to its user but for ``rights``."""
    names = {"topic": name("rows"), "prefix": name("query"), "ledger": name("ledger")}
    kafka.create_topic(names["topic"])
    options = kafka.client_options(LISTENER)
    for user, granted in (("other", RIGHTS[:4]), ("client", rights)):
        for resource, of, operation in granted:
            kafka.allow(user, operation, resource, names[of], prefixed=of == "prefix")
    return QueryOfAUser(
        options["bootstrap.servers"], names["prefix"], names["prefix"], options=options, topic=names["topic"],
        ledger=names["ledger"],
    )  # fmt: skip


def test_the_documented_rights_are_enough_for_exactly_once(secure_kafka: LocalKafka) -> None:
    query = query_with(secure_kafka, RIGHTS)
    query.run(0, [[b"1"], [b"2"]])
    query.run(1, [[b"3"]])
    secure_kafka.allow("client", "READ", "TOPIC", query.topic)
    assert sorted(consume(secure_kafka.client_options(LISTENER), query.topic, 3)) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("missing", [each for each in RIGHTS if each[2] != "CREATE"], ids=" ".join)
def test_each_of_these_rights_is_needed(secure_kafka: LocalKafka, missing: tuple[str, str, str]) -> None:
    query = query_with(secure_kafka, [each for each in RIGHTS if each != missing])
    with pytest.raises(KafkaError, match="AUTHORIZATION_FAILED|Not authorized"):
        run_twice(query)


def run_twice(query: Query) -> None:
    """The settings of a ledger are checked when it is not new."""
    for number in range(2):
        query.run(number, [[b"1"]])
