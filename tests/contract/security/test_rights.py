"""Rights on a real Kafka: those that docs/security.md names are enough for an exactly-once write, and each is needed;
what the connection check tells of missing ones; and dead letters without the right to ask for max.message.bytes."""

from collections import Counter
from random import Random

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.schema import RowLayout
from spark_kafka_sink.spark.write import write_rows
from spark_kafka_sink.testing import LocalKafka
from spark_kafka_sink.tools.connection_check import CheckRequest, check
from spark_kafka_sink.tools.exactly_once_trial import try_exactly_once
from spark_kafka_sink.tools.findings import Finding, Outcome
from tests.contract.exactly_once.runs import Query
from tests.contract.scenario import name
from tests.contract.security.librdkafka import consume
from tests.spark.topics import Topic
from tests.support.waiting import DEADLINE_S

LISTENER = "SASL_TLS"


RIGHTS = [
    ("TOPIC", "topic", "WRITE"),
    ("TRANSACTIONAL_ID", "prefix", "WRITE"),
    ("TOPIC", "ledger", "CREATE"),
    ("TOPIC", "ledger", "READ"),
    ("TOPIC", "ledger", "WRITE"),
    ("TOPIC", "ledger", "DESCRIBE_CONFIGS"),
]


def query_with(kafka: LocalKafka, rights: list[tuple[str, str, str]]) -> Query:
    """A query whose topic, transactional ids and ledger are closed to its user but for ``rights``."""
    names = {"topic": name("rows"), "prefix": name("query"), "ledger": name("ledger")}
    kafka.create_topic(names["topic"])
    options = kafka.client_options(LISTENER)
    for user, granted in (("other", RIGHTS[:4]), ("client", rights)):
        for resource, of, operation in granted:
            kafka.allow(user, operation, resource, names[of], prefixed=of == "prefix")
    return Query(
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
        query.run(0, [[b"1"]])


def checked(options: dict[str, str], **more: str) -> list[Finding]:
    return list(check(CheckRequest(ProducerConfig.parse(options), **more), SystemClock()))


def failed(findings: list[Finding]) -> dict[str, str]:
    return {each.subject: each.text for each in findings if each.outcome is Outcome.FAILED}


def test_missing_rights_are_those_of_the_acls(secure_kafka: LocalKafka) -> None:
    topic, hidden, ledger, prefix = (name(each) for each in ("topic", "hidden", "ledger", "prefix"))
    for each in (topic, hidden, ledger):
        secure_kafka.create_topic(each)
        secure_kafka.allow("other", "ALL", "TOPIC", each)
    secure_kafka.allow("client", "DESCRIBE", "TOPIC", topic)
    secure_kafka.allow("client", "WRITE", "TOPIC", ledger)
    secure_kafka.allow("other", "WRITE", "TRANSACTIONAL_ID", prefix, prefixed=True)
    options = secure_kafka.client_options("SASL_TLS")
    before = topics_of(secure_kafka)
    ids, exactly_once = f"transactional ids {prefix}-driver, {prefix}-0", {"ledger_topic": ledger}

    found = failed(checked(options, topic=topic, transactional_id_prefix=prefix, **exactly_once))
    assert found.keys() == {f"topic {topic}", f"ledgerTopic {ledger}", ids}
    assert found[f"topic {topic}"].startswith("WRITE missing: add an ACL for the principal, which may DESCRIBE")
    assert found[f"ledgerTopic {ledger}"].startswith("READ, DESCRIBE_CONFIGS missing")
    assert f"DESCRIBE is missing on {prefix}-driver, {prefix}-0" in found[ids]
    assert "lacks even DESCRIBE" in failed(checked(options, topic=hidden))[f"topic {hidden}"]
    assert topics_of(secure_kafka) == before, "the check has created a topic"

    secure_kafka.allow("client", "WRITE", "TOPIC", topic)
    for operation in ("READ", "DESCRIBE_CONFIGS"):
        secure_kafka.allow("client", operation, "TOPIC", ledger)
    secure_kafka.allow("client", "WRITE", "TRANSACTIONAL_ID", prefix, prefixed=True)
    assert failed(checked(options, topic=topic, transactional_id_prefix=prefix, **exactly_once)) == {}


def topics_of(kafka: LocalKafka) -> set[str]:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    return set(admin.list_topics(timeout=DEADLINE_S).topics)


def test_exactly_once_is_tried_under_the_acls_of_the_real_names(secure_kafka: LocalKafka) -> None:
    ledger, prefix = name("ledger"), name("prefix")
    options = secure_kafka.client_options("SASL_TLS")
    request = CheckRequest(ProducerConfig.parse(options), transactional_id_prefix=prefix, ledger_topic=ledger)

    def tried() -> list[Finding]:
        return list(try_exactly_once(request, SystemClock()))

    def failed_step(findings: list[Finding]) -> str:
        (step,) = [each.step for each in findings if each.outcome is Outcome.FAILED]
        return step

    secure_kafka.allow("other", "WRITE", "TRANSACTIONAL_ID", prefix, prefixed=True)
    secure_kafka.allow("other", "ALL", "TOPIC", ledger, prefixed=True)
    assert failed_step(tried()) == "plan", "the cluster has no ACL, so everybody may create topics"
    for operation in ("DESCRIBE_CONFIGS", "WRITE"):
        secure_kafka.allow("client", operation, "TOPIC", ledger, prefixed=True)
        findings = tried()
        assert failed_step(findings) == "plan"
        assert f"{ledger}-check-" in next(each.text for each in findings if each.step == "plan")
    secure_kafka.allow("client", "READ", "TOPIC", ledger, prefixed=True)
    findings = tried()
    assert failed_step(findings) == "plan"
    assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in next(each.text for each in findings if each.step == "plan")
    secure_kafka.allow("client", "WRITE", "TRANSACTIONAL_ID", prefix, prefixed=True)
    findings = tried()
    assert {each.outcome for each in findings} == {Outcome.OK}
    assert [each.step for each in findings][-4:] == ["plan", "write", "abort", "delete"]
    assert {each for each in topics_of(secure_kafka) if each.startswith(ledger)} == set()


ROWS = 3_000
LIMIT, DEAD_LIMIT = 20_000, 30_000
LARGE = {100: 25_000, 1_500: 50_000, 2_999: 25_000}
"""Row to the size of its value: more than the topic takes; the second is more than the topic of dead letters takes."""


def batch() -> pa.RecordBatch:
    random = Random(1)
    values = [random.randbytes(LARGE[row]) if row in LARGE else b"%d" % row + b"x" * 90 for row in range(ROWS)]
    return pa.record_batch({"key": [b"%d" % (row % 5) for row in range(ROWS)], "value": values})


def topics(kafka: LocalKafka) -> tuple[str, str]:
    """Both may only be written to."""
    rows, dead = name("rows"), name("dead")
    kafka.create_topic(rows, 2, {"max.message.bytes": str(LIMIT)})
    kafka.create_topic(dead, 1, {"max.message.bytes": str(DEAD_LIMIT)})
    for topic in (rows, dead):
        kafka.allow("client", "WRITE", "TOPIC", topic)
    return rows, dead


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_at_least_once_rows_that_a_broker_refuses_are_dead_letters(secure_kafka: LocalKafka, codec: str) -> None:
    rows, dead = topics(secure_kafka)
    options = secure_kafka.spark_options(LISTENER)
    given = {**options, "topic": rows, "deadlettertopic": dead, "kafka.compression.type": codec}
    sent = batch()
    figures = write_rows(iter([sent]), RowLayout(key=0, value=1), SinkOptions.parse(given)).figures
    servers = secure_kafka.bootstrap_servers
    delivered = Topic(servers, rows).records()
    values = sent.column("value").to_pylist()
    good = [value for row, value in enumerate(values) if row not in LARGE]
    assert Counter(record.value for record in delivered) == Counter(good)
    for partition in (0, 1):
        numbers = [number_of(record.value) for record in delivered if record.partition == partition]
        assert numbers == sorted(numbers), "refusals change no order"
    letters = {record.value: record for record in Topic(servers, dead).records()}
    assert letters.keys() == {values[100], values[2_999], None}
    omitted = dict(letters[None].headers or ())
    assert omitted["__pykafka.omitted.value.size"] == b"50000"
    for letter in letters.values():
        told = dict(letter.headers or ())
        assert told["__connect.errors.topic"] == rows.encode()
        assert b"MESSAGE_TOO_LARGE" in (told["__connect.errors.exception.message"] or b"")
    assert figures.dead_letters == (("record-too-large", 3),)
    assert figures.rows == ROWS - 3


def number_of(value: bytes | None) -> int:
    assert value is not None
    return int(value.rstrip(b"x"))
