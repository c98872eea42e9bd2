from __future__ import annotations

import sys

import pytest
from kio.schema.index import schema_name_map
from kio.static.constants import EntityType

from spark_kafka_sink.network.messages import camel_case, decode_response, schema
from spark_kafka_sink.network.metadata_api import metadata_request
from tests.support.scripted_network import response_frame


def test_the_names_of_kios_classes_follow_from_the_name_of_the_api():
    for api, versions in schema_name_map.items():
        for entities in versions.values():
            for kind in {EntityType.request, EntityType.response} & entities.keys():
                assert entities[kind].endswith(f":{camel_case(api)}{kind.name.capitalize()}")


@pytest.mark.parametrize("version", [9, 10, 12])
def test_the_size_says_how_much_follows_and_kio_reads_the_header(version):
    from kio.schema.request_header.v2 import RequestHeader
    from kio.serial import entity_reader

    request = metadata_request(("t",), True, print)
    (frame,) = request.build(version, 77, "me")
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, header_size = entity_reader(RequestHeader)(frame, 4)
    assert (header.request_api_key, header.request_api_version) == (3, version)
    assert (header.correlation_id, header.client_id) == (77, "me")
    body, body_size = entity_reader(schema("metadata", version).MetadataRequest)(frame, 4 + header_size)
    assert [topic.name for topic in body.topics] == ["t"]
    assert 4 + header_size + body_size == len(frame)


def test_only_the_versions_that_are_used_are_imported():
    # An API that nothing else asks for: sys.modules is the whole session's.
    schema("describe_quorum", 1)
    assert "kio.schema.describe_quorum.v1" in sys.modules
    assert "kio.schema.describe_quorum.v0" not in sys.modules


def test_tagged_fields_of_the_response_header_are_skipped(answer_end_txn):
    response = schema("end_txn", 3).EndTxnResponse
    frame = response_frame(5, answer_end_txn())
    body = frame[8:]
    assert body[0] == 0
    tagged = b"\x02" + b"\x00\x03abc" + b"\x07\x00" + body[1:]
    assert decode_response(tagged, response) == decode_response(body, response) == answer_end_txn()
