"""The versions that TestBroker offers as Kafka 4.1, as far as kio can read them."""

from __future__ import annotations

from kio.index import UnknownEntity, load_request_schema

from spark_kafka_sink.testing.broker.versions import API_KEYS, RELEASES


def has_version(api_key: int, version: int) -> bool:
    """Whether kio can read this version at all."""
    try:
        load_request_schema(api_key, version)
    except UnknownEntity:
        return False
    return True


OFFERED = [
    (api, version)
    for api, versions in RELEASES["4.1"].versions.items()
    for version in range(versions.lowest, versions.highest + 1)
    if has_version(API_KEYS[api], version)
]
