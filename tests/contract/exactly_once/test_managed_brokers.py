"""Exactly-once on brokers that refuse settings, keep some to themselves, or lack APIs."""

import logging

import pytest

from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.exactly_once import ledger_topic
from spark_kafka_sink.exactly_once.commit import commit_batch
from spark_kafka_sink.exactly_once.errors import PlanningError
from spark_kafka_sink.exactly_once.ledger_topic import SETTINGS
from spark_kafka_sink.testing import TestBroker
from spark_kafka_sink.testing.broker.faults import KEPT
from spark_kafka_sink.tools.cli.main import main
from tests.contract.brokers import broker_with
from tests.contract.exactly_once.runs import LEDGER, TOPIC, Query, committed, new_process
from tests.faults.test_hostile_broker import rewritten

ROWS = [[b"a"], [b"b"]]
UNCLEAN, SEGMENT = "unclean.leader.election.enable", "segment.ms"
OPTIONAL = {*SETTINGS, "min.insync.replicas"} - {"cleanup.policy"}
SECOND = {SEGMENT, "delete.retention.ms", "min.insync.replicas"}
"""What is set besides cleanup.policy if brokers refuse all settings."""
managed = broker_with(TOPIC, partitions=2)


@pytest.fixture
def warnings(caplog):
    caplog.set_level(logging.WARNING, logger="spark_kafka_sink.exactly_once")
    return lambda: [record.getMessage() for record in caplog.records]


def query(broker):
    return Query(broker.bootstrap_servers)


def works(broker):
    for number in range(2):
        query(broker).run(number, ROWS)
    assert committed(broker) == {b"a": 2, b"b": 2}


def settings_of(broker):
    """The ledger's own settings."""
    return broker._call(lambda server: dict(server.state.cluster.topics[LEDGER].settings.own))


@pytest.mark.parametrize("error", ["INVALID_CONFIG", "POLICY_VIOLATION"])
@pytest.mark.parametrize("refused", [*([name] for name in sorted(OPTIONAL)), sorted(OPTIONAL)], ids=", ".join)
def test_the_ledger_is_created_with_the_first_of_three_sets_that_is_not_refused(managed, warnings, error, refused):
    """Confluent Cloud takes the second one, MSK Serverless cleanup.policy only; Redpanda's refusal names nothing."""
    managed.refuse_topic_configs(*refused, error=error, message="Not supported configuration entry")
    works(managed)
    sets = [OPTIONAL, SECOND, set()]
    (taken,) = [each for each in sets if each.isdisjoint(refused)][:1]
    assert settings_of(managed).keys() == {"cleanup.policy"} | taken
    assert len(managed.requests.of("CreateTopics")) == 1 + sets.index(taken)
    (warning,) = warnings()
    assert warning.startswith(f"ledgerTopic {LEDGER} is weaker than wanted, because the brokers refuse more (Create")
    assert error in warning
    for name in OPTIONAL:  # the brokers' own value of the others is as strong
        assert (f"{name}=" in warning) is (name in {*SETTINGS} - {UNCLEAN} - taken)


def test_the_warning_says_what_is_in_effect_and_what_it_costs(managed, warnings):
    managed.refuse_topic_configs(SEGMENT)
    managed.hide_configs(UNCLEAN)
    works(managed)
    (warning,) = warnings()
    assert (
        f"Decisions may be lost when brokers fail, and batches be written twice: {UNCLEAN}=unknown instead of false. "
        "The start of a query reads more: segment.ms=604800000 instead of 300000, delete.retention.ms=86400000 instead "
        "of 1800000, min.cleanable.dirty.ratio=0.5 instead of 0.1. "
    ) in warning


def test_without_compaction_a_write_is_refused_at_planning(managed):
    managed.refuse_topic_configs("cleanup.policy", error="POLICY_VIOLATION")
    with pytest.raises(PlanningError, match=r"even with no setting but cleanup\.policy=compact: .*POLICY_VIOLATION"):
        query(managed).plan()
    assert LEDGER not in managed.topics
    assert len(managed.requests.of("CreateTopics")) == 3


def test_another_refusal_is_not_tried_again(managed):
    managed.faults.answer("CreateTopics", "INVALID_PARTITIONS", topic=LEDGER, times=KEPT)
    with pytest.raises(PlanningError, match="cannot be created: .*INVALID_PARTITIONS"):
        query(managed).plan()
    assert len(managed.requests.of("CreateTopics")) == 1


def test_unclean_elections_that_are_told_after_the_fallback_are_an_error(managed):
    managed.refuse_topic_configs("unclean.leader.election.enable")
    managed.faults.run("DescribeConfigs", lambda: unclean(managed), times=KEPT)
    with pytest.raises(PlanningError, match=r"unclean\.leader\.election\.enable is 'true', not 'false'"):
        query(managed).plan()


def unclean(broker):
    topic = broker._started.state.cluster.topics.get(LEDGER)
    if topic is not None:
        topic.settings.own["unclean.leader.election.enable"] = True


def test_a_setting_that_describe_configs_does_not_tell_is_no_key_error(managed, warnings):
    """It was: KeyError 'unclean.leader.election.enable' at the second start on Redpanda."""
    query(managed).run(0, ROWS)
    managed.hide_configs(UNCLEAN, "min.insync.replicas", SEGMENT)
    query(managed).run(1, ROWS)
    (warning,) = warnings()
    assert f"batches be written twice: {UNCLEAN}=unknown instead of false, min.insync.replicas=unknown" in warning


@pytest.mark.parametrize("hidden", [True, False])
def test_a_cleanup_policy_that_is_not_told_is_refused(managed, hidden):
    query(managed).run(0, ROWS)
    if hidden:
        managed.hide_configs("cleanup.policy")
    else:
        managed.set_topic_configs(LEDGER, {"cleanup.policy": "delete"})
    said = r"DescribeConfigs does not return its cleanup\.policy" if hidden else r"cleanup\.policy is 'delete'"
    with pytest.raises(PlanningError, match=said) as refused:
        query(managed).plan()
    assert ("Change its settings" in str(refused.value)) is not hidden


@pytest.mark.parametrize("name", ["min.insync.replicas", "min.cleanable.dirty.ratio", "max.message.bytes"])
def test_incident_a_setting_that_is_not_a_number_was_a_value_error(managed, name):
    query(managed).run(0, ROWS)
    new_process()
    ledger_topic._warned.clear()
    managed._call(lambda server: server.state.cluster.topics[LEDGER].settings.own.update({name: "many\n"}))
    with pytest.raises(KafkaError, match=rf"The DescribeConfigs response has {name}=many\\n, which is not a number"):
        query(managed).run(1, ROWS)


def test_brokers_without_describe_configs_were_told_to_change_the_settings_of_the_ledger():
    """ "ledgerTopic could lose decisions: … Change its settings (kafka-configs --alter), or name another topic." """
    with TestBroker(api_versions={"DescribeConfigs": None}) as broker:
        with pytest.raises(PlanningError) as refused:
            query(broker).plan()
        assert broker.topics == ()
    assert "Exactly-once needs the API DescribeConfigs" in str(refused.value)
    assert "deliveryGuarantee=at-least-once" in str(refused.value)
    assert "kafka-configs" not in str(refused.value)


def test_a_ledger_that_another_made_meanwhile_was_said_to_be_created_without_settings(managed, warnings):
    """The first CreateTopics was refused for a setting; by the second, the topic was there with all settings."""
    settings = {**SETTINGS, "min.insync.replicas": "1"}
    managed.refuse_topic_configs("segment.ms")
    answered = []

    def made_by_another():
        if answered:
            managed._started.state.cluster.create_topic(LEDGER, 20, 1, settings)
        answered.append(True)

    managed.faults.run("CreateTopics", made_by_another, times=2)
    query(managed).plan()
    assert warnings() == []


def test_the_replication_factor_is_not_below_the_brokers_default():
    with TestBroker(nodes=3, config={"default.replication.factor": 3}) as broker:
        broker.create_topic(TOPIC, partitions=2)
        broker.kill(3)
        with pytest.raises(PlanningError, match="INVALID_REPLICATION_FACTOR"):
            query(broker).plan()


@pytest.mark.parametrize("default", [1, 2])
def test_incident_a_ledger_with_fewer_replicas_was_told_to_be_as_strong(warnings, default):
    """Confluent Cloud: "Topic replication factor must be 3". The brokers' default was 1 instead of 2, and the warning
    ended: "The settings in effect are as strong."."""
    with TestBroker(nodes=2, config={"default.replication.factor": default}) as broker:
        broker.create_topic(TOPIC, partitions=2)
        broker.hide_configs("default.replication.factor")
        broker.faults.answer("CreateTopics", "POLICY_VIOLATION", times=KEPT, only=lambda each: factor(each) == 2)
        query(broker).plan()
        (warning,) = warnings()
        assert ("replication.factor=1 instead of 2" in warning) is (default == 1)


def test_brokers_that_cannot_choose_the_replication_factor_are_given_it(warnings):
    """Before Kafka 2.4 CreateTopics needs it."""
    with TestBroker(api_versions={"CreateTopics": (0, 3)}) as broker:
        broker.create_topic(TOPIC, partitions=2)
        broker.hide_configs("default.replication.factor")
        broker.refuse_topic_configs(*OPTIONAL)
        query(broker).plan()
        assert len(broker.requests.of("CreateTopics")) == 3
    assert "replication.factor" not in warnings()[0]


def test_a_missing_right_to_read_the_ledgers_settings_is_named(managed):
    """It was: "the principal needs WRITE and DESCRIBE on it; on ledgerTopic READ too", which it had."""
    managed.faults.answer("DescribeConfigs", "TOPIC_AUTHORIZATION_FAILED", times=KEPT)
    missing = "of __ledger: TOPIC_AUTHORIZATION_FAILED; the principal needs DESCRIBE_CONFIGS on the topic"
    with pytest.raises(PlanningError, match=missing):
        query(managed).plan()


def factor(request):
    (topic,) = request.body.topics
    return topic.replication_factor


@pytest.mark.parametrize("api", ["InitProducerId", "AddPartitionsToTxn", "EndTxn", "FindCoordinator"])
def test_without_transactions_a_write_is_refused_before_it_creates_anything(api):
    with TestBroker(api_versions={api: None}) as broker:
        with pytest.raises(PlanningError, match=f"lack APIs of transactions that exactly-once needs: .*{api}"):
            query(broker).plan()
        assert broker.topics == ()


def test_a_coordinator_of_groups_only_is_none_of_transactions():
    refused = pytest.raises(PlanningError, match="lack APIs of transactions.*FindCoordinator in versions 0 to 0")
    with TestBroker(like="3.9", api_versions={"FindCoordinator": (0, 0)}) as broker, refused:
        query(broker).plan()


# Without ListTransactions

UNLISTED = {
    "4.1": {"api_versions": {"ListTransactions": None}},
    "fails": {},
    "3.9, lists, but describes nothing": {"like": "3.9", "api_versions": {"DescribeTransactions": None}},
    "2.8": {"like": "2.8"},
}


@pytest.fixture(params=UNLISTED)
def unlisted(request):
    """Brokers that do not list transactions. Redpanda failed so before its first transaction (its issue 11947)."""
    with TestBroker(nodes=2, **UNLISTED[request.param]) as broker:
        broker.create_topic(TOPIC, partitions=2)
        if request.param == "fails":
            broker.faults.answer("ListTransactions", "UNKNOWN_SERVER_ERROR", times=KEPT)
        yield broker


def test_a_coordinator_that_starts_is_waited_for(managed, warnings):
    """Kafka responds so for a moment; it lists afterwards."""
    managed.faults.answer("ListTransactions", "COORDINATOR_NOT_AVAILABLE", times=2)
    query(managed).run(0, ROWS)
    assert warnings() == []


def test_a_dead_runs_transactions_end_by_their_timeout(unlisted, warnings):
    query(unlisted).run(0, [[b"x"]] * 2)
    query(unlisted).tasks(query(unlisted).plan(), 1, [[b"y"]] * 4)
    query(unlisted).run(1, [[b"y"]] * 2)
    left = {f"app-{task}" for task in (2, 3)}
    assert {unlisted.transaction_state(each) for each in left} == {"Ongoing"}
    for each in left:  # what kafka.transaction.timeout.ms does to those that hold up readers
        unlisted.expire_transaction(each)
    assert committed(unlisted) == {b"x": 2, b"y": 2}
    (warning,) = [each for each in warnings() if "do not list transactions" in each or "do not describe them" in each]
    assert "an earlier run left open are ended by the brokers after its kafka.transaction.timeout.ms" in warning


def test_an_abort_ends_what_was_reported(unlisted):
    query(unlisted).run(0, ROWS)
    reports = query(unlisted).tasks(query(unlisted).plan(), 1, ROWS)
    assert query(unlisted).abort([reports[0], None]).aborted == 1


@pytest.mark.parametrize(
    ("api", "fault"),
    [
        ("ListTransactions", "hangs"),
        ("ListTransactions", "COORDINATOR_NOT_AVAILABLE"),
        ("DescribeTransactions", "hangs"),
    ],
)
@pytest.mark.parametrize("request_timeout_ms", [500, 3_600_000])
def test_a_list_that_never_came_took_the_whole_time_of_planning(managed, warnings, api, fault, request_timeout_ms):
    """Planning failed after max.block.ms, although no write depends on the list."""
    query(managed).run(0, ROWS)
    query(managed).tasks(query(managed).plan(), 1, ROWS)
    if fault == "hangs":
        managed.faults.lose_answer(api, times=KEPT)
    else:
        managed.faults.answer(api, fault, times=KEPT)
    options = {"max.block.ms": 8_000, "request.timeout.ms": request_timeout_ms, "delivery.timeout.ms": 7_200_000}
    Query(managed.bootstrap_servers, options=options).plan(1)
    (warning,) = [each for each in warnings() if "list transactions" in each]
    assert f"in time ({api}" in warning


def test_a_description_of_an_id_that_nobody_asked_for_ended_its_transaction(managed, warnings):
    """A broker responded with the description and the identity of another id, whose transaction was aborted."""
    query(managed).run(0, ROWS)
    other = Query(managed.bootstrap_servers, name="its")
    other.tasks(other.plan(), 0, ROWS)
    query(managed).tasks(query(managed).plan(), 1, ROWS)
    managed.faults.mangle("DescribeTransactions", lambda frame: frame.replace(b"app-0", b"its-0"), times=KEPT)
    described, owner = (managed._started.state.transactions.transactions[each] for each in ("app-0", "its-0"))
    described.producer_id, described.epoch = owner.producer_id, owner.epoch
    query(managed).plan(1)
    assert managed.transaction_state("its-0") == "Ongoing"
    (warning,) = warnings()
    assert "The DescribeTransactions response lacks app-0" in warning


@pytest.mark.parametrize("half_of", [b"app-driver", b"app-0"])
def test_incident_half_an_identity_in_a_description_counted_as_another_transaction(managed, half_of):
    """So the tasks of a run that was not fenced wrote nothing, or its commit was refused."""
    half = rewritten("describe_transactions", "transaction_states", producer_epoch=-1)
    plan = query(managed).plan()
    managed.faults.mangle("DescribeTransactions", lambda it: half(it) if half_of in it else it, times=KEPT)
    reports = query(managed).tasks(plan, 0, ROWS)
    commit_batch(query(managed).settings, reports)
    assert committed(managed) == {b"a": 1, b"b": 1}


def test_a_list_that_is_forbidden_was_said_to_need_idempotent_write(managed, warnings):
    managed.faults.answer("ListTransactions", "CLUSTER_AUTHORIZATION_FAILED", times=KEPT)
    query(managed).plan()
    (warning,) = warnings()
    assert "CLUSTER_AUTHORIZATION_FAILED; the principal needs DESCRIBE on the transactional ids)" in warning


def test_the_right_to_write_with_idempotence_is_named_where_it_is_missing(managed):
    managed.faults.answer("InitProducerId", "CLUSTER_AUTHORIZATION_FAILED", times=KEPT)
    with pytest.raises(PlanningError, match="CLUSTER_AUTHORIZATION_FAILED; the principal needs IDEMPOTENT_WRITE"):
        query(managed).plan()


def test_the_operators_commands_say_that_they_do_not_see_what_is_open(unlisted, capsys, warnings):
    query(unlisted).run(0, ROWS)
    query(unlisted).tasks(query(unlisted).plan(), 1, ROWS)
    command = ["--bootstrap-server", unlisted.bootstrap_servers, "--ledger-topic", LEDGER]
    assert main(["transactions", "list", *command]) == 0
    shown = capsys.readouterr().out
    assert "app (query)" in shown
    assert "0 transactions open" in shown
    assert "so open transactions are not shown, and abort does not end them" in warnings()[-1]
    assert main(["transactions", "abort", "--prefix", "app", "--yes", *command]) == 0
    assert unlisted.transaction_state("app-1") == "Ongoing"
