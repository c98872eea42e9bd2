"""``topicCreation`` and ``topic.creation.default.*`` → ``TopicCreation``."""

import pytest

from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.spark.options import SinkOptions, TopicCreation


def parse(**options):
    return SinkOptions.parse({"kafka.bootstrap.servers": "a:1", "topic": "t"} | options)


def faults(**options):
    with pytest.raises(ConfigError) as raised:
        parse(**options)
    return raised.value.faults


def test_by_default_the_brokers_decide_as_for_javas_producer():
    assert parse() == parse(topiccreation="broker")
    assert (parse().topic_creation, parse().producer.allow_auto_create_topics) == (None, True)


@pytest.mark.parametrize("policy", ["never", "create"])
def test_no_request_of_a_task_lets_brokers_create_a_topic(policy):
    options = parse(topiccreation=policy)
    assert (options.topic_creation, options.producer.allow_auto_create_topics) == (
        TopicCreation(create=policy == "create"), False,
    )  # fmt: skip


def test_the_settings_of_new_topics_have_connects_names():
    options = {
        "topic.creation.default.partitions": "6",
        "topic.creation.default.replication.factor": "3",
        "topic.creation.default.retention.ms": " 1000 ",
        "topic.creation.default.cleanup.policy": "compact",
    }
    assert parse(topiccreation="create", **options).topic_creation == TopicCreation(
        True, 6, 3, (("cleanup.policy", "compact"), ("retention.ms", "1000"))
    )
    assert faults(**options) == (
        "topic.creation.default.cleanup.policy, topic.creation.default.partitions, "
        "topic.creation.default.replication.factor, topic.creation.default.retention.ms: only with "
        "topicCreation=create.",
    )


@pytest.mark.parametrize(("given", "meant"), [("partition", "partitions"), ("replicaton.factor", "replication.factor")])
def test_a_misspelt_count_is_no_setting_of_a_topic(given, meant):
    name = f"topic.creation.default.{given}"
    (fault,) = faults(topiccreation="create", **{name: "6"})
    assert fault == f"{name} is not a setting of a topic; did you mean topic.creation.default.{meant}?"


def test_minus_1_is_the_brokers_default_and_0_is_refused():
    assert parse(topiccreation="create", **{"topic.creation.default.partitions": "-1"}) == parse(topiccreation="create")
    assert faults(topiccreation="create", **{"topic.creation.default.replication.factor": "0"}) == (
        "topic.creation.default.replication.factor must be a whole number of at least 1, or -1, but is '0'.",
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("topic.creation.groups", "one group of settings, topic.creation.default.<setting>"),
        ("topic.creation.logs.partitions", "one group of settings"),
        ("topic.creation.default.include", "for every topic that is created"),
        ("topic.creation.default.", "lacks the name of a topic's setting"),
    ],
)
def test_connects_groups_of_topics_are_refused(name, said):
    (fault,) = faults(topiccreation="create", **{name: "x"})
    assert fault.startswith(f"{name} ")
    assert said in fault


@pytest.mark.parametrize(("policy", "flag"), [("never", "true"), ("create", "TRUE"), ("broker", "false")])
def test_a_flag_of_the_producer_that_contradicts_is_one_error(policy, flag):
    assert faults(topiccreation=policy, **{"kafka.allow.auto.create.topics": flag}) == (
        f"kafka.allow.auto.create.topics={flag.lower()} and topicCreation={policy} contradict each other: leave out "
        "kafka.allow.auto.create.topics.",
    )


@pytest.mark.parametrize(("policy", "flag"), [("never", "false"), ("broker", "true")])
def test_a_flag_that_says_the_same_is_accepted(policy, flag):
    options = parse(topiccreation=policy, **{"kafka.allow.auto.create.topics": flag})
    assert options == parse(topiccreation=policy)
