"""Keys and values in a registry's wire format, through Spark, real Kafka and a real registry; read by others."""

import json

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, dual_schema_id_deserializer
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from benchmarks.spark_jars import avro_jar
from spark_kafka_sink.producer.kafka_partitioners import murmur2
from spark_kafka_sink.records.arrays import bytes_column
from tests.faults.exactly_once.reader import read_committed
from tests.spark.conftest import PARTITIONS
from tests.spark.writes import fails, one_off, one_row, save, stream, streaming
from tests.support.schema_registry_server import SchemaRegistryServer
from tests.unit.encoding.protos import compiled, upb

pytestmark = pytest.mark.jvm

ROW = "struct(id, cast(id as string) name, if(id % 2 = 0, null, id / 2.0D) half, array(cast(id as int)) list) value"


@pytest.fixture
def avro(to_topic, local_schema_registry):
    """Options of a write to the topic."""
    return {**to_topic, "valueFormat": "avro", "schema.registry.url": local_schema_registry.url}


@pytest.fixture
def client(local_schema_registry):
    return SchemaRegistryClient({"url": local_schema_registry.url})


def decoded(topic, client, part="value"):
    """As confluent-kafka's AvroDeserializer reads them."""
    read = AvroDeserializer(client)
    return [read(getattr(record, part), None) for record in topic.records()]


def decoded_rows(topic, client):
    """The values by id, also of transactions."""
    read = AvroDeserializer(client)
    values = [value for of_partition in read_committed(topic.servers, topic.name).values() for value in of_partition]
    return sorted((read(value, None) for value in values), key=lambda row: row["id"])


def rows(spark, first=0, end=1000):
    return spark.range(first, end).selectExpr(ROW)


def expected(first=0, end=1000):
    return [
        {"id": number, "name": str(number), "half": None if number % 2 == 0 else number / 2, "list": [number]}
        for number in range(first, end)
    ]


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_frame_is_read_as_it_was_written(spark, topic, avro, client, guarantee):
    save(rows(spark), one_off({**avro, "deliveryGuarantee": guarantee}))
    assert decoded_rows(topic, client) == expected()


def test_sparks_own_from_avro_reads_every_type(spark, topic, avro, client):
    """And to_avro, which knows no registry, writes the same bytes."""
    spark.sql(f"ADD JAR {avro_jar()}")
    columns = (
        "id", "cast(id as int) i", "cast(id as smallint) s", "id / 3.0D d", "cast(id as float) f", "id % 2 = 0 b",
        "cast(id as decimal(20, 3)) dec", "cast(id as string) str", "cast(cast(id as string) as binary) bin",
        "date_add(date'1969-12-30', cast(id as int)) day", "timestamp_micros(id * 1234567 - 5000000) at",
        "cast(timestamp_micros(id * 99) as timestamp_ntz) local", "array(id, null, -id) list",
        "map('k', struct(cast(id as decimal(3, 1)) x)) entries", "if(id % 5 = 0, null, named_struct('y', id)) nested",
        "array() none", "array(null) some",
    )  # fmt: skip
    frame = spark.range(60).selectExpr(f"struct({', '.join(columns)}) value")
    save(frame, avro)
    schema = client.get_latest_version(f"{topic.name}-value").schema.schema_str
    written = spark.createDataFrame([(record.value[5:],) for record in topic.records()], "value binary")
    read = written.selectExpr(f"from_avro(value, '{schema}', map()) value")
    assert sorted(read.collect(), key=lambda row: row.value.id) == frame.collect()
    own = {bytes(row.value) for row in frame.selectExpr("to_avro(value) value").collect()}
    assert own == {bytes(row.value) for row in written.collect()}


def test_a_union_from_sparks_struct_for_it_has_the_bytes_of_to_avro(spark, topic, avro):
    spark.sql(f"ADD JAR {avro_jar()}")
    union = [{"type": "array", "items": "int"}, "null", "long", "string"]
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "u", "type": union}]})
    members = ("array(3)", "id", "'x'")
    struct = ", ".join(f"'member{n}', if(id % 4 = {n}, {each}, null)" for n, each in enumerate(members))
    frame = spark.range(60).selectExpr(f"struct(named_struct({struct}) u) value")
    save(frame, {**avro, "valueSchema": schema})
    own = frame.selectExpr(f"to_avro(value, '{schema}') value").collect()
    assert sorted(bytes(row.value) for row in own) == sorted(record.value[5:] for record in topic.records())


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_stream_is_read_as_it_was_written(spark, topic, avro, client, tmp_path, guarantee):
    options = {**avro, "deliveryGuarantee": guarantee}
    for first in (0, 100):
        frame = streaming(rows(spark, first, first + 100), tmp_path / "in")
        stream(frame, options, tmp_path / "checkpoint")
    assert decoded_rows(topic, client) == expected(0, 200)


def test_equal_keys_go_where_javas_partitioner_puts_their_encoded_bytes(spark, topic, avro, client):
    frame = spark.range(200).selectExpr("struct(id % 20 as k) key", "struct(id) value")
    save(frame, {**avro, "keyFormat": "avro"})
    assert sorted(row["k"] for row in decoded(topic, client, "key")) == sorted([*range(20)] * 10)
    for record in topic.records():
        assert record.key[:1] == b"\0"
        (number,) = murmur2(bytes_column([record.key]))
        assert record.partition == (number & 0x7FFFFFFF) % PARTITIONS


def test_each_topic_of_a_column_has_its_own_subject(spark, topic, second_topic, avro, client):
    frame = spark.range(100).selectExpr(
        "struct(id) value", f"if(id % 3 = 0, '{topic.name}', '{second_topic.name}') topic"
    )
    del avro["topic"]
    save(frame, avro)
    client.get_latest_version(f"{topic.name}-value")
    client.get_latest_version(f"{second_topic.name}-value")
    assert sorted(row["id"] for row in decoded(topic, client)) == [number for number in range(100) if number % 3 == 0]
    assert sorted(row["id"] for row in decoded(second_topic, client)) == [number for number in range(100) if number % 3]


def test_a_null_struct_is_a_tombstone(spark, topic, avro, client):
    save(spark.range(4).selectExpr("if(id = 1, null, struct(id)) value"), avro)
    assert sorted((record.value is None) for record in topic.records()) == [False, False, False, True]
    schema = json.loads(client.get_latest_version(f"{topic.name}-value").schema.schema_str)
    assert schema[1] == "null"


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_protobuf_is_read_as_it_was_written(spark, topic, avro, client, tmp_path, guarantee):
    line = "message Unused {} message Line { string item = 1; } "
    order = "message Order { int64 id = 1; repeated Line lines = 2; optional string note = 3; }"
    descriptor_set = compiled(shop=f'syntax = "proto3"; package shop; {line}{order}')
    save_orders(spark, one_off({**avro, "deliveryGuarantee": guarantee}), descriptor_set, tmp_path)
    values = [value for of_partition in read_committed(topic.servers, topic.name).values() for value in of_partition]
    assert {value[5:7] for value in values} == {b"\2\4"}, "the third message of its file"
    orders = {order.id: order for order in (upb(descriptor_set, "shop.Order").FromString(each[7:]) for each in values)}
    assert sorted(orders) == [*range(50)]
    assert [line.item for line in orders[3].lines] == ["3"]
    assert [number for number, order in orders.items() if order.HasField("note")] == [7]


def test_protobuf_is_registered_with_what_it_imports(spark, topic, avro, client, tmp_path):
    order = "message Order { int64 id = 1; repeated Line lines = 2; optional string note = 3; }"
    part = f"{topic.name}.proto"
    descriptor_set = compiled(
        **{
            "shop": f'syntax = "proto3"; package shop; import "{part}"; {order}',
            topic.name: 'syntax = "proto3"; package shop; message Line { string item = 1; }',
        }
    )
    save_orders(spark, avro, descriptor_set, tmp_path)
    registered = client.get_latest_version(f"{topic.name}-value").schema
    assert [(each.name, each.subject, each.version) for each in registered.references] == [(part, part, 1)]
    read = upb(descriptor_set, "shop.Order").FromString
    assert sorted(read(record.value[6:]).lines[0].item for record in topic.records()) == sorted(map(str, range(50)))


def test_the_latest_protobuf_of_a_registry_that_has_only_text_needs_no_descriptor(spark, topic, avro, tmp_path):
    message = "message Order { int64 id = 1; repeated Line lines = 2; optional string note = 3; }"
    descriptor_set = compiled(shop=f'syntax = "proto3"; package shop; {message} message Line {{ string item = 1; }}')
    save_orders(spark, avro, descriptor_set, tmp_path)
    latest = {**avro, "use.latest.version": "true"}
    save(one_row(spark, "struct(77L id) value"), {**latest, "valueFormat": "protobuf"})
    save_orders(spark, latest, descriptor_set, tmp_path)
    read = upb(descriptor_set, "shop.Order").FromString
    ids = sorted(read(record.value[6:]).id for record in topic.records())
    assert ids == sorted([*range(50), *range(50), 77])


def save_orders(spark, options, descriptor_set, folder):
    path = folder / "descriptors"
    path.write_bytes(descriptor_set)
    items = "array(named_struct('item', cast(id as string))) lines"
    frame = spark.range(50).selectExpr(f"struct(id, {items}, if(id = 7, '', null) note) value")
    given = {"valueFormat": "protobuf", "valueDescriptorFile": str(path), "valueMessage": "shop.Order"}
    save(frame, {**options, **given})


@pytest.mark.parametrize("place", ["prefix", "header"])
def test_json_names_its_schema_and_is_read_by_confluents_deserializer(spark, topic, avro, local_schema_registry, place):
    schema = '{"title": "T", "type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}'
    columns = ("if(id = 3, null, to_json(struct(id))) value", "cast(to_json(struct(id)) as binary) key")
    with SchemaRegistryServer() as guids:
        registry = {"prefix": local_schema_registry, "header": guids}[place]
        options = {**avro, "schema.registry.url": registry.url}
        for side in ("key", "value"):
            options |= {f"{side}Format": "json", f"{side}Schema": schema, f"{side}.schema.id.serializer": place}
        save(spark.range(20).selectExpr(*columns), options)
        read = JSONDeserializer(None, schema_registry_client=SchemaRegistryClient({"url": registry.url}))
        of_side = {
            side: sorted(read_part(read, record, side)["id"] for record in topic.records() if getattr(record, side))
            for side in ("key", "value")
        }
    assert of_side == {"key": [*range(20)], "value": [number for number in range(20) if number != 3]}
    with_header = [len(record.headers or ()) for record in topic.records()]
    assert sorted(with_header) == ([0] * 20 if place == "prefix" else [1, *[2] * 19])


def read_part(deserialize, record, side):
    """A key or a value, by the id in front of it or the GUID in its header."""
    field = {"key": MessageField.KEY, "value": MessageField.VALUE}[side]
    return deserialize(getattr(record, side), SerializationContext("t", field, list(record.headers or ())))


def test_an_incompatible_schema_is_the_registrys_own_error(spark, topic, avro, client):
    save(one_row(spark, "struct(1L id) value"), avro)
    client.set_compatibility(f"{topic.name}-value", "BACKWARD")
    said = fails(save, one_row(spark, "struct(1L id, 2L more) value"), avro)
    assert "409" in said
    assert "give valueSchema with a default for each new field" in said
    fields = '{"name":"id","type":"long"},{"name":"more","type":["null","long"],"default":null}'
    schema = f'{{"type":"record","name":"topLevelRecord","fields":[{fields}]}}'
    save(one_row(spark, "struct(1L id, 2L more) value"), {**avro, "valueSchema": schema})
    save(one_row(spark, "struct(1L id) value"), {**avro, "valueSchema": schema})
    assert [row.get("more") for row in decoded(topic, client)].count(2) == 1


def test_keys_and_messages_are_read_by_the_guids_in_their_headers(spark, topic, avro, tmp_path):
    """Protobuf of a descriptor set, then of what the registry has: a serialized descriptor with an import."""
    descriptor_set = compiled(
        shop='syntax = "proto3"; package shop; import "line.proto"; message A {} message B {} '
        "message Order { int64 id = 1; repeated Line lines = 2; optional string note = 3; }",
        line='syntax = "proto3"; package shop; message Line { string item = 1; }',
    )
    path = tmp_path / "descriptors"
    path.write_bytes(descriptor_set)
    frame = spark.range(30).selectExpr(
        "struct(concat('key-', id) k) key", "struct(id, array(named_struct('item', cast(id as string))) lines) value"
    )
    with SchemaRegistryServer() as registry:
        options = {**avro, "keyFormat": "avro", "valueFormat": "protobuf", "schema.registry.url": registry.url}
        options |= {f"{side}.schema.id.serializer": "header" for side in ("key", "value")}
        save(frame, {**options, "valueDescriptorFile": str(path), "valueMessage": "shop.Order"})
        save(frame, {**options, "use.latest.version": "true", "valueMessage": "shop.Order"})
        client = SchemaRegistryClient({"url": registry.url})
        by_id = {"schema.id.deserializer": dual_schema_id_deserializer}
        key = AvroDeserializer(client, conf=by_id)
        value = ProtobufDeserializer(upb(descriptor_set, "shop.Order"), by_id, client)
        read = [(read_part(key, each, "key"), read_part(value, each, "value")) for each in topic.records()]
    assert sorted(order.id for _, order in read) == sorted([*range(30), *range(30)])
    assert all(order.lines[0].item == f"{order.id}" and k == {"k": f"key-{order.id}"} for k, order in read)


@pytest.mark.parametrize("has_column_topic", [False, True])
def test_a_registry_without_guids_is_an_error_before_any_row(spark, topic, avro, has_column_topic):
    if has_column_topic:
        del avro["topic"]
    frame = one_row(spark, "struct(1 a) value", f"'{topic.name}' topic")
    said = fails(save, frame, {**avro, "value.schema.id.serializer": "header"})
    assert "value.schema.id.serializer=header: the registry gives schema" in said
    assert has_column_topic is not ("Failed to initialize Python data source writer" in said), (
        "where the topic is known"
    )
    assert topic.count() == 0
