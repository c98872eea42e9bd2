"""The command on a TestBroker."""

import _thread
import io
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from functools import partial
from itertools import chain, repeat
from operator import itemgetter
from types import SimpleNamespace

import pytest

from spark_kafka_sink.common.compression import CODEC_IDS
from spark_kafka_sink.kafka08.console import Lines, handle_signals
from spark_kafka_sink.producer.serializers import Serializer
from spark_kafka_sink.testing import KEPT, TestBroker
from spark_kafka_sink.tools.cli.main import main
from tests.contract import scenario
from tests.contract.brokers import broker_with
from tests.spark.topics import Topic
from tests.support.kafka_versions import TEST_BROKER, on_kafka
from tests.support.waiting import DEADLINE_S

both_ways = pytest.mark.parametrize("how", [(), ("--sync",)], ids=["async", "sync"])
broker = broker_with("t")


@pytest.fixture
def console(broker, monkeypatch):
    """Runs the command with this input; gives the exit code."""

    def run(lines, *arguments):
        source = io.TextIOWrapper(io.BytesIO(lines))
        monkeypatch.setattr(sys, "stdin", source)
        return main(["console-producer", "--bootstrap-server", broker.bootstrap_servers, "--topic", "t", *arguments])

    return run


@contextmanager
def console_process(broker, *arguments, **how):
    """The command in a process of its own, which has read a line and lingers for a minute before it sends."""
    command = [sys.executable, "-m", "spark_kafka_sink.tools.cli.main", "console-producer", "--topic", "t", *arguments]
    command += ["--bootstrap-server", broker.bootstrap_servers, "--producer-property", "linger.ms=60000"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stderr=pipe, env=environment, **how) as process:
        watchdog = threading.Timer(60, process.kill)
        watchdog.start()
        process.stdin.write(b"one\n")
        process.stdin.flush()
        try:
            yield process
        finally:
            watchdog.cancel()


@both_ways
def test_each_line_is_a_record_in_order(broker, console, how, capsys):
    assert console(b"one\ntwo\n\nfour", *how) == 0
    assert broker.topic("t").values() == [b"one", b"two", b"", b"four"]
    assert capsys.readouterr() == ("", "")


@both_ways
def test_keys_headers_and_nulls_are_read_by_properties(broker, console, how):
    properties = ("parse.key=true", "key.separator=|", "parse.headers=true", "null.marker=-")
    flags = [flag for text in properties for flag in ("--property", text)]
    assert console(b"h:1\tk|v\nh:-\tk|-\n", *flags, *how) == 0
    first, second = broker.topic("t").records()
    assert (first.key, first.value, first.headers) == (b"k", b"v", ((b"h", b"1"),))
    assert (second.key, second.value, second.headers) == (b"k", None, ((b"h", None),))


@both_ways
def test_a_line_that_is_no_record_ends_with_1_and_its_number_after_the_lines_before_it(broker, console, how, capsys):
    assert console(b"a\t1\nb\t2\nwrong\nd\t4\n", "--property", "parse.key=true", *how) == 1
    assert capsys.readouterr().err == "error: line 3: no key separator ('\\t') in 'wrong'\n"
    assert broker.topic("t").values() == [b"1", b"2"]


@both_ways
def test_a_record_that_is_not_delivered_is_exit_code_1_and_names_its_line(broker, console, how, capsys):
    broker.faults.answer("Produce", "TOPIC_AUTHORIZATION_FAILED", times=KEPT)
    assert console(b"one\n", *how) == 1
    said = capsys.readouterr().err
    assert "line 1: t-0: TOPIC_AUTHORIZATION_FAILED" in said


@both_ways
def test_a_line_that_is_too_large_ends_with_1_and_its_number(broker, console, how, capsys):
    assert console(b"ok\n" + b"x" * 2000, "--producer-property", "max.request.size=1000", *how) == 1
    assert "line 2: The message is " in capsys.readouterr().err
    assert broker.topic("t").values() == [b"ok"]


def test_flags_win_over_properties_and_these_over_the_file(broker, console, tmp_path):
    options = tmp_path / "producer.properties"
    options.write_text(
        "client.id=from-file\ncompression.type=gzip\nacks=1\n"
        "key.serializer=org.apache.kafka.common.serialization.StringSerializer\n"
    )
    flags = ("--producer.config", str(options), "--producer-property", "client.id=me", "--compression-codec", "zstd")
    assert console(b"x" * 1000, *flags, "--request-required-acks", "all") == 0
    (batch,) = broker.topic("t").batches(0)
    assert batch.header.codec_id == CODEC_IDS["zstd"]
    assert {seen.client_id for seen in broker.requests.of("Produce")} == {"me"}


@on_kafka("4.4.0", TEST_BROKER)
def test_the_command_line_of_kafka_0_8_works_as_it_stands(cluster, monkeypatch, capsys):
    servers, topic = cluster.bootstrap_servers, scenario.name("console")
    cluster.create_topic(topic)  # for a topic that brokers create first, the log has a warning
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\nthree\n")))
    assert main(["console-producer", "--broker-list", servers, "--topic", topic, "--sync"]) == 0
    assert capsys.readouterr() == ("", "")
    records = Topic(servers, topic).records()
    assert [(record.offset, record.value) for record in records] == [(0, b"one"), (1, b"two"), (2, b"three")]
    assert not isinstance(cluster, TestBroker) or len(cluster.requests.of("Produce")) == 3


OLD_FILE = """\
metadata.broker.list=127.0.0.1:9
request.required.acks=0
compression.codec=1
message.send.max.retries=2
topic.metadata.refresh.interval.ms=-1
serializer.class=kafka.serializer.StringEncoder
"""


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_file_of_kafka_0_8_is_read_and_its_producer_type(broker, console, tmp_path, kind):
    """The synchronous producer has no producer id."""
    options = tmp_path / "producer.properties"
    options.write_text(f"{OLD_FILE}producer.type={kind}\n")
    flags = ("--producer.config", str(options), "--producer-property", "compression.type=zstd")
    assert console(b"x" * 1000, *flags, "--request-required-acks", "all") == 0
    (batch,) = broker.topic("t").batches(0)
    assert batch.header.codec_id == CODEC_IDS["zstd"]
    assert (batch.header.producer_id == -1) == (kind == "sync")


def test_the_flag_sync_overrides_the_producer_type(broker, console):
    assert console(b"one\n", "--producer-property", "producer.type=async", "--sync") == 0
    (batch,) = broker.topic("t").batches(0)
    assert batch.header.producer_id == -1


def test_python_serializers_of_a_file_are_used(broker, console, tmp_path):
    options = tmp_path / "producer.properties"
    options.write_text("serializer.class=tests.contract.cli.test_console_producer:Upper\n")
    assert console(b"one\n", "--producer.config", str(options)) == 0
    assert broker.topic("t").values() == [b"ONE"]


class Upper(Serializer):
    def serialize(self, topic, data):
        return None if data is None else data.upper()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--producer-property", "linger=5"), "linger is not an option of Kafka's producer"),
        (("--property", "parse.kye=true"), "--property parse.kye is unknown; did you mean parse.key?"),
        (("--producer.config", "none.properties"), "--command-config none.properties cannot be read: No such file"),
    ],
)
def test_wrong_options_are_one_error_before_anything_is_read(console, capsys, arguments, said):
    assert console(b"line", *arguments) == 1
    assert said in capsys.readouterr().err


def test_a_terminal_gets_a_prompt_for_each_line(capsys):
    assert list(Lines(io.BytesIO(b"one\n"), prompt=True)) == [(1, b"one\n")]
    assert capsys.readouterr().out == ">>"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_what_was_read_is_sent_when_the_process_is_told_to_end(broker, number, status):
    """SIGTERM, as from a service manager, and SIGHUP, as from a terminal that closes, dropped what was held. Ctrl-C
    is how a user ends it, so no failure."""
    # The tests may run under nohup.
    with console_process(broker, preexec_fn=lambda: signal.signal(number, signal.SIG_DFL)) as process:
        broker.requests.wait_for("Metadata", timeout_s=DEADLINE_S)  # asked for the line's topic
        process.send_signal(number)
        _, said = process.communicate()
    assert (process.returncode, said) == (status, b"")
    assert broker.topic("t").values() == [b"one"]


def test_a_hangup_that_nohup_ignores_stays_ignored(broker):
    with console_process(broker, "--sync", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) as process:
        broker.requests.wait_for("Produce", timeout_s=DEADLINE_S)
        process.send_signal(signal.SIGHUP)
        process.stdin.write(b"two\n")
        process.communicate()
    assert process.returncode == 0
    assert broker.topic("t").values() == [b"one", b"two"]


def test_a_second_sigterm_ends_the_waiting_with_its_status(broker):
    broker.faults.lose_answer("Produce", times=KEPT)
    with console_process(broker) as process:
        broker.requests.wait_for("Metadata", timeout_s=DEADLINE_S)
        process.send_signal(signal.SIGTERM)
        broker.requests.wait_for("Produce", timeout_s=DEADLINE_S)
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert process.returncode == 143


def test_a_signal_between_two_lines_ends_the_reading_before_the_next_one(broker):
    """It came after the look at the flag and before the wait for a line, which then had no end."""
    lines = Lines(io.BytesIO(b"one\n"), prompt=True)
    sys.stdout, stdout = Interrupting(lines), sys.stdout
    try:
        assert list(lines) == []
    finally:
        sys.stdout = stdout
    assert lines.exit_code == 143


def test_a_line_that_was_read_when_the_signal_came_is_not_dropped():
    """The signal came while ``readline`` had the line already: it was handled before the line was noted."""
    signals = chain([None, None], map(_thread.interrupt_main, [signal.SIGTERM]), repeat(None))
    read = map(itemgetter(0), zip([b"one\n", b"two\n", b"three\n", b"four\n"], signals, strict=False))
    source = SimpleNamespace(readline=partial(next, read))  # all of it is C, where no signal is handled
    lines = Lines(source, prompt=False)
    with handle_signals(lines.interrupt):
        assert [line for _, line in lines] == [b"one\n", b"two\n", b"three\n"]
    assert lines.exit_code == 143
    assert next(read) == b"four\n"


class Interrupting(io.StringIO):
    """A terminal at which a signal arrives just when the prompt is there."""

    def __init__(self, lines):
        super().__init__()
        self._lines = lines

    def flush(self):
        self._lines.interrupt(signal.SIGTERM, None)


@pytest.mark.parametrize("separator", ["é", "\xff"])
def test_incident_a_letter_in_a_separator_was_a_raw_error_with_an_ascii_locale(broker, console, separator):
    byte = separator.encode("utf-8" if separator == "é" else "latin-1")
    given = byte.decode("ascii", "surrogateescape")  # as Python has it in sys.argv
    assert console(b"k%bv" % byte, "--property", "parse.key=true", "--property", f"key.separator={given}") == 0
    assert [(record.key, record.value) for record in broker.topic("t").records()] == [(b"k", b"v")]


def test_a_topic_of_other_letters_is_an_error_without_a_trace_with_an_ascii_locale(broker):
    command = [sys.executable, "-m", "spark_kafka_sink.tools.cli.main", "console-producer", "--topic", "тема"]
    environment = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    command += ["--bootstrap-server", broker.bootstrap_servers]
    done = subprocess.run(command, env=environment, input=b"x", capture_output=True, timeout=DEADLINE_S, check=False)
    assert (done.returncode, b"Traceback" in done.stderr) == (1, False), done.stderr
