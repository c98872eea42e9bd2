"""The check of what exactly-once needs against TestBroker: what it finds, and that it leaves nothing behind."""

from _thread import interrupt_main

import pytest
from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.exactly_once import ledger_topic
from spark_kafka_sink.network.error_table import broker_error
from spark_kafka_sink.network.topics import create_topic
from spark_kafka_sink.testing import TestBroker
from spark_kafka_sink.testing.broker.faults import KEPT
from spark_kafka_sink.tools.cli.main import main
from spark_kafka_sink.tools.connection_check import CheckRequest
from spark_kafka_sink.tools.exactly_once_trial import try_exactly_once
from spark_kafka_sink.tools.findings import Outcome
from tests.contract.brokers import broker_with

STEPS = ["plan", "write", "commit", "plan", "write", "abort"]
broker = broker_with()
of_each_age = broker_with(nodes=2, like=["4.1", "3.9", "2.8"])


def request(broker, **options):
    config = ProducerConfig.parse({"bootstrap.servers": broker.bootstrap_servers, **options})
    return CheckRequest(config, transactional_id_prefix="orders", ledger_topic="ledger")


def tried(broker, **options):
    return list(try_exactly_once(request(broker, **options), SystemClock()))


def texts(findings):
    return {each.step: each.text for each in findings}


def left(broker):
    return [each for each in broker.topics if not each.startswith("__")]


def open_ids(broker):
    transactions = broker._call(lambda server: dict(server.state.transactions.transactions))
    return [name for name in transactions if broker.transaction_state(name) == "Ongoing"]


def test_each_step_is_told_and_nothing_is_left(of_each_age):
    findings = tried(of_each_age)
    assert [each.step for each in findings] == [*STEPS, "delete"]
    assert {each.outcome for each in findings} == {Outcome.OK}
    assert all(each.elapsed_ms >= 0 for each in findings)
    # So ACLs for the prefix hold for these names, too.
    assert "CreateTopics of ledger-check-" in findings[0].text
    assert "InitProducerId of orders-check-" in texts(findings)["write"]
    assert "It is as strong as wanted." in findings[0].text
    assert left(of_each_age) == []
    assert open_ids(of_each_age) == []


def test_settings_that_are_refused_are_told_with_their_cost(broker):
    broker.refuse_topic_configs("segment.ms")
    broker.hide_configs("unclean.leader.election.enable")
    findings = tried(broker)
    assert {each.outcome for each in findings} == {Outcome.OK}
    assert "be written twice: unclean.leader.election.enable=unknown instead of false." in findings[0].text
    assert "The start of a query reads more: segment.ms=604800000 instead of 300000," in findings[0].text


@pytest.mark.parametrize("api", ["ListTransactions", "DescribeTransactions"])
def test_it_says_how_transactions_of_dead_runs_end_where_they_are_not_found(api, caplog):
    with TestBroker(api_versions={api: None}) as broker:
        tried(broker)
    assert "are ended by the brokers after its kafka.transaction.timeout.ms" in caplog.text


FAILURES = [
    ("plan", "CreateTopics", "TOPIC_AUTHORIZATION_FAILED", "needs CREATE on the topic or the cluster"),
    ("plan", "Produce", "TOPIC_AUTHORIZATION_FAILED", "needs WRITE and DESCRIBE"),
    ("plan", "Fetch", "TOPIC_AUTHORIZATION_FAILED", "READ and DESCRIBE_CONFIGS too"),
    ("plan", "InitProducerId", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "needs WRITE"),
    ("commit", "EndTxn", "INVALID_TXN_STATE", "INVALID_TXN_STATE"),
]


@pytest.mark.parametrize(("step", "api", "error", "says"), FAILURES)
def test_a_failure_ends_it_and_nothing_is_left(broker, step, api, error, says):
    broker.faults.answer(api, error)
    findings = tried(broker)
    failed = [each for each in findings if each.outcome is Outcome.FAILED]
    assert [each.step for each in failed] == [step]
    assert says in failed[0].text
    assert [each.step for each in findings] == [
        *STEPS[: STEPS.index(step) + 1], *(["delete"] if api != "CreateTopics" else []),
    ]  # fmt: skip
    assert left(broker) == []
    assert open_ids(broker) == []


def test_incident_a_topic_that_was_created_in_spite_of_an_error_stayed(broker, monkeypatch):
    """A controller that is deposed while it creates a topic says that it is none."""

    def deposed(cluster, topic, deadline):
        create_topic(cluster, topic, deadline)
        raise broker_error(ErrorCode.not_controller, f"CreateTopics of {topic.name}")

    monkeypatch.setattr(ledger_topic, "create_topic", deposed)
    findings = tried(broker)
    assert [(each.step, each.outcome) for each in findings[-2:]] == [
        ("plan", Outcome.FAILED), ("delete", Outcome.OK),
    ]  # fmt: skip
    assert left(broker) == []


def test_without_the_right_to_create_it_names_the_ledger_that_somebody_else_must_create(broker):
    """Incident: it advised to create the throw-away topic by hand, whose name the next check would not use."""
    broker.faults.answer("CreateTopics", "TOPIC_AUTHORIZATION_FAILED")
    text = tried(broker)[-1].text
    assert "--create --topic ledger --partitions 20 --replication-factor 1 --config cleanup.policy=compact" in text
    assert text.endswith("check it with `spark-kafka-sink check --transactional-id-prefix`, without --exactly-once.")


def test_without_transactions_nothing_is_created():
    with TestBroker(api_versions={"EndTxn": None}) as broker:
        finding = tried(broker)[0]
        assert (finding.step, finding.outcome) == ("plan", Outcome.FAILED)
        assert "lack APIs of transactions that exactly-once needs: " in finding.text
        assert "EndTxn" in finding.text
        assert broker.topics == ()


def test_a_topic_that_may_not_be_deleted_is_named(broker):
    broker.faults.answer("DeleteTopics", "TOPIC_AUTHORIZATION_FAILED", times=KEPT)
    finding = tried(broker)[-1]
    (topic,) = left(broker)
    assert (finding.step, finding.outcome) == ("delete", Outcome.UNTESTED)
    assert f"topic {topic} stays" in finding.text


@pytest.mark.parametrize("after", range(1, len(STEPS) + 1))
def test_ctrl_c_while_a_finding_is_printed_leaves_nothing(broker, after):
    findings = try_exactly_once(request(broker), SystemClock())
    for _ in range(after):
        next(findings)
    findings.close()
    assert left(broker) == []
    assert open_ids(broker) == []


@pytest.mark.parametrize("api", ["CreateTopics", "DescribeConfigs", "Produce", "Fetch", "EndTxn", "ListTransactions"])
def test_ctrl_c_while_it_waits_leaves_nothing(broker, api):
    broker.faults.run(api, interrupt_main)
    with pytest.raises(KeyboardInterrupt):
        tried(broker)
    assert broker.requests.of(api)
    assert left(broker) == []
    assert open_ids(broker) == []


def test_every_wait_has_a_deadline(broker, capsys):
    broker.faults.lose_answer("EndTxn", times=KEPT)
    options = {"max.block.ms": 600, "request.timeout.ms": 200, "delivery.timeout.ms": 300, "linger.ms": 0}
    findings = tried(broker, **options)
    assert texts([each for each in findings if each.outcome is Outcome.FAILED]).keys() == {"commit"}
    assert left(broker) == []


@pytest.mark.parametrize("flags", [[], ["--transactional-id-prefix", "orders"]])
def test_the_command_tries_it_after_the_check(broker, flags, capsys):
    arguments = ["check", "--bootstrap-server", broker.bootstrap_servers]
    assert main([*arguments, "--exactly-once", *flags]) == 0
    shown = capsys.readouterr().out
    assert shown.index("\ncluster\n") < shown.index("\nexactly-once\n")
    assert "\n  ok       delete" in shown
    assert left(broker) == []
    assert main([*arguments, *flags]) == 0
    assert "\nexactly-once\n" not in capsys.readouterr().out
    broker.faults.answer("EndTxn", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
    assert main([*arguments, "--exactly-once", *flags]) == 1
    assert "steps failed, first commit of exactly-once" in capsys.readouterr().out


LONG = "p" * 40_000


@pytest.mark.parametrize(
    ("option", "name", "says"),
    [
        *[(option, "a\udcff", "a lone surrogate") for option in ("--topic", "--transactional-id-prefix")],
        *[(option, LONG, "40000 bytes") for option in ("--topic", "--ledger-topic")],
        ("--ledger-topic", "", "--ledger-topic is empty"),
        ("--transactional-id-prefix", "", "--transactional-id-prefix is empty"),
        ("--transactional-id-prefix", "p" * 32_750, "is too long: a transactional id with it"),
    ],
    ids=lambda value: str(value)[:30].encode("ascii", "backslashreplace").decode(),
)
def test_incident_a_name_that_no_request_can_carry_was_tried(broker, option, name, says, capsys):
    """The check ended with a ValueError after it had created the topic, or replaced an empty name by another one."""
    arguments = ["check", "--bootstrap-server", broker.bootstrap_servers, "--exactly-once", option, name]
    assert main(arguments) == 1
    assert not broker.requests.of("CreateTopics")
    shown = capsys.readouterr().err
    assert option in shown
    assert says in shown
    assert "Traceback" not in shown


def test_a_ledger_with_the_longest_name_of_a_topic_can_be_tried(broker, capsys):
    """The name of the thrown-away topic had the suffix too many, and the check told a fault that no write has."""
    ledger = ["--ledger-topic", "x" * 249]
    assert main(["check", "--bootstrap-server", broker.bootstrap_servers, "--exactly-once", *ledger]) == 0
    assert left(broker) == []
