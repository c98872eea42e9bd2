"""``spark-kafka-sink certify`` as a user runs it, on a real Kafka."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient

from spark_kafka_sink.testing.kafka_security import properties_text
from tests.waiting import DEADLINE_S, until

ROOT = Path(__file__).parents[2]
LIMIT_S = 280  # an idle machine needs a tenth of it
FOLDER = "spark-kafka-sink-certify-"

pytestmark = pytest.mark.jvm


@contextmanager
def certify(kafka, tmp_path, *arguments):
    """Runs the command without pandas, which the package does not install. Nothing that it made may be left when it
    has ended.

    Incident: the first task was one of mapInArrow, which needs pandas, so an environment as the quickstart makes it
    was "NOT certified".
    """
    before = topics(kafka)
    (tmp_path / "no-pandas").mkdir()
    (tmp_path / "no-pandas" / "pandas.py").write_text("raise ImportError('hidden by a test')\n")
    path = os.pathsep.join([str(tmp_path / "no-pandas"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [
            sys.executable, "-m", "spark_kafka_sink.tools.cli.main", "certify",
            "--bootstrap-server", kafka.bootstrap_servers, "--master", "local[2]", *arguments,
        ],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
    until(lambda: topics(kafka), before.__eq__, f"topics of this run are left beside {before}")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(FOLDER)] == []


def topics(kafka):
    """All but the brokers' own. The name of a ledger begins with "__", too, and a ledger that stayed was not seen."""
    names = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(timeout=DEADLINE_S).topics
    return {*names} - {"__consumer_offsets", "__transaction_state", "__share_group_state"}


@pytest.mark.timeout(LIMIT_S)
def test_both_guarantees_are_certified_and_nothing_is_left(local_kafka, tmp_path):
    with certify(local_kafka, tmp_path, "--rows", "1001") as process:
        shown, told = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, shown + told
    assert "Traceback" not in told
    _, found, verdict = shown.partition("```text\n")
    assert found, shown
    assert verdict.startswith("spark-kafka-sink ")
    assert ": certified, no step failed (" in verdict
    for guarantee in ("at-least-once", "exactly-once"):
        assert f"ok       {guarantee}, batch: 1,001 rows in " in verdict
        assert f"ok       {guarantee}, read batch: 1,001 records as written" in verdict
        assert f"ok       {guarantee}, stream: 1,000 rows in 2 micro-batches, over a restart, in " in verdict
        assert f"ok       {guarantee}, read stream: 1,000 records as written" in verdict
    assert "ok       clean-up, delete: 6 topics, the checkpoints" in verdict
    assert "read by    confluent-kafka" in verdict
    assert local_kafka.bootstrap_servers.rpartition(":")[0] not in verdict


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize(
    ("after", "send"),
    [
        # A terminal sends Ctrl-C to all processes of the command, kill to one.
        pytest.param("read batch", lambda process: os.killpg(process.pid, signal.SIGINT), id="Ctrl-C in a stream"),
        pytest.param("check", lambda process: process.send_signal(signal.SIGTERM), id="SIGTERM in exactly-once"),
        # A closed terminal sends SIGHUP to all processes, too. It once ended Spark's JVM, so the checkpoints stayed.
        pytest.param("read batch", lambda process: os.killpg(process.pid, signal.SIGHUP), id="closed terminal"),
    ],
)
def test_an_interrupted_run_leaves_nothing(local_kafka, tmp_path, after, send):
    with certify(local_kafka, tmp_path, "--rows", "2000000") as process:
        assert process.stdout is not None
        shown = []
        for line in process.stdout:
            shown.append(line)
            if line.startswith(f"  ok       {after} "):
                break
        send(process)
        rest, told = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130, "".join(shown) + rest + told
    assert "Traceback" not in told
    assert "\nclean-up\n  ok       delete " in f"\n{rest}", rest + told
    assert "```" not in rest, "an interrupted run has no verdict"


RIGHTS = [("TOPIC", each) for each in ("CREATE", "DESCRIBE", "DESCRIBE_CONFIGS", "READ", "WRITE", "DELETE")]


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("secure_kafka", ["4.4.0"], indirect=True, scope="session")
def test_without_rights_on_transactional_ids_and_groups_at_least_once_is_certified(secure_kafka, tmp_path):
    """A sink needs no group, so the package reads itself what librdkafka may not."""
    prefix = f"rights{uuid4().hex[:8]}"
    for resource, operation in RIGHTS:
        secure_kafka.allow("client", operation, resource, prefix, prefixed=True)
    for resource in ("TRANSACTIONAL_ID", "GROUP"):  # with its first right for anybody, a name is not everybody's
        secure_kafka.allow("other", "READ" if resource == "GROUP" else "WRITE", resource, prefix, prefixed=True)
    options = secure_kafka.client_options("SASL_TLS", mechanism="SCRAM-SHA-512")
    line = ["--bootstrap-server", options.pop("bootstrap.servers"), "--rows", "100"]
    (tmp_path / "client.properties").write_text(properties_text(options))
    line += ["--command-config", str(tmp_path / "client.properties"), "--topics", prefix]
    line += ["--transactional-id-prefix", prefix, "--commit-log-topic", prefix]
    with certify(secure_kafka, tmp_path, *line) as process:
        shown, told = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1, shown + told
    assert "client-secret" not in shown + told
    _, _, verdict = shown.partition("```text\n")
    assert ": NOT certified, 1 of " in verdict
    assert "read by    the package's own reader (librdkafka could not read: " in verdict
    assert "ok       at-least-once, read stream: 100 records as written" in verdict
    assert "FAILED   exactly-once, check: initialise of exactly-once: " in verdict
    assert "exactly-once, batch" not in verdict
