"""``spark-kafka-sink check --from-workers``: what it prints of the workers, without Spark."""

import importlib.util
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace

import pytest

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.tools import worker_check
from spark_kafka_sink.tools.cli.main import main
from spark_kafka_sink.tools.connection_check import CheckRequest, check
from spark_kafka_sink.tools.findings import Outcome, library_findings, required_libraries
from spark_kafka_sink.tools.worker_check import Place, WorkerFindings, check_on_workers
from tests.contract.brokers import broker_with
from tests.support.waiting import DEADLINE_S

FROM_WORKERS = "--from-workers"
broker = broker_with()


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
