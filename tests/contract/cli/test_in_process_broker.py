"""``spark-kafka-sink broker --in-process`` as a user starts it: a server of its own that any client can use."""

import json
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from spark_kafka_sink.testing.broker.versions import LATEST
from spark_kafka_sink.testing.kafka_node import free_ports
from spark_kafka_sink.tools.cli.main import main
from tests.contract.plain_client import PlainClient
from tests.faults.leaks import nothing_leaks
from tests.support.waiting import DEADLINE_S

COMMAND = [sys.executable, "-m", "spark_kafka_sink.tools.cli.main", "broker", "--in-process"]
SLOW_TO_IMPORT = {"pandas", "pyspark", "google", "fastavro", "rich", "confluent_kafka"}


@contextmanager
def started(*arguments, like=LATEST, command=COMMAND):
    """The process and its addresses, once it says that it is up."""
    ports = two_ports()[: 2 if "--nodes" in arguments else 1]
    process = subprocess.Popen(
        [*command, "--port", str(ports[0]), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    kill = threading.Timer(DEADLINE_S, process.kill)
    kill.start()
    addresses = [f"127.0.0.1:{port}" for port in ports]
    try:
        line = process.stdout.readline()
        assert line == f"A test broker that responds like Kafka {like} is up: {','.join(addresses)}\n"
        yield process, addresses
    finally:
        kill.cancel()
        process.kill()
        process.communicate(timeout=DEADLINE_S)


def two_ports():
    """Free ones, side by side."""
    ports = free_ports(50)
    first = next(port for port in sorted(ports) if can_listen(port + 1) and port + 1 not in ports)
    return first, first + 1


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_it_stops_cleanly_with_clients_connected(ending):
    with started() as (process, (address,)), PlainClient(address) as client:
        assert client.ask("Metadata", 9, topics=[]).brokers
        process.send_signal(ending)
        assert process.wait(DEADLINE_S) == 0
        assert process.stderr.read() == "\nThe test broker has stopped.\n"
        assert "keeps everything in memory" in process.stdout.readline()
        assert client.is_hung_up()


def test_it_has_as_many_nodes_as_asked_for_and_imitates_the_version():
    with started("--nodes", "2", "--version", "3.9.1", like="3.9") as (_, (_, second)), PlainClient(second) as client:
        assert len(client.ask("Metadata", 9, topics=[]).brokers) == 2


def can_listen(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_it_starts_without_the_packages_that_take_their_time_to_import():
    """Imports are what a start costs. Without hypothesis, which kio loads where it is installed."""
    code = (
        "import json, sys; sys.modules['hypothesis'] = None\n"
        "from spark_kafka_sink.tools.cli.main import main; main(sys.argv[1:])\n"
        "print(json.dumps([*sys.modules]))"
    )
    with started(command=[sys.executable, "-c", code, "broker", "--in-process"]) as (process, _):
        assert any("Ctrl-C" in line for line in process.stdout), "the last line of what it says"
        process.send_signal(signal.SIGINT)
        loaded = json.loads(process.stdout.read().splitlines()[-1])
    assert not {name.partition(".")[0] for name in loaded} & SLOW_TO_IMPORT
    assert len(loaded) < 800, "565 modules were enough"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--set", "num.partition=3"], "did you mean num.partitions?"),
        (["--version", "1.0.0"], "like='1.0' is not a release that TestBroker imitates"),
    ],
)
def test_what_it_cannot_do_is_one_line(capsys, arguments, says):
    assert main(["broker", "--in-process", *arguments]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert says in shown.err


def test_a_port_in_use_is_named_and_nothing_is_left_open(capsys):
    threads = threading.active_count()
    with nothing_leaks(), socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["broker", "--in-process", "--port", str(port - 1), "--nodes", "2"]) == 1
    assert f"error: The broker cannot listen on port {port - 1}: " in capsys.readouterr().err
    assert threading.active_count() == threads
