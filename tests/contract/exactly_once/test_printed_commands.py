"""Each command that an error or a log line prints does what the text says, whatever the names in it."""

import re
import shlex

import pytest

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.shell import server_options
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.exactly_once.values import WriteKind
from spark_kafka_sink.network.diagnosis import check_command
from spark_kafka_sink.tools.cli.main import main
from tests.contract.brokers import broker_with
from tests.contract.exactly_once.runs import TOPIC, Query

broker = broker_with(TOPIC, like=["4.1"])

ODD = ["day-*", r"day-\*", "-x", "--yes", "a b'c\"d", "день", "$(exit 9) `x` !", "*", "-*", "\\"]


def printed(text: str) -> list[str]:
    """The arguments of the command in the text, as a shell passes them on."""
    program, *arguments = shlex.split(re.search(r"spark-kafka-sink .*--ledger-topic[ =]\S*?(?=`|$|\)| and )", text)[0])
    assert program == "spark-kafka-sink"
    return arguments


@pytest.mark.parametrize("name", ODD)
def test_incident_the_printed_forget_of_one_job_removed_the_entries_of_others(broker, capsys, name):
    job = Query(broker.bootstrap_servers, name, "q", WriteKind.VERSION, ledger="-ledger")
    neighbors = [Query(broker.bootstrap_servers, each, "q", WriteKind.VERSION, ledger="-ledger") for each in ODD]
    for each in [job, *(each for each in neighbors if each.name != name)]:
        each.run(5, [[b"a"]])
    with pytest.raises(ExactlyOnceError, match="is smaller than the last one") as refused:
        job.plan(4)
    assert main([*printed(str(refused.value)), "--yes"]) == 0
    assert capsys.readouterr().out.endswith("removed 1 entry\n")
    job.plan(4)
    for each in neighbors:
        if each.name != name:
            assert each.plan(5).entries


@pytest.mark.parametrize("name", ODD)
def test_each_command_of_an_error_does_what_the_error_says(broker, capsys, name):
    query = Query(broker.bootstrap_servers, name, ledger="-ledger")

    def fails():
        raise OSError("an error that is not Kafka's")

    outcome = query.commit(query.tasks(query.plan(), 0, [[b"a"]]), fails, at="before done")
    assert main([*printed(outcome.cleanup_failure), "--yes"]) == 0
    query.task(query.plan(), 1, 0, [b"left"])
    assert main([*printed(query.settings.command("abort")), "--yes"]) == 0
    assert capsys.readouterr().out.endswith("aborted 1 transaction\n")
    job = Query(broker.bootstrap_servers, name, kind=WriteKind.VERSION, ledger="-ledger")
    with pytest.raises(ExactlyOnceError, match="remove its entry: ") as refused:
        job.plan()
    assert main([*printed(str(refused.value)), "--yes"]) == 0
    job.plan()


def test_the_printed_check_takes_a_topic_that_begins_with_a_hyphen(broker, capsys):
    broker.create_topic("-t")
    config = ProducerConfig.parse({"bootstrap.servers": broker.bootstrap_servers})
    assert main(shlex.split(check_command(config, "-t"))[1:]) == 0
    assert "topic -t" in capsys.readouterr().out


def test_the_servers_of_a_command_are_those_of_the_options():
    config = ProducerConfig.parse({"bootstrap.servers": "[::1]:9092,b:9093", "security.protocol": "SSL"})
    assert server_options(config) == "--bootstrap-server '[::1]:9092,b:9093' --command-config client.properties"
