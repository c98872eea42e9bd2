"""Every request and response that the client speaks, in each version, as Kafka's own jar writes it.

The fields come from the message definitions in the jar, and each has a value of its own. An array has two elements. The
second one is *sparse*: it has null where that is allowed, no error, and neither the arrays nor the tagged fields that a
sender may leave out. Each message is recorded twice, the second time with sparse fields only.

A line with a message's values (a Python literal) is followed by one for each version that has these fields: the bytes
in hex, with the header, but without the frame's size.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any
from zipfile import ZipFile

from spark_kafka_sink.network.api_versions import SUPPORTED_VERSIONS, camel_case
from spark_kafka_sink.network.messages import API_KEYS
from spark_kafka_sink.testing import DEFAULT_VERSION
from spark_kafka_sink.testing.kafka_jars import kafka_jars
from tests.support.kafka_jvm import kafka_jvm

CORRELATION_ID = 77
CLIENT_ID = "golden"

Definition = Mapping[str, Any]


def golden_bytes() -> list[str]:
    jar = kafka_jars(DEFAULT_VERSION) / f"kafka-clients-{DEFAULT_VERSION}.jar"
    with kafka_jvm() as jvm, ZipFile(jar) as definitions:
        return [
            line
            for api in SUPPORTED_VERSIONS
            for kind in ("Request", "Response")
            for line in _lines(jvm, definitions, api, kind)
        ]


def _lines(jvm: Any, definitions: ZipFile, api: str, kind: str) -> Iterator[str]:
    name = f"{camel_case(api)}{kind}"
    text = definitions.read(f"common/message/{name}.json").decode()
    definition = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    versions = range(SUPPORTED_VERSIONS[api].lowest, SUPPORTED_VERSIONS[api].highest + 1)
    for sparse in (False, True):
        values = {version: _Values(definition, version).message(sparse) for version in versions}
        for alike, these in groupby(versions, values.__getitem__):
            yield f"{name} {alike}"
            for version in these:
                yield f"{version} {_frame(jvm, name, kind, API_KEYS[api], version, alike).hex()}"


class _Values:
    """Values for the fields that a version of a definition has."""

    def __init__(self, definition: Definition, version: int) -> None:
        self._definition = definition
        self._structs = {struct["name"]: struct["fields"] for struct in definition.get("commonStructs", ())}
        self._version = version
        self._numbers: dict[int, int] = {}
        """By the ``id`` of a field's definition."""

    def message(self, sparse: bool) -> dict[str, object]:
        return self._fields(self._definition["fields"], 0, sparse)

    def _fields(self, fields: list[Definition], element: int, sparse: bool) -> dict[str, object]:
        values = {}
        for field in fields:
            number = 3 * self._numbers.setdefault(id(field), len(self._numbers)) + element
            if _has(field["versions"], self._version) and not (sparse and "taggedVersions" in field):
                values[field["name"][0].lower() + field["name"][1:]] = self._value(field, number, element, sparse)
        return values

    def _value(self, field: Definition, number: int, element: int, sparse: bool) -> object:
        kind = field["type"]
        # No client sends null instead of records.
        is_nullable = _has(field.get("nullableVersions", "none"), self._version) and (
            kind != "records" or self._definition["type"] == "response"
        )
        if sparse and is_nullable:
            return None
        fields = field.get("fields") or self._structs.get(kind.removeprefix("[]"))
        if kind.startswith("[]"):
            if sparse and field.get("ignorable"):
                return []
            elements = [(element, sparse), (element + 1, True)][sparse:]
            if fields:
                return [self._fields(fields, *each) for each in elements]
            return [_primitive(kind.removeprefix("[]"), number + each) for each, _ in elements]
        if fields:
            return self._fields(fields, element, sparse)
        if field["name"].endswith("ErrorCode"):
            return 0 if sparse else number
        if field.get("entityType") == "brokerId":  # the same for all fields, because some refer to others
            return _primitive(kind, element)
        return not sparse if kind == "bool" else _primitive(kind, number)


def _primitive(kind: str, number: int) -> object:
    values = {
        "int8": number, "int16": 300 + number, "int32": 5_000 + number, "int64": 2**40 + number, "string": f"{number}ä",
        "bytes": b"%03d" % number, "records": b"%03d" % number, "uuid": bytes([number]) * 16,
    }  # fmt: skip
    return values[kind]


def _has(versions: str, version: int) -> bool:
    """Whether the version is in a range of Kafka's definitions, such as ``3+`` or ``0-2``."""
    if versions == "none":
        return False
    lowest, _, highest = versions.rstrip("+").partition("-")
    return int(lowest) <= version and (versions.endswith("+") or version <= int(highest or lowest))


def _frame(jvm: Any, name: str, kind: str, key: int, version: int, values: Mapping[str, object]) -> bytes:
    api = jvm.org.apache.kafka.common.protocol.ApiKeys.forId(key)
    header = {"correlationId": CORRELATION_ID}
    if kind == "Request":
        header |= {"requestApiKey": key, "requestApiVersion": version, "clientId": CLIENT_ID}
    header_version = getattr(api, f"{kind.lower()}HeaderVersion")(version)
    return _bytes(jvm, f"{kind}Header", header_version, header) + _bytes(jvm, name, version, values)


def _bytes(jvm: Any, name: str, version: int, values: Mapping[str, object]) -> bytes:
    node = jvm.com.fasterxml.jackson.databind.ObjectMapper().readTree(json.dumps(values, default=_base64))
    message = getattr(jvm.org.apache.kafka.common.message, f"{name}DataJsonConverter").read(node, version)
    prefixed = jvm.org.apache.kafka.common.protocol.MessageUtil.toVersionPrefixedBytes(version, message)
    return bytes(prefixed[2:])


def _base64(value: bytes) -> str:
    """Kafka's text of bytes, and of the 16 bytes of a UUID."""
    return base64.urlsafe_b64encode(value).decode().rstrip("=")
