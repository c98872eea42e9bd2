import os
import subprocess
import sys
import warnings

import pytest

import spark_kafka_sink
from spark_kafka_sink.common.config import ConfigWarning
from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.testing import local_kafka
from spark_kafka_sink.tools.cli.command_line import plain_config_warnings
from spark_kafka_sink.tools.cli.main import main, parser
from tests.support.waiting import DEADLINE_S

CONSOLE = ["console-producer", "--bootstrap-server", "h:1", "--topic", "t"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ([], "COMMAND"),
        (["brocker"], "invalid choice: 'brocker'; did you mean broker?"),
        (["xyz"], "invalid choice: 'xyz'; choose from broker,"),
        (["--garbage", "broker"], "spark-kafka-sink: error: unknown option --garbage"),
        (["broker", "--prot", "9092"], "spark-kafka-sink broker: error: unknown option --prot; did you mean --port?"),
        (["console-producer", "--topci=t"], "unknown option --topci; did you mean --topic?"),
        (
            ["transactions", "lst", "--bootstrap-server", "h:1"],
            "argument action: invalid choice: 'lst'; did you mean list?",
        ),
        (["broker", "extra"], "unrecognized arguments: extra"),
        (["broker", "--port", "99999"], "argument --port: '99999' is not a port: ports go from 1 to 65535"),
        (["broker", "--port", "²"], "argument --port: '²' is not a port"),
        (["broker", "--nodes", "-3"], "argument --nodes: '-3' is not a whole number of at least 1"),
        (
            ["exporter", "--topic", "t", "--interval", "inf"],
            "argument --interval: 'inf' is not a number above 0",
        ),
        (["exporter", "--interval", "nan"], "argument --interval: 'nan' is not a number above 0"),
        ([*CONSOLE, "--compression-codec", "zsdt"], "invalid choice: 'zsdt'; did you mean zstd?"),
        (["broker", "--set", "log.dirs"], "'log.dirs' is not of the form NAME=VALUE"),
        (["broker", "--set", "ssl.key.password:hunter2"], "'ssl.key.password' is not of the form NAME=VALUE"),
    ],
)
def test_a_wrong_command_line_ends_with_2_and_says_what_is_wrong(capsys, line, says):
    with pytest.raises(SystemExit, match="2"):
        main(line)
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (["broker", "--version", "latest"], "error: Kafka version 'latest' is not of the form 4.4.0.\n"),
        (["broker", "--version", "2.0.1"], "error: Kafka 2.0.1 is too old: LocalKafka runs 2.1.0 or newer.\n"),
        (
            ["broker", "--in-process", "--port", "65535", "--nodes", "2"],
            "error: --nodes 2 needs ports up to 65536: ports go from 1 to 65535.\n",
        ),
        (
            ["exporter", "--topic", "t", "--bootstrap-server", "h:1", "--listen", "h:²"],
            "error: --listen h:² is not of the form HOST:PORT.\n",
        ),
    ],
)
def test_an_error_is_one_line_and_exit_code_1(capsys, line, says):
    assert main(line) == 1
    assert capsys.readouterr().err == says


def test_abbreviated_and_short_flags_and_values_with_a_minus_are_no_slips():
    parsed = parser().parse_args([*CONSOLE, "--request-req", "-1", "-v", "--producer-property", "a=--b"])
    assert (parsed.request_required_acks, parsed.verbose) == ("-1", True)
    assert parsed.client_properties == [("a", "--b")]


def test_a_reader_that_leaves_ends_the_command_quietly():
    reader, writer = os.pipe()
    os.close(reader)
    code = "import sys; from spark_kafka_sink.tools.cli.commands import broker\n"
    code += "from spark_kafka_sink.tools.cli.main import main; "
    code += "broker.run = lambda _: print('x' * 100_000) or 0; sys.exit(main(['broker']))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=DEADLINE_S, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_ctrl_c_is_130_and_no_traceback(monkeypatch, capsys):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(local_kafka, "LocalKafka", interrupt)
    assert main(["broker"]) == 130
    assert capsys.readouterr().err == ""


def test_a_broker_that_ends_by_itself_is_an_error(monkeypatch, capsys):
    class DeadKafka:
        version, bootstrap_servers, node_ids = "4.4.0", "127.0.0.1:9092", (1,)

        def __init__(self, *arguments):
            self.arguments = arguments

        def __enter__(self):
            assert self.arguments == (1, "4.4.0", {"a.b": "c=d"}, 9092)

        def __exit__(self, *_): ...

        def alive(self, node):
            return False

        def log_tail(self, node):
            return "out of disk"

    monkeypatch.setattr(local_kafka, "LocalKafka", DeadKafka)
    assert main(["broker", "--set", "a.b=c=d"]) == 1
    shown = capsys.readouterr()
    assert '.option("kafka.bootstrap.servers", "127.0.0.1:9092")' in shown.out
    assert shown.err == "error: Node 1 has stopped unexpectedly:\n- out of disk\n"


def test_a_warning_about_options_is_one_line_without_a_source_line(tmp_path):
    line = ["check", "--bootstrap-server", "127.0.0.1:1", "--command-property", "sasl.mechanism=PLAIN"]
    command = [sys.executable, "-m", "spark_kafka_sink.tools.cli.main", *line]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (
        done.stderr
        == "warning: sasl.mechanism has no effect, as security.protocol is PLAINTEXT; SASL needs SASL_SSL.\n"
    )


def test_other_warnings_are_left_to_python(capsys, monkeypatch):
    shown = []
    monkeypatch.setattr(warnings, "showwarning", lambda message, *_: shown.append(str(message)))
    with plain_config_warnings():
        warnings.warn_explicit("of a library", DeprecationWarning, "library.py", 7)
        warnings.warn_explicit("of options", ConfigWarning, "ours.py", 7)
    assert "of a library" in shown
    assert "of options" not in shown
    assert capsys.readouterr().err == "warning: of options\n"


def test_python_m_is_the_command():
    command = [sys.executable, "-m", "spark_kafka_sink", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    assert done.stdout == f"spark-kafka-sink {spark_kafka_sink.__version__}\n"


def test_verbose_logs_what_the_client_does(kafka_test_broker):
    kafka_test_broker.create_topic("t")
    line = ["-v", "console-producer", "--bootstrap-server", kafka_test_broker.bootstrap_servers, "--topic", "t"]
    command = [sys.executable, "-m", "spark_kafka_sink", *line]
    done = subprocess.run(command, input="a\n", capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    for said in (f"DEBUG spark_kafka_sink.network: Connected to {kafka_test_broker.bootstrap_servers}", "topics: t\n"):
        assert said in done.stderr


def test_incident_verbose_logged_the_secrets_that_py4j_and_botocore_log_at_debug():
    code = (
        "import logging, sys; from spark_kafka_sink.tools.cli.commands import broker\n"
        "from spark_kafka_sink.tools.cli.main import main\n"
        "def run(_):\n"
        "    for name in ('py4j', 'botocore.auth', 'urllib3', 'spark_kafka_sink.login'):\n"
        "        logging.getLogger(name).debug('secret of %s', name)\n"
        "        logging.getLogger(name).info('said by %s', name)\n"
        "    return 0\n"
        "broker.run = run; sys.exit(main(['-v', 'broker']))"
    )
    command = [sys.executable, "-c", code]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=True).stderr
    assert [line.rpartition(" ")[2] for line in shown.splitlines() if "secret of" in line] == ["spark_kafka_sink.login"]
    assert shown.count("said by") == 4


@pytest.mark.parametrize("producer", [spark_kafka_sink.KafkaProducer, spark_kafka_sink.SyncProducer])
def test_a_producer_says_that_it_takes_a_mapping(producer):
    with pytest.raises(ConfigError, match=r'such as \{"bootstrap.servers": "host:9092"\}, but got a str'):
        producer("host:9092")
