"""The connection check on a real Kafka whose StandardAuthorizer has ACLs."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.testing import LocalKafka
from spark_kafka_sink.tools.connection_check import CheckRequest, check
from spark_kafka_sink.tools.exactly_once_trial import try_exactly_once
from spark_kafka_sink.tools.findings import Finding, Outcome
from tests.contract.scenario import name
from tests.support.waiting import DEADLINE_S


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
    before = topics(secure_kafka)
    ids, exactly_once = f"transactional ids {prefix}-driver, {prefix}-0", {"ledger_topic": ledger}

    found = failed(checked(options, topic=topic, transactional_id_prefix=prefix, **exactly_once))
    assert found.keys() == {f"topic {topic}", f"ledgerTopic {ledger}", ids}
    assert found[f"topic {topic}"].startswith("WRITE missing: add an ACL for the principal, which may DESCRIBE")
    assert found[f"ledgerTopic {ledger}"].startswith("READ, DESCRIBE_CONFIGS missing")
    assert f"DESCRIBE is missing on {prefix}-driver, {prefix}-0" in found[ids]
    assert "lacks even DESCRIBE" in failed(checked(options, topic=hidden))[f"topic {hidden}"]
    assert topics(secure_kafka) == before, "the check has created a topic"

    secure_kafka.allow("client", "WRITE", "TOPIC", topic)
    for operation in ("READ", "DESCRIBE_CONFIGS"):
        secure_kafka.allow("client", operation, "TOPIC", ledger)
    secure_kafka.allow("client", "WRITE", "TRANSACTIONAL_ID", prefix, prefixed=True)
    assert failed(checked(options, topic=topic, transactional_id_prefix=prefix, **exactly_once)) == {}


def topics(kafka: LocalKafka) -> set[str]:
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
    assert failed_step(tried()) == "settings", "the cluster has no ACL, so everybody may create topics"
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
    assert [each.step for each in findings][-4:] == ["write", "sweep", "abort", "delete"]
    assert {each for each in topics(secure_kafka) if each.startswith(ledger)} == set()
