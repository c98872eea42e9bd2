"""What a self-test refuses before Spark starts, how it compares rows, and how it reads its topics on TestBroker."""

import logging
from hashlib import sha256

import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import ConfigError, KafkaError
from spark_kafka_sink.exactly_once.committer import Cluster
from spark_kafka_sink.testing import TestBroker
from spark_kafka_sink.tools.cli.main import main
from spark_kafka_sink.tools.findings import Outcome
from spark_kafka_sink.tools.self_test import STEPS, Plan, compare
from spark_kafka_sink.tools.trial_topics import Existing, TrialTopics

SERVERS = ("--bootstrap-server", "127.0.0.1:1")


@pytest.fixture(autouse=True)
def levels_as_before():
    loggers = [logging.getLogger(name) for name in ("py4j", "spark_kafka_sink")]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (["--prefix", ""], "--prefix is empty"),
        (["--prefix", "a/b"], "a/b"),
        (["--checkpoint-location", ""], "--checkpoint-location is empty"),
        (["--command-property", "linger=1"], "did you mean linger.ms?"),
        (["--remote", "sc://h"], "selftest needs checkpointLocation"),
        (["--command-property", "max.block.ms=100"], "127.0.0.1:1"),
    ],
)
def test_what_could_not_run_is_told_on_stderr_with_exit_code_2(line, says, capsys):
    assert main(["selftest", *SERVERS, *line]) == 2
    shown = capsys.readouterr()
    assert says in shown.err
    assert shown.out == ""


def test_a_topic_of_the_user_that_is_missing_ends_it_before_spark_starts(capsys):
    with TestBroker() as broker:
        assert main(["selftest", "--bootstrap-server", broker.bootstrap_servers, "--topic", "missing"]) == 2
        assert broker.topics == ()
    assert "there is no topic missing" in capsys.readouterr().err


def test_options_with_names_of_the_users_own_are_refused():
    options = {"kafka.bootstrap.servers": "h:1", "topic": "orders", "kafka.linger.ms": "1"}
    with pytest.raises(ConfigError, match="^topic: selftest has topics and names of its own"):
        Plan.of(options, "p", is_connect=False)


def test_every_name_begins_with_the_prefix_so_that_prefixed_rights_apply():
    plan = Plan.of({"kafka.bootstrap.servers": "h:1"}, "orders", is_connect=False)
    written = [plan.write_options(*step) for step in STEPS]
    named = ("topic", "ledgerTopic", "transactionalIdPrefix", "txnAppId")
    names = {options[name] for options in written for name in named if name in options}
    assert len(names) == 7
    assert [name for name in names if not name.startswith(f"orders-{plan.mark}")] == []


def rows(mark, *numbers):
    return [
        (b"%d" % number, f"{mark} {sha256(f'{mark}:{number}'.encode()).hexdigest()}".encode()) for number in numbers
    ]


@pytest.mark.parametrize(
    ("read", "repeats_allowed", "says"),
    [
        ([rows("m", 0, 1), rows("m", 2)], False, None),
        ([rows("m", 0, 1, 1, 2)], True, None),
        ([rows("m", 0, 1, 1, 2)], False, "1 duplicates, of 3 rows"),
        ([rows("m", 0, 2)], True, "1 missing"),
        ([rows("m-b", 0, 0), rows("m", 0, 1, 2)], False, None),
        ([rows("other", 0), rows("m", 0, 1, 2)], True, "1 records that match no row"),
        ([[(None, None)], rows("m", 0, 1, 2)], True, "1 records that match no row"),
        ([rows("m", 0, 1, 2, 3)], True, "1 records that match no row"),
    ],
)
def test_rows_are_compared_one_by_one(read, repeats_allowed, says):
    if says is None:
        compare(iter(read), "m", repeats_allowed=repeats_allowed, rows=3)
        return
    with pytest.raises(KafkaError, match=says):
        compare(iter(read), "m", repeats_allowed=repeats_allowed, rows=3)


@pytest.mark.parametrize("like", ["4.1", "2.1"])
def test_a_topic_is_created_read_and_deleted(like):
    with TestBroker(nodes=2, like=like) as broker:
        config = ProducerConfig.parse({"bootstrap.servers": broker.bootstrap_servers, "max.block.ms": 30_000})
        cluster = Cluster(config, SystemClock())
        topics = TrialTopics(cluster, config)
        topics.create("t")
        with KafkaProducer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
            for number in range(100):
                producer.send(ProducerRecord("t", value=b"%d" % number, key=b"k%d" % number))
        read = sorted(record for records in topics.read("t") for record in records)
        assert read == sorted((b"k%d" % number, b"%d" % number) for number in range(100))
        with pytest.raises(KafkaError, match="topic t has records: give an empty topic"):
            TrialTopics(cluster, config, Existing("t")).require_empty()
        topics.also_delete("never made")
        assert {outcome for outcome, _ in topics.delete()} == {Outcome.OK}
        assert not broker.topics
        cluster.close()
