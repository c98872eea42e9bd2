"""Text of brokers, registries, identity providers and certificates: limited and escaped in what people read."""

import ssl
from datetime import timedelta

import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from kio.schema.errors import ErrorCode
from pyspark.sql.types import StringType, StructField, StructType

from spark_kafka_sink.common.model import Node
from spark_kafka_sink.errors import ConfigError, KafkaError, clause, sanitize
from spark_kafka_sink.network.error_table import broker_error
from spark_kafka_sink.network.login.token_sources import _error_of
from spark_kafka_sink.network.messages import schema
from spark_kafka_sink.network.metadata_api import parse_metadata
from spark_kafka_sink.network.security.tls import handshake_error
from spark_kafka_sink.schemas.encoding.avro import plan_avro
from spark_kafka_sink.schemas.encoding.avro_schema import AvroSchema
from spark_kafka_sink.schemas.encoding.descriptors import known_files
from spark_kafka_sink.schemas.encoding.encoder import InvalidSchemaError
from spark_kafka_sink.schemas.encoding.protobuf import plan_protobuf
from spark_kafka_sink.schemas.registry.schema import problem
from spark_kafka_sink.spark.formats import derive_schema
from spark_kafka_sink.spark.schema import RowLayout, check_shippable
from spark_kafka_sink.tools.broker_connection import certificate_text
from tests.unit.security.certificates import NOW, Entity

HOSTILE = "no\n2026-01-01 ERROR forged\x1b[2J\x9b\u202e\u2028"
ESCAPED = r"no\n2026-01-01 ERROR forged\x1b[2J\x9b\u202e\u2028"


def test_what_is_not_printable_is_escaped_and_the_rest_stays():
    assert sanitize(HOSTILE) == ESCAPED
    assert sanitize("\ud800\x00") == r"\ud800\x00"
    for text in ("", 'Grüße, "it\'s" 日本 🙂 C:\\x', "a" * 2000):
        assert sanitize(text) == text


def test_long_text_is_cut_with_a_mark():
    assert sanitize("ab" * 1_000_000) == "ab" * 1000 + "…"
    assert sanitize("abc", 2) == "ab…"


def test_incident_escapes_made_a_text_six_times_as_long_as_its_limit():
    """As `make fuzz` found in the error of a token endpoint, of lone surrogates."""
    assert sanitize("\ud800" * 10, 15) == r"\ud800\ud800…"
    assert sanitize("a\n" * 5, 15) == r"a\n" * 5
    assert sanitize("a\n" * 6, 15) == r"a\n" * 5 + "…"
    assert len(_error_of(b'{"error": "' + b"\\u0000" * 1000 + b'"}')) < 310


def test_incident_a_brokers_message_of_megabytes_with_line_ends_was_an_error_as_it_came():
    error = broker_error(ErrorCode.policy_violation, "t-0", HOSTILE + "x" * 20_000_000)
    assert ESCAPED in str(error)
    assert str(error).isprintable()
    assert len(str(error)) < 5_000
    assert str(broker_error(ErrorCode.policy_violation, "t-0", "zu groß")) == "t-0: POLICY_VIOLATION; zu groß"
    assert str(Node(1, "b\x1b[2J" + "x" * 1000, 9092)).startswith(r"b\x1b[2Jxxx")
    assert str(Node(1, "bröker", 9092)) == "bröker:9092 (id: 1)"


def test_incident_a_brokers_host_name_forged_lines_of_the_log_and_of_findings():
    """Only ``str(node)`` escaped it; errors, logs and ``check`` show the host itself."""
    node = Node(1, HOSTILE + "x" * 1_000, 9092)
    assert node.host == ESCAPED + "x" * (255 - len(ESCAPED)) + "…"
    assert Node(1, "bröker", 9092).host == "bröker"


def test_incident_a_cluster_id_reached_the_terminal_as_it_came():
    module = schema("metadata", 12).response
    none: dict[str, object] = {"throttle_time": timedelta(0), "brokers": (), "topics": ()}
    response = module.MetadataResponse(**none, cluster_id=HOSTILE, controller_id=-1)
    assert parse_metadata(response).cluster_id == ESCAPED


def test_incident_errors_of_registries_and_identity_providers_reached_the_terminal_as_they_came():
    hostile = b'{"error_code": 1, "message": "no\\u001b[2J\\u202e", "error": "no\\u001b[2J\\nforged"}'
    assert problem(hostile) == (1, r"no\x1b[2J\u202e")
    assert _error_of(hostile) == r" (no\x1b[2J\nforged)"
    assert problem('{"error_code": 1, "message": "two\\n lines, ü"}'.encode()) == (1, "two lines, ü")


def test_incident_the_names_of_a_certificate_reached_the_terminal_as_they_came():
    peer = Entity("me\x1b[2J\nforged")
    text = certificate_text(peer.certify(peer).public_bytes(Encoding.DER), NOW)
    assert text.isprintable()
    assert r"CN=me\x1b[2J\nforged, for " in text
    plain = Entity("Jörg")
    text = certificate_text(plain.certify(plain).public_bytes(Encoding.DER), NOW)
    assert text.startswith("certificate of CN=Jörg, for ")


@pytest.mark.parametrize("text", ['"x\\n- forged"', "[x\n- forged"])
def test_incident_an_avro_schema_forged_items_of_an_errors_list(text):
    with pytest.raises(InvalidSchemaError, match=r"x\\n- forged") as raised:
        AvroSchema.parse(text)
    assert str(raised.value).isprintable()


FORGING = pa.field("x\n- forged", pa.int64())
SPARKS = StructType([StructField(FORGING.name, StringType()), StructField("a b", StringType())])
EMPTY = '{"type": "record", "name": "R", "fields": []}'


@pytest.mark.parametrize(
    "work",
    [
        lambda: plan_avro(EMPTY, pa.struct([FORGING])),
        lambda: plan_avro(EMPTY, pa.struct([FORGING, pa.field("y", pa.int64())])),
        lambda: plan_avro(EMPTY, pa.struct([])).encode(pa.array([{FORGING.name: 1}], pa.struct([FORGING]))),
        lambda: plan_avro('"int"', pa.struct([FORGING])),
        lambda: plan_protobuf(
            known_files(["google/protobuf/wrappers.proto"]), "google.protobuf.Int64Value", pa.struct([FORGING])
        ),
        lambda: derive_schema("value", SPARKS, False),
        lambda: RowLayout.of(StructType([StructField("value", SPARKS)]), "t", None, None),
        lambda: RowLayout.of(SPARKS.add("value", StringType()), "t", "at", None),
        lambda: check_shippable(StructType([*SPARKS, *SPARKS])),
    ],
)
def test_incident_names_of_fields_forged_items_of_an_errors_list(work):
    with pytest.raises(KafkaError, match=r"x\\n- forged") as raised:
        work()
    assert "\n- forged" not in str(raised.value)


def test_incident_a_fault_of_options_forged_another():
    assert str(ConfigError(["a", "b\n- forged"])) == "- a\n- b\\n- forged"


@pytest.mark.parametrize("kind", [ssl.SSLError, ssl.SSLCertVerificationError])
def test_what_openssl_says_of_a_peer_is_escaped(kind):
    error = kind(1, HOSTILE)
    error.verify_message, error.verify_code, error.reason = HOSTILE, 20, HOSTILE
    assert str(handshake_error("b:1", error)).isprintable()


def test_a_sentence_goes_on_after_an_error_without_two_full_stops():
    assert f"{clause(ValueError('No route to it.'))}. Set another one." == "No route to it. Set another one."
    assert clause("refused") == "refused"
