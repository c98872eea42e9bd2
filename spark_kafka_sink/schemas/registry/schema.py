"""Schemas in a registry, the names of their subjects, and their JSON in Confluent's API.

Responses are foreign data, so each field is checked.
"""

from __future__ import annotations

import base64
import binascii
import json
from enum import Enum
from typing import Any, Final, NamedTuple, TypeGuard
from uuid import UUID

from spark_kafka_sink.common.model import LARGEST_INT32, RegistryId
from spark_kafka_sink.errors import RegistryError, sanitize
from spark_kafka_sink.records.varints import encode_varint

_MAX_NAME_LENGTH: Final = 100
_GATEWAY: Final = "GATEWAY"
_WRITERS_RULES: Final = ("domainRules", "encodingRules")


AVRO: Final = "AVRO"
"""The type of a schema for which requests and responses name no type."""


class SchemaReference(NamedTuple):
    """A schema that another schema imports. ``name``: the name in the import."""

    name: str
    subject: str
    version: int


class Schema(NamedTuple):
    """A schema. ``type``: AVRO, PROTOBUF, JSON or another of the registry's API. ``text``: for Protobuf see also
    ``serialized_file``.
    """

    type: str
    text: str
    references: tuple[SchemaReference, ...] = ()

    def serialized_file(self) -> bytes | None:
        """The FileDescriptorProto if ``text`` of Protobuf is one in base64; None for .proto text.

        Registries that support requests with ``serialized`` send the text so. The file may lack its name.
        """
        try:
            return base64.b64decode(self.text, validate=True)
        except (binascii.Error, ValueError):
            return None


class RegisteredSchema(NamedTuple):
    """A version of a subject.

    ``version``: None for a schema that was requested by its id. ``guid``: 16 bytes; None from a registry without GUIDs.
    ``rules``: the names of the rules that a writer must carry out, such as the encryption of a field.
    """

    subject: str
    version: int | None
    id: RegistryId
    schema: Schema
    guid: bytes | None = None
    rules: tuple[str, ...] = ()


class Side(Enum):
    """The part of a record that a schema describes."""

    KEY = "key"
    VALUE = "value"


class SubjectNameStrategy(Enum):
    """The values of ``key.subject.name.strategy`` and ``value.subject.name.strategy``, as in Java."""

    TOPIC = "topic"
    RECORD = "record"
    TOPIC_RECORD = "topic-record"
    TOPIC_ALONE = "topic alone"
    """The topic without the side. No value of Confluent's options, but the default of AWS Glue."""

    @property
    def needs_record(self) -> bool:
        """Whether the subject has the name of the record or message. A schema without a name is then refused."""
        return self in (SubjectNameStrategy.RECORD, SubjectNameStrategy.TOPIC_RECORD)

    def subject(self, topic: str, side: Side, record: str) -> str:
        """The subject's name. ``record``: full name of the record or message, title of the JSON Schema; "" for none."""
        if self is SubjectNameStrategy.TOPIC_ALONE:
            return topic
        if self is SubjectNameStrategy.TOPIC:
            return f"{topic}-{side.value}"
        assert record
        return record if self is SubjectNameStrategy.RECORD else f"{topic}-{record}"


class SchemaIdPlace(Enum):
    """The values of ``key.schema.id.serializer`` and ``value.schema.id.serializer``."""

    PREFIX = "prefix"
    HEADER = "header"


def confluent_name(
    found: RegisteredSchema, indexes: tuple[int, ...], side: Side, place: SchemaIdPlace
) -> tuple[bytes, bytes | None]:
    """The prefix and the header (or None) by which a record names its schema. ``indexes``: message indexes of Protobuf.

    The prefix is magic 0 and the id, the header magic 1 and the GUID, both with the indexes behind them (Java:
    ``PrefixSchemaIdSerializer``, ``HeaderSchemaIdSerializer``). Raises ``RegistryError`` if a header needs a GUID and
    the registry gave none.
    """
    if place is SchemaIdPlace.PREFIX:
        assert isinstance(found.id, int)
        return b"\0" + found.id.to_bytes(4, "big") + _encoded_indexes(indexes), None
    if found.guid is None:
        raise RegistryError(
            f"{side.value}.schema.id.serializer=header: the registry gives schema {found.id} of subject "
            f"{found.subject} no GUID, which the header would name. Use prefix, or a registry that has GUIDs "
            "(Confluent's from 8.0 on)."
        )
    return b"", b"\1" + found.guid + _encoded_indexes(indexes)


def _encoded_indexes(indexes: tuple[int, ...]) -> bytes:
    """The number of message indexes, then each index, as varints; the first message of a file, ``[0]``, is one zero
    (Java: ``MessageIndexes``).
    """
    if not indexes:
        return b""
    if indexes == (0,):
        return encode_varint(0)
    return b"".join(map(encode_varint, (len(indexes), *indexes)))


class UnreadableResponseError(Exception):
    """A response is not what the API promises. The text goes on after "its response"."""


def request_body(schema: Schema) -> bytes:
    """The body of a registration or a look-up. It has no schema type for Avro, as in Java."""
    body: dict[str, Any] = {"schema": schema.text}
    if schema.type != AVRO:
        body["schemaType"] = schema.type
    if schema.references:
        body["references"] = [reference._asdict() for reference in schema.references]
    return json.dumps(body).encode()


def read_object(content: bytes) -> dict[str, Any]:
    """The JSON object in a response. Raises ``UnreadableResponseError``."""
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError):
        raise UnreadableResponseError("is not JSON") from None
    if not isinstance(parsed, dict):
        raise UnreadableResponseError("is not a JSON object")
    return parsed


def problem(content: bytes) -> tuple[int | None, str]:
    """Error code and message in the response of an error; None and "" if it has none. Other contents are not shown."""
    try:
        parsed = read_object(content)
    except UnreadableResponseError:
        return None, ""
    code, message = parsed.get("error_code"), parsed.get("message")
    text = " ".join(message.split()) if isinstance(message, str) else ""
    return code if _is_integer(code) else None, sanitize(text)


def registered_schema(parsed: dict[str, Any], subject: str, asked: Schema | None = None) -> RegisteredSchema:
    """The version in a response. ``asked``: the requested schema, which has the fields that the response leaves out.

    Raises ``UnreadableResponseError``.
    """
    schema_id, version = parsed.get("id"), parsed.get("version")
    if not _is_integer(schema_id) or not 0 <= schema_id <= LARGEST_INT32:
        raise UnreadableResponseError(f"has no valid id, but {schema_id!a:.100}")
    if version is not None and not (_is_integer(version) and version >= 1):
        raise UnreadableResponseError(f"has no valid version, but {version!a:.100}")
    guid, rules = _guid(parsed.get("guid")), _rules(parsed.get("ruleSet"))
    return RegisteredSchema(subject, version, schema_id, _schema(parsed, asked), guid, rules)


def _schema(parsed: dict[str, Any], asked: Schema | None) -> Schema:
    text = parsed.get("schema")
    if text is None and asked is not None:
        return asked
    if not _is_text(text):
        raise UnreadableResponseError("has no schema")
    kind = parsed.get("schemaType") or (AVRO if asked is None else asked.type)
    if not _is_text(kind):
        raise UnreadableResponseError(f"has no valid schemaType, but {kind!a:.100}")
    references = parsed.get("references") or []
    if not isinstance(references, list):
        raise UnreadableResponseError("has no list of references")
    return Schema(kind, text, tuple(_reference(reference) for reference in references))


def _reference(parsed: object) -> SchemaReference:
    if isinstance(parsed, dict):
        name, subject, version = parsed.get("name"), parsed.get("subject"), parsed.get("version")
        if _is_text(name) and _is_text(subject) and _is_integer(version):
            return SchemaReference(name, subject, version)
    raise UnreadableResponseError("has a reference without name, subject and version")


def _is_text(value: object) -> TypeGuard[str]:
    """Whether it is a str without lone surrogates, which JSON can have and no request can carry."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _rules(rule_set: object) -> tuple[str, ...]:
    """The rules that a writer must carry out (Java: ``AbstractKafkaSchemaSerDe.executeRules``).

    Migration rules, disabled rules and rules of mode READ are left out; any other rule counts.
    """
    if rule_set is None:
        return ()
    if not isinstance(rule_set, dict):
        raise UnreadableResponseError("has no valid ruleSet")
    if rule_set.get("enableAt") == _GATEWAY:
        return ()
    found: list[object] = []
    for phase in _WRITERS_RULES:
        rules = rule_set.get(phase) or []
        if not isinstance(rules, list):
            raise UnreadableResponseError("has no valid ruleSet")
        found += filter(_applies, rules)
    return tuple(map(_shown_rule, found))


def _applies(rule: object) -> bool:
    return not isinstance(rule, dict) or not (rule.get("disabled") is True or rule.get("mode") == "READ")


def _shown_rule(rule: object) -> str:
    """The rule's name and type."""
    named = rule if isinstance(rule, dict) else {}
    return f"{str(named.get('name'))[:_MAX_NAME_LENGTH]!a} ({str(named.get('type'))[:_MAX_NAME_LENGTH]!a})".replace(
        "'", ""
    )


def _guid(text: object) -> bytes | None:
    try:
        return UUID(text).bytes if isinstance(text, str) else None
    except ValueError:
        raise UnreadableResponseError(f"has no valid guid, but {text!a:.100}") from None


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
