"""Serializers of Avro and Protobuf with a registry; confluent-kafka's deserializer of Avro and upb are referees."""

import base64
import datetime as dt
import json
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.wrappers_pb2 import StringValue

from spark_kafka_sink import AvroSerializer, KafkaProducer, ProducerRecord, ProtobufSerializer, SyncProducer
from spark_kafka_sink.encoding.encoder import UnencodableRowsError
from spark_kafka_sink.errors import ConfigError, InvalidRecordError, RegistryError, SerializationError
from spark_kafka_sink.formats.errors import FormatError
from tests.schema_registry_server import SchemaRegistryServer
from tests.unit.encoding.protos import compiled, upb

AVRO = "io.confluent.kafka.serializers.KafkaAvroSerializer"
PROTOBUF = "io.confluent.kafka.serializers.protobuf.KafkaProtobufSerializer"
ORDER = json.dumps({
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "lines", "type": {"type": "array", "items": "int"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}, "default": "NEW"},
    ],
})  # fmt: skip
AT = dt.datetime(2026, 5, 4, 3, 2, 1, 123456, tzinfo=dt.UTC)
ROWS = [
    {"id": 1, "note": "ü", "at": AT, "lines": [1, -2], "state": "PAID"},
    {"id": -(2**63), "note": None, "at": AT, "lines": [], "state": "NEW"},
]
KIND = pa.struct([
    ("id", pa.int64()), ("note", pa.string()), ("at", pa.timestamp("us", "UTC")), ("lines", pa.list_(pa.int32())),
    ("state", pa.string()),
])  # fmt: skip
PROTO = """syntax = "proto3"; package shop;
message First { int32 a = 1; }
message Order { int64 id = 1; optional string note = 2; repeated int32 lines = 3; Inner inner = 4; float share = 5; }
message Inner { string a = 1; }"""
MESSAGE_KIND = pa.struct(
    [
        ("id", pa.int64()),
        ("note", pa.string()),
        ("lines", pa.list_(pa.int32())),
        ("inner", pa.struct([("a", pa.string())])),
    ]
)
MESSAGES = [{"id": 1, "note": "ü", "lines": [1, -2], "inner": {"a": "x"}}, {"id": 2}]


@pytest.fixture
def registry():
    with SchemaRegistryServer() as server:
        yield server


@pytest.fixture
def descriptor_set():
    return compiled(PROTO)


@pytest.fixture
def broker(kafka_test_broker):
    kafka_test_broker.create_topic("t")
    return kafka_test_broker


def configured(serializer, registry, is_key=False, **options):
    url = {} if registry is None else {"schema.registry.url": registry.url}
    serializer.configure({**url, **{name.replace("_", "."): value for name, value in options.items()}}, is_key)
    return serializer


def read(registry, value):
    client = SchemaRegistryClient({"url": registry.url})
    return AvroDeserializer(client)(value, SerializationContext("t", MessageField.VALUE))


def test_a_dict_is_read_by_confluents_deserializer(registry):
    serializer = configured(AvroSerializer(ORDER), registry)
    for row in ROWS:
        assert read(registry, serializer.serialize("t", row, [])) == row
    assert registry.subjects.keys() == {"t-value"}


def test_records_and_columns_have_the_same_bytes(registry, descriptor_set):
    avro = configured(AvroSerializer(ORDER), registry)
    assert avro.serialize_column("t", pa.array([*ROWS, None], KIND)).values.to_pylist() == [
        *(avro.serialize("t", row, []) for row in ROWS), None,
    ]  # fmt: skip
    protobuf = configured(ProtobufSerializer("shop.Order", descriptor_set), registry)
    made = [upb(descriptor_set, "shop.Order")(**each) for each in MESSAGES]
    wanted = [protobuf.serialize("p", each, []) for each in made]
    assert wanted == [protobuf.serialize("p", each, []) for each in MESSAGES]
    assert protobuf.serialize_column("p", pa.array(MESSAGES, MESSAGE_KIND)).values.to_pylist() == wanted


@pytest.mark.parametrize("as_class", [True, False])
def test_a_message_is_registered_with_its_file(registry, descriptor_set, as_class):
    kind = upb(descriptor_set, "shop.Order")
    serializer = ProtobufSerializer(kind) if as_class else ProtobufSerializer()
    value = configured(serializer, registry).serialize("t", kind(**MESSAGES[0]), [])
    assert value[:7] == b"\0\0\0\0\1\2\2"  # one index, 1
    assert kind.FromString(value[7:]) == kind(**MESSAGES[0])
    assert "message Order {" in registry.asked[-1].body["schema"]


def test_a_message_of_the_library_is_registered_too(registry):
    value = configured(ProtobufSerializer(), registry).serialize("t", StringValue(value="x"), [])
    assert StringValue.FromString(value[7:]) == StringValue(value="x")


def test_the_registry_is_asked_once_per_subject_by_all_threads(registry):
    serializer = configured(AvroSerializer(ORDER), registry)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda n: serializer.serialize(f"t{n % 2}", ROWS[0], []), range(40)))
    assert len(registry.asked) == 2
    of_record = configured(AvroSerializer(ORDER), registry, value_subject_name_strategy="RecordNameStrategy")
    for topic in ("a", "b"):
        of_record.serialize(topic, ROWS[0], [])
    assert len(registry.asked) == 3
    assert "shop.Order" in registry.subjects


def test_the_latest_schema_of_the_registry_is_written(registry):
    registry.add("t-value", json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}))
    serializer = configured(AvroSerializer(), registry, use_latest_version=True)
    assert serializer.serialize("t", {"a": 1}, []) == b"\0\0\0\0\1\2"
    assert serializer.serialize_column(
        "t", pa.array([{"a": 1}], pa.struct([("a", pa.int32())]))
    ).values.to_pylist() == [b"\0\0\0\0\1\2"]
    with pytest.raises(RegistryError, match="u-value"):
        serializer.serialize("u", {"a": 1}, [])


def test_a_key_has_the_subject_and_the_options_of_keys(registry):
    registry.add("other", '"string"')
    number = registry.add("t-key", '"long"')
    serializer = configured(AvroSerializer(), registry, True, key_use_schema_id=number, value_use_schema_id=77)
    assert serializer.serialize("t", 3, []) == b"\0\0\0\0\2\6"


def test_the_header_form_names_the_schema_in_each_record(registry):
    serializer = configured(AvroSerializer('"long"'), registry, value_schema_id_serializer="header")
    headers = [("h", b"1")]
    assert serializer.serialize("t", 1, headers) == b"\2"
    assert headers == [("h", b"1"), ("__value_schema_id", b"\1" + registry.guid(1))]
    assert serializer.serialize("t", None, headers) is None
    assert len(headers) == 2
    column = serializer.serialize_column("t", pa.array([1, None]))
    assert column.values.to_pylist() == [b"\2", None]
    assert column.headers["__value_schema_id"].to_pylist() == [b"\1" + registry.guid(1), None]


def test_without_a_registry_values_are_bare_and_the_log_says_so(caplog):
    assert configured(AvroSerializer('"long"'), None).serialize("t", 1, []) == b"\2"
    assert "AvroSerializer without schema.registry.url" in caplog.text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"id": "no"}, "Order.id is <no> of type"),
        ({"id": 2**63}, "Order.id"),
        ({"lines": [2**31]}, "2147483648"),
        ({"state": "SENT"}, "SENT"),
        ({"extra": 1}, "extra"),
        ({"note": 5}, "note"),
        ({"at": AT.replace(tzinfo=None)}, "at: 2026-05-04T03:02:01.123456 has no time zone"),
    ],
)
def test_a_dict_that_does_not_fit_is_an_error(registry, change, said):
    serializer = configured(AvroSerializer(ORDER), registry)
    with pytest.raises(SerializationError, match=said) as caught:
        serializer.serialize("t", {**ROWS[0], **change}, [])
    assert "AvroSerializer cannot serialize a record for topic t" in str(caught.value)


def test_a_field_that_a_dict_lacks_gets_its_default_or_is_an_error(registry):
    serializer = configured(AvroSerializer(ORDER), registry)
    without = {name: value for name, value in ROWS[1].items() if name != "state"}
    assert serializer.serialize("t", without, []) == serializer.serialize("t", ROWS[1], [])
    del without["id"]
    with pytest.raises(SerializationError, match="id"):
        serializer.serialize("t", without, [])


def test_a_time_zone_is_asked_of_records_as_of_columns(registry, descriptor_set):
    naive = AT.replace(tzinfo=None)
    avro = configured(AvroSerializer(json.dumps({"type": "long", "logicalType": "timestamp-micros"})), registry)
    message = 'import "google/protobuf/timestamp.proto"; message M { google.protobuf.Timestamp at = 1; }'
    protobuf = configured(ProtobufSerializer("M", compiled(f'syntax = "proto3"; {message}')), registry)
    for serializer, topic, row in ((avro, "a", naive), (protobuf, "p", {"at": naive})):
        with pytest.raises(SerializationError, match="has no time zone"):
            serializer.serialize(topic, row, [])
        with pytest.raises(FormatError, match="it has no time zone"):
            serializer.serialize_column(topic, pa.array([row]))
    assert avro.serialize_column("a", pa.array([AT])).values.to_pylist() == [avro.serialize("a", AT, [])]
    rows = protobuf.serialize_column("p", pa.array([{"at": AT}])).values.to_pylist()
    assert rows == [protobuf.serialize("p", {"at": AT}, [])]


def test_columns_that_do_not_fit_are_errors_of_type_or_row(registry):
    serializer = configured(AvroSerializer(ORDER), registry)
    with pytest.raises(FormatError, match="The column value does not fit schema 1 of subject t-value"):
        serializer.serialize_column("t", pa.array([{"id": "no"}]))
    with pytest.raises(UnencodableRowsError, match="state") as caught:
        serializer.serialize_column("t", pa.array([ROWS[0], {**ROWS[0], "state": "SENT"}], KIND))
    assert caught.value.row == 1


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"id": "no"}, "cannot be interpreted as an integer"),
        ({"unknown": 1}, "unknown"),
        ({"lines": [2**31]}, "out of range"),
        ({"share": 1e39}, r"share: 1e\+39 is too large for float"),
        (5, "it is a int, not a message or a dict"),
        (StringValue(value="x"), "differs from schema 1 of subject t-value in its name, shop.Order"),
    ],
)
def test_what_is_not_the_message_is_an_error(registry, descriptor_set, data, said):
    serializer = configured(ProtobufSerializer("shop.Order", descriptor_set), registry)
    with pytest.raises(SerializationError, match=said):
        serializer.serialize("t", data, [])


def test_a_message_that_readers_would_read_otherwise_is_an_error(registry, descriptor_set):
    other = upb(compiled(PROTO.replace("string a = 1", "bytes a = 1")), "shop.Order")
    added = upb(compiled(PROTO.replace("string a = 1;", "")), "shop.Order")
    serializer = configured(ProtobufSerializer("shop.Order", descriptor_set), registry)
    with pytest.raises(SerializationError, match=r"shop.Order differs from schema 1 of subject t-value in inner.a"):
        serializer.serialize("t", other(id=1), [])
    assert serializer.serialize("t", added(id=1), []).endswith(b"\x08\1")


@pytest.mark.parametrize(
    ("make", "options", "said"),
    [
        (AvroSerializer, {}, "AvroSerializer needs a schema: give it to the constructor, or set"),
        (AvroSerializer, {"schema.registry.urls": "http://x"}, "schema.registry.urls is not an option"),
        (lambda: AvroSerializer("{"), {}, "not JSON"),
        (lambda: AvroSerializer('"lang"'), {}, "not an Avro schema"),
        (
            lambda: AvroSerializer('"long"'),
            {"schema.registry.url": "http://x", "value.subject.name.strategy": "record"},
            "value.subject.name.strategy=record needs the schema of a record",
        ),
        (lambda: ProtobufSerializer(descriptor_set=b""), {}, "descriptor_set needs message"),
        (lambda: ProtobufSerializer("shop.None", b""), {}, "has no message shop.None"),
    ],
)
def test_what_a_serializer_lacks_is_said_at_once(make, options, said):
    with pytest.raises(ConfigError, match=said):
        make().configure(options, False)


def test_dicts_and_columns_need_a_message(registry):
    serializer = configured(ProtobufSerializer(), registry)
    with pytest.raises(SerializationError, match="a dict needs the constructor's message"):
        serializer.serialize("t", {"a": 1}, [])
    with pytest.raises(SerializationError, match="columns need the constructor's message"):
        serializer.serialize_column("t", pa.array([{"a": 1}]))


@pytest.mark.parametrize("kind", [KafkaProducer, SyncProducer])
@pytest.mark.parametrize("name", [AVRO, "KafkaAvroSerializer"])
def test_javas_names_and_the_registrys_options_are_options_of_the_producer(registry, broker, kind, name):
    registry.add("t-value", '"long"')
    options = {
        "bootstrap.servers": broker.bootstrap_servers,
        "value.serializer": name,
        "schema.registry.url": registry.url,
        "use.latest.version": "true",
    }
    with kind(options) as producer:
        producer.send(ProducerRecord("t", 1))
    assert [record.value for record in broker.topic("t").records()] == [b"\0\0\0\0\1\2"]


JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="secret";'


@pytest.mark.filterwarnings("ignore:sasl.mechanism has no effect")
@pytest.mark.parametrize("kind", [KafkaProducer, SyncProducer])
@pytest.mark.parametrize(
    ("options", "login"),
    [
        ({"basic.auth.credentials.source": "SASL_INHERIT"}, b"me:secret"),
        (
            {"basic.auth.credentials.source": "USER_INFO", "basic.auth.user.info": "me:${vault:FILE:key}"},
            b"me:of-the-file",
        ),
    ],
    ids=["inherited", "of a provider"],
)
def test_credentials_of_the_registry_may_be_the_brokers_or_a_providers(broker, tmp_path, kind, options, login):
    """Both producers pass their parsed options to serializers."""
    (tmp_path / "file").write_text("key=of-the-file\n")
    given = {
        "bootstrap.servers": broker.bootstrap_servers, "sasl.mechanism": "PLAIN", "sasl.jaas.config": JAAS,
        "config.providers": "vault",
        "config.providers.vault.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        **{name: value.replace("FILE", str(tmp_path / "file")) for name, value in options.items()},
    }  # fmt: skip
    with SchemaRegistryServer(login=f"Basic {base64.b64encode(login).decode()}") as registry:
        given["schema.registry.url"] = registry.url
        with kind(given, value_serializer=AvroSerializer('"long"')) as producer:
            producer.send(ProducerRecord("t", 1))
    assert [record.value for record in broker.topic("t").records()] == [b"\0\0\0\0\1\2"]


def test_javas_name_of_the_protobuf_serializer_takes_messages(registry, broker):
    options = {"bootstrap.servers": broker.bootstrap_servers, "value.serializer": PROTOBUF}
    with KafkaProducer({**options, "schema.registry.url": registry.url}) as producer:
        producer.send(ProducerRecord("t", StringValue(value="x")))
    (record,) = broker.topic("t").records()
    assert StringValue.FromString(record.value[7:]) == StringValue(value="x")


def test_options_of_a_registry_without_a_serializer_are_refused(broker):
    with pytest.raises(ConfigError, match="schema.registry.url is not an option of Kafka's producer"):
        KafkaProducer({"bootstrap.servers": broker.bootstrap_servers, "schema.registry.url": "http://x"})


def test_send_columns_encodes_and_partitions_keys_as_send_does(registry, kafka_test_broker):
    kafka_test_broker.create_topic("t", 7)
    options = {
        "bootstrap.servers": kafka_test_broker.bootstrap_servers,
        "schema.registry.url": registry.url,
        "value.schema.id.serializer": "HeaderSchemaIdSerializer",
    }
    rows = [{**ROWS[0], "id": number} for number in range(50)]
    keys = [f"k{number}" for number in range(50)]
    with KafkaProducer(
        options, key_serializer=AvroSerializer('"string"'), value_serializer=AvroSerializer(ORDER)
    ) as it:
        for key, row in zip(keys, rows, strict=True):
            it.send(ProducerRecord("t", row, key, headers=[("h", b"1")]))
        it.flush()
        one = {(record.key, record.value, record.headers, record.partition) for record in _records(kafka_test_broker)}
        it.send_columns("t", key=keys, value=pa.array(rows, KIND), headers=[[{"key": "h", "value": b"1"}]] * 50)
        it.flush()
    both = [(record.key, record.value, record.headers, record.partition) for record in _records(kafka_test_broker)]
    assert len(one) == 50
    assert len(both) == 100
    assert set(both) == one


def test_a_row_that_cannot_be_encoded_stops_its_columns_and_no_others(registry, broker):
    options = {"bootstrap.servers": broker.bootstrap_servers, "schema.registry.url": registry.url}
    with KafkaProducer(options, value_serializer=AvroSerializer(ORDER)) as producer:
        with pytest.raises(UnencodableRowsError, match="state"):
            producer.send_columns("t", value=pa.array([ROWS[0], {**ROWS[0], "state": "SENT"}], KIND))
        with pytest.raises(InvalidRecordError, match="must be of one length"):
            producer.send_columns("t", value=pa.array(ROWS, KIND), key=["k"])
        producer.send_columns("t", value=pa.array(ROWS, KIND))
        producer.send_columns("t", value=[])
    assert len(broker.topic("t").records()) == 2


def _records(broker):
    return broker.topic("t").records()
