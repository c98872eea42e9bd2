"""The bytes that confluent-kafka's own serializers write."""

from __future__ import annotations

from uuid import UUID

import pytest
from confluent_kafka.schema_registry.serde import SchemaId

from spark_kafka_sink.schemas.formats.wire_format import guid_header, id_prefix

GUID = "89791762-2336-4186-9674-299b90a802e2"
MESSAGES = [(), (0,), (1,), (2, 0, 1), (300,)]


@pytest.mark.parametrize("indexes", MESSAGES)
def test_an_id_stands_in_front_of_the_value(indexes):
    referee = SchemaId("PROTOBUF" if indexes else "AVRO", 70_000, None, list(indexes) or None)
    assert id_prefix(70_000, indexes) == referee.id_to_bytes()


@pytest.mark.parametrize("indexes", MESSAGES)
def test_a_guid_stands_in_a_header(indexes):
    referee = SchemaId("PROTOBUF" if indexes else "AVRO", None, GUID, list(indexes) or None)
    assert guid_header(UUID(GUID).bytes, indexes) == referee.guid_to_bytes()
