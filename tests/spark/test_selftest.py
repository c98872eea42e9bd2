"""``spark-kafka-sink selftest`` as a user runs it, on a real Kafka."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient

from spark_kafka_sink.exactly_once.ledger_topic import SETTINGS
from spark_kafka_sink.testing import Listener, LocalKafka
from spark_kafka_sink.testing.kafka_security import properties_text
from spark_kafka_sink.tools.self_test import has_format
from tests.support.child_processes import PYTHON_PATH
from tests.support.waiting import DEADLINE_S, until

ROOT = Path(__file__).parents[2]
LIMIT_S = 280  # an idle machine needs a tenth of it

pytestmark = pytest.mark.jvm


@contextmanager
def selftest(kafka, tmp_path, *arguments):
    """Runs the command without pandas, which the package does not install, except on Spark 3.5, whose mapInArrow needs
    it. Nothing that it made may be left when it has ended.
    """
    before = topics(kafka)
    (tmp_path / "no-pandas").mkdir()
    if has_format():
        (tmp_path / "no-pandas" / "pandas.py").write_text("raise ImportError('hidden by a test')\n")
    path = os.pathsep.join([str(tmp_path / "no-pandas"), PYTHON_PATH])
    environment = {**os.environ, "PYTHONPATH": path, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [
            sys.executable, "-m", "spark_kafka_sink.tools.cli.main", "selftest",
            "--bootstrap-server", kafka.bootstrap_servers, "--master", "local[2]", *arguments,
        ],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
    until(lambda: topics(kafka), before.__eq__, f"topics of this run are left beside {before}")
    assert [path.name for path in tmp_path.iterdir() if "selftest" in path.name] == []


def topics(kafka):
    """All but the brokers' own."""
    names = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(timeout=DEADLINE_S).topics
    return {*names} - {"__consumer_offsets", "__transaction_state", "__share_group_state"}


@pytest.mark.timeout(LIMIT_S)
def test_every_row_is_read_back_and_nothing_is_left(local_kafka, tmp_path):
    with selftest(local_kafka, tmp_path) as process:
        shown, told = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, shown + told
    assert "Traceback" not in told
    for step in (
        "at-least-once, batch: 10,000 rows, ", "at-least-once, stream, stopped and started again: 10,000 rows, ",
        "exactly-once, batch: 10,000 rows, ", "exactly-once, batch, the same txnVersion again: no row was added",
        "exactly-once, stream, stopped and started again: 10,000 rows, ",
    ):  # fmt: skip
        assert f"\nok      {step}" in shown
    assert "\nwhole: every row was read back\n" in shown
    private = (local_kafka.bootstrap_servers.rpartition(":")[0], str(tmp_path), str(ROOT))
    assert [text for text in private if text in shown] == []


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize(
    ("after", "send"),
    [
        # A terminal sends Ctrl-C to all processes of the command, kill to one.
        pytest.param("Spark: ", lambda process: os.killpg(process.pid, signal.SIGINT), id="Ctrl-C"),
        pytest.param("ok      exactly-once", lambda process: process.send_signal(signal.SIGTERM), id="SIGTERM"),
    ],
)
def test_an_interrupted_run_leaves_nothing(local_kafka, tmp_path, after, send):
    with selftest(local_kafka, tmp_path) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(after):
                break
        send(process)
        rest, told = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130, rest + told
    assert "Traceback" not in told
    assert "whole" not in rest, "an interrupted run has no result"


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("secure_kafka", ["4.4.0"], indirect=True, scope="session")
@pytest.mark.parametrize("ids", ["own", "others"])
def test_rights_for_its_prefix_are_enough_and_a_missing_one_is_named(secure_kafka, tmp_path, ids):
    """It needs no right to a group, though librdkafka asks for the coordinator of its own."""
    prefix = f"rights{uuid4().hex[:8]}"
    for operation in ("CREATE", "DESCRIBE", "DESCRIBE_CONFIGS", "READ", "WRITE", "DELETE"):
        secure_kafka.allow("client", operation, "TOPIC", prefix, prefixed=True)
    # With its first right for anybody, a name is not everybody's.
    secure_kafka.allow("other", "READ", "GROUP", prefix, prefixed=True)
    secure_kafka.allow("client" if ids == "own" else "other", "WRITE", "TRANSACTIONAL_ID", prefix, prefixed=True)
    options = secure_kafka.client_options("SASL_TLS", mechanism="SCRAM-SHA-512")
    line = ["--bootstrap-server", options.pop("bootstrap.servers"), "--prefix", prefix]
    (tmp_path / "client.properties").write_text(properties_text(options))
    with selftest(secure_kafka, tmp_path, *line, "--command-config", str(tmp_path / "client.properties")) as process:
        shown, told = process.communicate(timeout=LIMIT_S)
    assert "client-secret" not in shown + told
    assert "ok      at-least-once, stream, stopped and started again: 10,000 rows" in shown
    if ids == "own":
        assert process.returncode == 0, shown + told
        assert "whole: every row was read back" in shown
    else:
        assert process.returncode == 1, shown + told
        assert "FAILED  exactly-once, batch: the reason is on standard error" in shown
        assert shown.endswith("untested exactly-once, stream, stopped and started again\nNOT whole\n")
        assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in told


@pytest.mark.slow
@pytest.mark.timeout(2 * LIMIT_S)
def test_a_principal_who_may_neither_create_nor_delete_topics_tries_both_guarantees(tmp_path):
    """A cluster of three without a right for anybody but those below, as the page Security documents them for writes;
    READ on the topic is for reading back."""
    properties = {"allow.everyone.if.no.acl.found": "false", "auto.create.topics.enable": "false"}
    listeners = {"SASL_TLS": Listener("SASL_SSL", users={"client": "client-secret"})}
    with LocalKafka(3, listeners=listeners, properties=properties) as kafka:
        kafka.create_topic("rows", 4)
        kafka.create_topic("decisions", 20, {**SETTINGS, "min.insync.replicas": "2"})
        for operation in ("READ", "WRITE"):
            kafka.allow("client", operation, "TOPIC", "rows")
        for operation in ("READ", "WRITE", "DESCRIBE_CONFIGS"):
            kafka.allow("client", operation, "TOPIC", "decisions")
        kafka.allow("client", "WRITE", "TRANSACTIONAL_ID", "orders-", prefixed=True)
        options = kafka.client_options("SASL_TLS", mechanism="SCRAM-SHA-512")
        line = ["--bootstrap-server", options.pop("bootstrap.servers"), "--prefix", "orders"]
        line += ["--topic", "rows", "--ledger-topic", "decisions"]
        (tmp_path / "client.properties").write_text(properties_text(options))
        line += ["--command-config", str(tmp_path / "client.properties")]
        with selftest(kafka, tmp_path, *line) as process:
            shown, told = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0, shown + told
        assert "\nok      connection of the driver: no step failed\n" in shown
        assert "\nok      exactly-once, batch, the same txnVersion again: no row was added\n" in shown
        assert "\nwhole: every row was read back\n" in shown
        assert "weaker than wanted" not in told
        assert "Topic rows keeps the rows of this run\nLedger decisions keeps the entries of this run" in told
