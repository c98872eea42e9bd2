"""``spark-kafka-sink check``: what it prints, of the workers too but without Spark; and its exit code."""

import importlib.util
import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace

import pytest

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.testing import Listener
from spark_kafka_sink.testing.kafka_security import properties_text
from spark_kafka_sink.tools import worker_check
from spark_kafka_sink.tools.cli.main import main
from spark_kafka_sink.tools.connection_check import CheckRequest, check
from spark_kafka_sink.tools.findings import Outcome, library_findings, required_libraries
from spark_kafka_sink.tools.worker_check import Place, WorkerFindings, check_on_workers
from tests.contract.brokers import broker_with
from tests.support.waiting import DEADLINE_S

broker = broker_with(listeners={"SECURE": Listener("SASL_SSL")})


def run_with_config(capsys, options, tmp_path, *arguments):
    config = tmp_path / "client.properties"
    config.write_text(properties_text({name: value for name, value in options.items() if name != "bootstrap.servers"}))
    return run(capsys, options["bootstrap.servers"], "--command-config", str(config), *arguments)


def test_a_line_per_step_and_exit_code_0(broker, capsys, tmp_path):
    broker.create_topic("t")
    options = broker.client_options("SECURE")
    code, out, err = run_with_config(capsys, options, tmp_path, "--topic", "t")
    assert (code, err) == (0, "")
    first, *lines, last = out.splitlines()
    assert first == options["bootstrap.servers"]
    assert [line.split()[1] for line in lines if line.startswith("  ok")] == [
        "DNS", "TCP", "TLS", "ApiVersions", "SASL", "versions", "brokers", "metadata", "rights",
    ]  # fmt: skip
    assert re.search(r"ok +SASL +[0-9.]+ ms  SCRAM-SHA-512 as client", out)
    assert last == "no step failed"
    assert "client-secret" not in out


def test_incident_a_jobs_own_option_names_were_refused_and_a_misspelt_topic_got_no_hint(broker, capsys, tmp_path):
    broker.create_topic("orders")
    options = {f"kafka.{name}": value for name, value in broker.client_options("SECURE").items()}
    options["bootstrap.servers"] = options.pop("kafka.bootstrap.servers")
    code, out, err = run_with_config(capsys, options, tmp_path, "--topic", "ordres")
    assert (code, err) == (1, "")
    assert "there is no such topic. Did you mean orders?" in out


def test_incident_the_brokers_in_the_file_were_not_taken(broker, capsys, tmp_path):
    config = tmp_path / "client.properties"
    config.write_text(properties_text(broker.client_options("SECURE")))
    assert main(["check", "--command-config", str(config)]) == 0
    assert capsys.readouterr().out.startswith(broker.servers("SECURE"))
    assert main(["check"]) != 0
    assert "--bootstrap-server is required, or bootstrap.servers in the file" in capsys.readouterr().err


def test_an_option_on_the_command_line_overrides_the_file(broker, capsys, tmp_path):
    options = broker.client_options("SECURE") | {"security.protocol": "SSL"}
    code, out, _ = run_with_config(capsys, options, tmp_path, "--command-property", "security.protocol=SASL_SSL")
    assert code == 0
    assert "as client" in out


def test_other_commands_name_the_step_and_the_check(capsys):
    assert main(
        ["transactions", "list", "--bootstrap-server", "name.invalid:1", "--command-property", "max.block.ms=300"]
    )
    said = capsys.readouterr().err
    assert "The connection to name.invalid:1 failed at step DNS; see bootstrap.servers" in said
    assert "To try each step from this machine: spark-kafka-sink check" in said


FROM_WORKERS = "--from-workers"


def run(capsys, servers, *arguments):
    code = main(["check", "--bootstrap-server", servers, *arguments])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def findings_of(broker):
    request = CheckRequest(ProducerConfig.parse({"bootstrap.servers": broker.bootstrap_servers}))
    return [*library_findings(required_libraries()), *check(request, SystemClock())]


def with_text(findings, step, text, outcome=Outcome.FAILED):
    return [replace(each, text=text, outcome=outcome) if each.step == step else each for each in findings]


@pytest.fixture
def spark_finds(monkeypatch):
    """Instead of a Spark job: these findings by place, of so many executors. Returns what it was called with."""

    def finds(by_place, executors=None):
        calls = []

        def found(request, settings, tasks, timeout_s):
            calls.append((settings, tasks, timeout_s))
            return WorkerFindings("spark://m:7077", executors, by_place)

        monkeypatch.setattr(worker_check, "check_on_workers", found)
        return calls

    return finds


def test_workers_that_find_the_same_are_one_line_and_exit_code_0(broker, capsys, spark_finds):
    calls = spark_finds(dict.fromkeys([Place("b", 7), Place("a", 9)], findings_of(broker)), 2)
    more = ("--master", "spark://m:7077", "--conf", "spark.executor.memory=1g", "--tasks", "4", "--timeout", "9")
    code, out, _ = run(capsys, broker.bootstrap_servers, FROM_WORKERS, *more)
    assert code == 0
    assert out.splitlines()[-4:] == [
        "no step failed",
        "executor a (process 9), b (process 7)",
        "  as here",
        "2 executors of spark://m:7077 checked, none differ from here",
    ]
    assert calls == [({"spark.executor.memory": "1g", "spark.master": "spark://m:7077"}, 4, 9)]


def test_a_line_per_differing_step_with_what_was_found_here_and_exit_code_1(broker, capsys, spark_finds):
    here = findings_of(broker)
    there = with_text(with_text(here, "kio", "0.0.1", Outcome.OK), "DNS", "unknown name")
    spark_finds({Place("a", 9): there, Place("b", 7): here}, 3)
    code, out, _ = run(capsys, broker.bootstrap_servers, FROM_WORKERS)
    assert code == 1
    shown = [" ".join(line.split()) for line in out.splitlines()]
    at = shown.index("executor a (process 9)")
    kio = next(each.text for each in here if each.step == "kio")
    assert shown[at:] == [
        "executor a (process 9)",
        "ok kio libraries: 0.0.1",
        f"here: {kio}",
        f"FAILED DNS {broker.bootstrap_servers}: unknown name",
        "here: 127.0.0.1",
        "executor b (process 7)",
        "as here",
        "2 executors of spark://m:7077 checked, 1 differs from here, 1 got no task",
    ]


def test_without_pyspark_it_says_what_to_install_before_anything_is_tried(broker, capsys, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "pyspark" else found(name))
    code, out, err = run(capsys, broker.bootstrap_servers, FROM_WORKERS)
    assert (code, out) == (1, "")
    assert err == "error: check --from-workers needs PySpark: pip install 'pyspark>=3.5'\n"


@pytest.mark.parametrize(
    "option", [("--master", "local[2]"), ("--conf", "a=b"), ("--tasks", "2"), ("--remote", "sc://h")]
)
def test_options_of_the_workers_need_from_workers(broker, capsys, option):
    code, out, err = run(capsys, broker.bootstrap_servers, *option)
    assert (code, out) == (1, "")
    assert "belong to --from-workers: add it" in err


def test_a_spark_that_does_not_start_is_an_error_in_time(monkeypatch):
    hangs, ended = threading.Event(), threading.Event()

    @contextmanager
    def hanging(name, settings):
        hangs.wait(DEADLINE_S)
        ended.set()
        yield

    monkeypatch.setattr(worker_check, "spark_session", hanging)
    request = CheckRequest(ProducerConfig.parse({"bootstrap.servers": "a:1"}))
    with pytest.raises(worker_check.SparkJobError, match="was starting after 0 s"):
        check_on_workers(request, {}, None, 0.2)
    assert not ended.is_set()
    hangs.set()


def test_a_check_of_this_machine_only_imports_no_spark():
    code = (
        "import sys; from spark_kafka_sink.tools.cli.main import main;"
        "main(['check', '--bootstrap-server', '127.0.0.1:1']);"
        "print('pyspark' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    assert done.stdout.splitlines()[-1] == "False"
