"""Exactly-once on brokers that refuse settings, keep some to themselves, or lack APIs."""

from __future__ import annotations

import logging

import pytest

from spark_kafka_sink.exactly_once import ledger_topic
from spark_kafka_sink.exactly_once.errors import PlanningError
from spark_kafka_sink.exactly_once.ledger_topic import SETTINGS
from spark_kafka_sink.testing import TestBroker
from spark_kafka_sink.testing.broker.faults import KEPT
from tests.unit.exactly_once.runs import LEDGER, TOPIC, Query, committed, new_process

ROWS = [[b"a"], [b"b"]]
OPTIONAL = ("unclean.leader.election.enable", "min.insync.replicas", "delete.retention.ms", "segment.ms",
            "min.cleanable.dirty.ratio")  # fmt: skip


@pytest.fixture
def managed():
    with TestBroker() as broker:
        broker.create_topic(TOPIC, partitions=2)
        ledger_topic._warned.clear()
        yield broker
    new_process()
    ledger_topic._warned.clear()


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


def creations(broker):
    return sum(seen.api == "CreateTopics" for seen in broker.requests)


@pytest.mark.parametrize("error", ["INVALID_CONFIG", "POLICY_VIOLATION"])
@pytest.mark.parametrize("message", [None, "Not supported configuration entry"], ids=["named", "unnamed"])
@pytest.mark.parametrize("refused", [OPTIONAL[:1], OPTIONAL[3:4], OPTIONAL[1:4], OPTIONAL], ids=len)
def test_the_ledger_has_every_setting_that_the_brokers_take(managed, warnings, error, message, refused):
    """Redpanda refuses with INVALID_CONFIG and names nothing; MSK Serverless takes cleanup.policy only."""
    managed.refuse_topic_configs(*refused, error=error, message=message)
    works(managed)
    assert settings_of(managed).keys() == {*SETTINGS, "min.insync.replicas"} - {*refused}
    (warning,) = warnings()
    assert warning.startswith(f"commitLogTopic {LEDGER} was created without ")
    for name in refused:
        assert name in warning.partition(", because the brokers refuse more (")[0]
    assert error in warning
    assert creations(managed) <= (len(refused) + 1 if message is None else 32)


def test_the_warning_says_what_is_in_effect_and_what_it_costs(managed, warnings):
    managed.refuse_topic_configs("segment.ms", "delete.retention.ms", "unclean.leader.election.enable")
    managed.hide_configs("unclean.leader.election.enable")
    works(managed)
    (warning,) = warnings()
    assert "Not told, so perhaps weaker: unclean.leader.election.enable (if every replica in sync fails" in warning
    assert "In effect: segment.ms=604800000, delete.retention.ms=86400000 (compaction comes later" in warning


def test_settings_in_effect_that_are_as_strong_cost_nothing(managed, warnings):
    managed.refuse_topic_configs("unclean.leader.election.enable")
    works(managed)
    (warning,) = warnings()
    assert warning.endswith("The settings in effect are as strong.")


def test_without_compaction_a_write_is_refused_at_planning(managed):
    managed.refuse_topic_configs("cleanup.policy", error="POLICY_VIOLATION")
    with pytest.raises(PlanningError, match=r"even with no setting but cleanup\.policy=compact: .*POLICY_VIOLATION"):
        query(managed).plan()
    assert LEDGER not in managed.topics


def test_another_refusal_is_not_tried_again(managed):
    managed.faults.answer("CreateTopics", "INVALID_PARTITIONS", topic=LEDGER, times=KEPT)
    with pytest.raises(PlanningError, match="cannot be created: .*INVALID_PARTITIONS"):
        query(managed).plan()
    assert creations(managed) == 1


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
    managed.hide_configs("unclean.leader.election.enable", "min.insync.replicas", "segment.ms")
    query(managed).run(1, ROWS)
    (warning,) = warnings()
    assert "The brokers do not tell unclean.leader.election.enable (if every replica" in warning
    assert "kafka-configs" not in warning


@pytest.mark.parametrize("hidden", [True, False])
def test_a_cleanup_policy_that_is_not_told_is_refused(managed, hidden):
    query(managed).run(0, ROWS)
    if hidden:
        managed.hide_configs("cleanup.policy")
    else:
        managed.set_topic_configs(LEDGER, {"cleanup.policy": "delete"})
    said = r"DescribeConfigs does not tell its cleanup\.policy" if hidden else r"cleanup\.policy is 'delete'"
    with pytest.raises(PlanningError, match=said):
        query(managed).plan()


def test_brokers_that_describe_nothing_are_refused_as_they_do_not_tell_the_policy():
    refused = pytest.raises(PlanningError, match=r"DescribeConfigs does not tell its cleanup\.policy")
    with TestBroker(api_versions={"DescribeConfigs": None}) as broker, refused:
        query(broker).plan()
    new_process()


def test_the_replication_factor_is_not_below_the_brokers_default():
    with TestBroker(nodes=3, config={"default.replication.factor": 3}) as broker:
        broker.create_topic(TOPIC, partitions=2)
        broker.kill(3)
        with pytest.raises(PlanningError, match="INVALID_REPLICATION_FACTOR"):
            query(broker).plan()
    new_process()


def test_a_default_replication_factor_that_is_not_told_may_be_the_only_one(warnings):
    """Confluent Cloud: "Topic replication factor must be 3"."""
    with TestBroker(nodes=2, config={"default.replication.factor": 1}) as broker:
        broker.create_topic(TOPIC, partitions=2)
        broker.hide_configs("default.replication.factor")
        broker.faults.answer("CreateTopics", "POLICY_VIOLATION", times=KEPT, only=lambda each: factor(each) == 2)
        ledger_topic._warned.clear()
        works(broker)
        (warning,) = warnings()
        assert "with the brokers' default replication factor instead of 2" in warning
        assert settings_of(broker).keys() == {*SETTINGS}
    new_process()


def factor(request):
    (topic,) = request.body.topics
    return topic.replication_factor


@pytest.mark.parametrize("api", ["InitProducerId", "AddPartitionsToTxn", "EndTxn", "FindCoordinator"])
def test_without_transactions_a_write_is_refused_before_it_creates_anything(api):
    with TestBroker(api_versions={api: None}) as broker:
        with pytest.raises(PlanningError, match=f"no transactions, which exactly-once needs: .*{api}"):
            query(broker).plan()
        assert broker.topics == ()
    new_process()


def test_a_coordinator_of_groups_only_is_none_of_transactions():
    refused = pytest.raises(PlanningError, match="no transactions.*FindCoordinator in versions 0 to 0")
    with TestBroker(like="3.9", api_versions={"FindCoordinator": (0, 0)}) as broker, refused:
        query(broker).plan()
    new_process()
