"""API name to handler: the whole of what this broker understands. Each handler is a module here, by kio's name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Final

from kio.schema.index import api_key_map

from spark_kafka_sink.testing.broker.request_context import Handler
from spark_kafka_sink.testing.broker.versions import API_KEYS

HANDLERS: Final[Mapping[str, Handler]] = MappingProxyType(
    {api: import_module(f"{__package__}.{api_key_map[key]}").handle for api, key in API_KEYS.items()}
)
