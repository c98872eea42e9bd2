"""``spark-kafka-sink check``: what it prints, and its exit code."""

import re
import subprocess
import sys

from spark_kafka_sink.testing import Listener
from spark_kafka_sink.testing.kafka_security import properties_text
from spark_kafka_sink.tools.cli.main import main
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


def run(capsys, servers, *arguments):
    code = main(["check", "--bootstrap-server", servers, *arguments])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_a_check_of_this_machine_only_imports_no_spark():
    code = (
        "import sys; from spark_kafka_sink.tools.cli.main import main;"
        "main(['check', '--bootstrap-server', '127.0.0.1:1']);"
        "print('pyspark' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    assert done.stdout.splitlines()[-1] == "False"
