"""What docs/encoding.md shows to copy runs on a real Spark, and confluent-kafka reads what it wrote."""

import subprocess
import sys

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from spark_kafka_sink.testing import Listener, TestBroker
from spark_kafka_sink.testing.certificates import CertificateAuthority
from tests.repository.files import ROOT
from tests.repository.python_blocks import python_blocks
from tests.support.schema_registry_server import SchemaRegistryServer
from tests.support.waiting import DEADLINE_S
from tests.unit.encoding.protos import upb

pytestmark = pytest.mark.jvm

PAGE = (ROOT / "docs/encoding.md").read_text()
AVRO, PROTOBUF, JSON, CLOUD = [
    block
    for block in python_blocks()
    if block.where.startswith("encoding.md") and block.how == "registry" and "pykafka" in block.text
]
ROWS = [{"customer": f"c{number % 4}", "ordered_at": number} for number in range(20)]


@pytest.fixture
def run(spark, topic):
    """Runs a block as the page shows it, but for ``places``."""

    def run(block, places):
        text = block.text.replace('"orders")', f'"{topic.name}")')
        for shown, here in places.items():
            assert shown in text, shown
            text = text.replace(shown, here)
        orders = spark.range(20).selectExpr("concat('c', id % 4) AS customer", "id AS ordered_at")
        exec(compile(text, block.where, "exec"), {"orders": orders})

    return run


@pytest.fixture
def places(topic, local_schema_registry):
    return {"localhost:9092": topic.servers, "http://localhost:8081": local_schema_registry.url}


@pytest.fixture
def client(local_schema_registry):
    return SchemaRegistryClient({"url": local_schema_registry.url})


def read(topic, deserialize):
    """Values in the order of the rows. Each has the key that its row says."""
    context = SerializationContext(topic.name, MessageField.VALUE)
    records = [(record.key.decode(), deserialize(record.value, context)) for record in topic.records()]
    for key, value in records:
        assert key == (value["customer"] if isinstance(value, dict) else value.customer)
    return [value for _, value in records]


def by_time(values):
    return sorted(values, key=lambda row: row["ordered_at"])


def test_avro(run, places, topic, client):
    run(AVRO, places)
    assert by_time(read(topic, AvroDeserializer(client))) == ROWS
    assert client.get_versions(f"{topic.name}-value") == [1]


def test_protobuf_with_the_descriptor_that_protoc_makes(run, places, topic, client, tmp_path):
    proto, command = (
        PAGE.split(f"```\n{start}", 1)[1].split("```", 1)[0] for start in ('syntax = "proto3";', "protoc ")
    )
    (tmp_path / "orders.proto").write_text(f'syntax = "proto3";{proto}')
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", "-I.", *command.split()],
        cwd=tmp_path,
        check=True,
        timeout=DEADLINE_S,
    )
    run(PROTOBUF, {**places, '"orders.desc"': repr(str(tmp_path / "orders.desc"))})
    kind = upb((tmp_path / "orders.desc").read_bytes(), "shop.Order")
    messages = read(topic, ProtobufDeserializer(kind, {"use.deprecated.format": False}))
    assert sorted(messages, key=lambda order: order.ordered_at) == [kind(**row) for row in ROWS]
    assert "message Order {" in client.get_latest_version(f"{topic.name}-value").schema.schema_str


def test_json_schema(run, places, topic, client):
    run(JSON, places)
    assert by_time(read(topic, JSONDeserializer(None, schema_registry_client=client))) == ROWS


def test_confluent_cloud(spark, run, topic, tmp_path):
    """A broker behind SASL_SSL and a registry behind https with basic authentication. Not Confluent's own."""
    authority = CertificateAuthority()
    (tmp_path / "registry.pem").write_text(authority.issue("registry", ("127.0.0.1",)).key_store)
    (tmp_path / "authority.pem").write_text(authority.certificate)
    (tmp_path / "secrets").write_text(
        "KAFKA_KEY=client\nKAFKA_SECRET=client-secret\nREGISTRY_KEY=me\nREGISTRY_SECRET=secret\n"
    )
    login = "Basic bWU6c2VjcmV0"  # me:secret
    with (
        TestBroker(listeners={"CLOUD": Listener("SASL_SSL", mechanisms=("PLAIN",))}) as broker,
        SchemaRegistryServer(certificate=tmp_path / "registry.pem", login=login) as registry,
    ):
        broker.create_topic(topic.name, 2)
        trust = {
            "kafka.ssl.truststore.certificates": broker.client_options("CLOUD")["ssl.truststore.certificates"],
            "schema.registry.ssl.truststore.location": str(tmp_path / "authority.pem"),
        }
        run(
            CLOUD,
            {
                "pkc-12345.eu-central-1.aws.confluent.cloud:9092": broker.client_options("CLOUD")["bootstrap.servers"],
                "https://psrc-12345.eu-central-1.aws.confluent.cloud": registry.url,
                "${env:": f"${{file:{tmp_path / 'secrets'}:",  # Spark's Python processes have its environment
                '.mode("append")': "".join(f".option({name!r}, {each!r})" for name, each in trust.items())
                + '.mode("append")',
            },
        )
        options = {"url": registry.url, "basic.auth.user.info": "me:secret"}
        client = SchemaRegistryClient({**options, "ssl.ca.location": str(tmp_path / "authority.pem")})
        values = [AvroDeserializer(client)(record.value) for record in broker.topic(topic.name).records()]
    assert by_time(values) == ROWS
