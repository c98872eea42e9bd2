"""keyFormat, valueFormat and the registry's options beside them: what goes together."""

import pytest

from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.spark.options import SinkOptions

URL = {"schema.registry.url": "http://registry:8081"}
AVRO = {"valueFormat": "avro"}


def parse(options):
    return SinkOptions.parse({"kafka.bootstrap.servers": "a:1", **options}).formats


def faults(options):
    with pytest.raises(ConfigError) as raised:
        parse(options)
    return raised.value.faults


def test_raw_is_the_default_and_needs_nothing():
    assert parse({}) is None
    assert parse({"keyFormat": "raw", "valueformat": "raw"}) is None


def test_registry_options_are_refused_when_both_are_raw():
    (fault,) = faults({**URL, "auto.register.schemas": "false"})
    assert fault == (
        "auto.register.schemas, schema.registry.url: only with keyFormat or valueFormat avro, protobuf or json."
    )


def test_an_unknown_format_is_refused():
    assert faults({"valueFormat": "parquet"}) == (
        "valueFormat must be one of raw, avro, protobuf, json, but is 'parquet'.",
    )


def test_options_of_a_schema_belong_to_their_format():
    assert faults({"keySchema": '"int"', "valueMessage": "a.B", **AVRO}) == (
        "keySchema: only with keyFormat=avro or json.",
        "valueMessage: only with valueFormat=protobuf.",
    )


def test_a_schema_is_given_once():
    assert faults({**AVRO, "valueSchema": '"int"', "valueSchemaFile": "/x"}) == (
        "valueSchema and valueSchemaFile set the same thing: leave one of them out.",
    )


def test_a_descriptor_set_needs_the_message():
    assert faults({"valueFormat": "protobuf", "valueDescriptorFile": "/x"}) == (
        "valueDescriptorFile needs valueMessage, the message in it.",
    )


@pytest.mark.parametrize("options", [{}, URL, {"valueMessage": "a.B"}])
def test_protobuf_derives_no_schema(options):
    (fault,) = faults({"valueFormat": "protobuf", **options})
    assert fault == (
        "valueFormat=protobuf needs a schema: give valueDescriptorFile and valueMessage, or a registry with "
        "use.latest.version or use.schema.id."
    )


def test_json_needs_a_registry_and_a_schema():
    assert faults({"valueFormat": "json", "valueSchema": "{}"}) == (
        "valueFormat=json needs schema.registry.url; without a registry valueFormat=raw writes the same.",
    )
    (fault,) = faults({"valueFormat": "json", **URL})
    assert "valueFormat=json needs a schema: give valueSchema, or a registry with use.latest.version" in fault
    assert parse({"valueFormat": "json", **URL, "use.latest.version": "true"}) is not None
    assert parse({"valueFormat": "json", **URL, "use.schema.id": "7"}) is not None
