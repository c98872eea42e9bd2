"""The engine never imports pandas, which takes 3 to 5 seconds on a cold disk: records expired meanwhile."""

import importlib.util
import subprocess
import sys

from tests.schema_registry_server import SchemaRegistryServer
from tests.unit.encoding.protos import compiled

PROTO = 'syntax = "proto3"; package shop; message Order { int64 id = 1; optional string note = 2; }'


def test_incident_the_first_keyed_send_imported_pandas(kafka_test_broker, tmp_path):
    assert importlib.util.find_spec("pandas"), "nothing is tested without it"
    kafka_test_broker.create_topic("t", partitions=3)
    kafka_test_broker.create_topic("other", partitions=2)
    kafka_test_broker.create_topic("small", configs={"max.message.bytes": "1000"})
    descriptors = tmp_path / "descriptors"
    descriptors.write_bytes(compiled(PROTO))
    with SchemaRegistryServer() as registry:
        program = [sys.executable, "-m", "tests.unit.producer.paths_of_rows"]
        arguments = [kafka_test_broker.bootstrap_servers, registry.url, str(descriptors)]
        done = subprocess.run([*program, *arguments], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "18 paths\n"
