"""AWS Glue's schema registry: its options, its form of a value, and its client, which needs botocore.

Names, defaults and bytes are those of Amazon's ``GlueSchemaRegistryKafkaSerializer``. A schema has a name, which is the
subject here, and versions, each with a UUID.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self
from uuid import UUID

from spark_kafka_sink.common.clock import Clock, ExponentialBackoff
from spark_kafka_sink.common.config import ProducerConfig, warn_of_options
from spark_kafka_sink.common.config.option import (
    BOOLEAN,
    PASSWORD,
    STRING,
    ConfigBuilder,
    Matching,
    OneOf,
    Option,
    Password,
    declared_options,
    option,
    without_secrets,
)
from spark_kafka_sink.common.config.producer_config import OPTIONS_BY_NAME
from spark_kafka_sink.common.config.providers import OPTION as CONFIG_PROVIDERS
from spark_kafka_sink.common.config.providers import ConfigProviders, class_fault, take, url_fault
from spark_kafka_sink.common.model import RegistryId
from spark_kafka_sink.common.waiting import sleep
from spark_kafka_sink.errors import ConfigError, RegistryError, sanitize
from spark_kafka_sink.records.varints import encode_unsigned_varint
from spark_kafka_sink.schemas.registry.registry import Registry, SideOptions
from spark_kafka_sink.schemas.registry.schema import RegisteredSchema, Schema, Side, SubjectNameStrategy

if TYPE_CHECKING:
    from spark_kafka_sink.schemas.encoding.encoder import Encoder

_log = logging.getLogger("spark_kafka_sink.schema_registry")

_HTTP: Final = Matching(r"(?i:https?)://\S+", "a URL that begins with https:// or http://")
_COMPRESSION: Final = Matching(
    "(?i:none|zlib)", "none or zlib, for each value by itself (kafka.compression.type compresses batches)"
)


@dataclass(frozen=True, slots=True)
class GlueOptions:
    """The options of Glue. Implements ``RegistryOptions``. ``tags``, ``metadata``: pairs of name and value."""

    client: ClassVar = "spark_kafka_sink.schemas.registry.glue:GlueRegistry"
    bare_bytes: ClassVar = False
    derives_null: ClassVar = False
    single_files: ClassVar = True

    providers: ConfigProviders
    max_block_ms: int
    tags: tuple[tuple[str, str], ...]
    metadata: tuple[tuple[str, str], ...]
    # fmt: off
    region: str | None = option("region", STRING, None, "high",
        "AWS region. Default: AWS_REGION in the environment, then botocore's configuration.")
    registry: str = option("registry.name", STRING, "default-registry", "medium", "Name of the registry.")
    schema: str | None = option("schemaName", STRING, None, "medium",
        "Name of the schema, if only one of key and value is encoded. Default: the topic.")
    key_schema: str | None = option("key.schemaName", STRING, None, "medium", "The same, if both are encoded.")
    value_schema: str | None = option("value.schemaName", STRING, None, "medium", "The same, if both are encoded.")
    auto_register: bool = option("schemaAutoRegistrationEnabled", BOOLEAN, False, "medium",
        "true: create schemas and register versions that the registry lacks. false: they must be there.")
    compatibility: str = option("compatibility", STRING, "BACKWARD", "medium",
        "Compatibility of a schema that the sink creates.",
        OneOf(("NONE", "DISABLED", "BACKWARD", "BACKWARD_ALL", "FORWARD", "FORWARD_ALL", "FULL", "FULL_ALL")))
    compression: str = option("compression", STRING, "none", "medium",
        "zlib costs [time per row](encoding.md#aws-glue).", _COMPRESSION)
    description: str | None = option("description", STRING, None, "low", "Description of a schema that it creates.")
    endpoint: str | None = option("endpoint", STRING, None, "low", "URL of Glue. Default: the region's.", _HTTP)
    proxy_url: Password | None = option("proxyUrl", PASSWORD, None, "low",
        "URL of a proxy, which may have user:password@.")
    role: str | None = option("assumeRoleArn", STRING, None, "medium",
        "Role to assume with the default credentials.")
    role_session: str = option("assumeRoleSessionName", STRING, "spark-kafka-sink", "low", "Name of its session.")
    data_format: str | None = option("dataFormat", STRING, None, "low",
        "Not needed. If given, it must agree with keyFormat and valueFormat.", OneOf(("AVRO", "JSON", "PROTOBUF")))
    # fmt: on

    @classmethod
    def owns(cls, name: str) -> bool:
        return name in _BY_NAME or name in _REFUSED or (name.startswith(_FAMILIES) and name not in OPTIONS_BY_NAME)

    @classmethod
    def parse(
        cls, options: Mapping[str, str], faults: list[str], producer: ProducerConfig | None, encoded: Mapping[Side, str]
    ) -> Self | None:
        if producer is None:
            return None
        draft = ConfigBuilder("", {each.name: each.default for each in _FIELDS.values()})
        draft.values[CONFIG_PROVIDERS] = producer.config_providers
        for name in _BY_NAME.keys() & options.keys():
            take(draft, _BY_NAME[name], options[name])
        refused = sorted(_REFUSED[name] for name in _REFUSED.keys() & options.keys())
        if refused:
            draft.faults.append(f"{', '.join(refused)} are for Amazon's consumers or Java classes: leave them out.")
        tags, metadata = (
            tuple(sorted((name.removeprefix(family), options[name]) for name in options if name.startswith(family)))
            for family in _FAMILIES
        )
        values = {field: draft.values[each.name] for field, each in _FIELDS.items()}
        parsed = cls(producer.config_providers, producer.max_block_ms, tags, metadata, **values)
        faults += draft.faults or parsed._faults(encoded)
        if (endpoint := parsed.endpoint) is not None:
            draft.caution_clear_text("endpoint", endpoint)
        warn_of_options(draft.warnings)
        return parsed

    def _faults(self, encoded: Mapping[Side, str]) -> Iterator[str]:
        names = [self._schema(side) for side in encoded]
        if len({*names}) < len(names):
            given = "is that of key and value" if names[0] else "is by default the topic, for key and value"
            yield f"schemaName {given}, which need a schema each: set key.schemaName or value.schemaName."
        for side, schema_type in encoded.items():
            if self.data_format not in (None, schema_type):
                yield f"dataFormat does not agree with {side.value}Format={schema_type.lower()}: leave it out."

    def _schema(self, side: Side) -> str | None:
        return (self.key_schema if side is Side.KEY else self.value_schema) or self.schema

    @property
    def scope(self) -> tuple[str, ...]:
        return "glue", self.endpoint or "", self.region or "", self.role or "", self.registry

    def side(self, side: Side) -> SideOptions:
        return SideOptions(self.auto_register, SubjectNameStrategy.TOPIC_ALONE, self._schema(side))

    def encoder(self, encoder: Encoder, indexes: tuple[int, ...]) -> Encoder:
        from spark_kafka_sink.schemas.encoding.columns import ZlibEncoder

        return ZlibEncoder(encoder, _number(indexes)) if self._compresses else encoder

    def schema_name(self, found: RegisteredSchema, indexes: tuple[int, ...], side: Side) -> tuple[bytes, bytes | None]:
        """The version of the wire format, the kind of compression, and the UUID of the schema's version."""
        assert isinstance(found.id, UUID)
        return b"\3\5" + found.id.bytes if self._compresses else b"\3\0" + found.id.bytes + _number(indexes), None

    @property
    def _compresses(self) -> bool:
        return self.compression.lower() == "zlib"


def _number(indexes: tuple[int, ...]) -> bytes:
    return b"".join(map(encode_unsigned_varint, indexes))


_FAMILIES: Final = ("tags.", "metadata.")
_FIELDS: Final = declared_options(GlueOptions)
_BY_NAME: Final = {each.name.lower(): each for each in _FIELDS.values()}
GLUE_OPTIONS: Final[tuple[Option, ...]] = (
    *_FIELDS.values(),
    Option("tags.<name>", STRING, None, "low", "A tag of a schema that it creates; names are in lower case."),
    Option("metadata.<name>", STRING, None, "low",
           "Metadata of a version that it registers, besides x-amz-meta-transport, the topic."),
)  # fmt: skip
_REFUSED: Final = {name.lower(): name for name in (
    "avroRecordType", "protobufMessageType", "secondaryDeserializer", "jacksonSerializationFeatures",
    "jacksonDeserializationFeatures", "jsonClassNameResolutionEnabled", "jsonClassNameAllowlist", "cacheSize",
    "timeToLiveMillis", "schemaNameGenerationClass", "userAgentApp",
)}  # fmt: skip


_MAX_CHARACTERS: Final = 170_000
_NO_VERSION: Final = "Schema version is not found"  # of EntityNotFoundException; otherwise there is no schema
_MAY_PASS: Final = frozenset({
    "ConcurrentModificationException", "ThrottlingException", "TooManyRequestsException", "OperationTimeoutException",
})  # fmt: skip
_ADVICE: Final[Mapping[str, str]] = MappingProxyType({
    "AccessDeniedException": "Allow glue:{} in the policy of the user or role.",
    "NoCredentialsError": "Neither the environment nor a profile nor the machine has any.",
    "NoRegionError": "Give the option region, or set AWS_REGION.",
})  # fmt: skip
_NOT_FOUND, _CONFLICT, _TOO_MANY, _SERVER_ERROR = 404, 409, 429, 500
_MAX_REQUEST_S: Final = 10.0
_FIRST_WAIT_MS, _MAX_WAIT_MS = 200.0, 5_000.0


class GlueRegistry(Registry):
    """Glue. Each method, with all its calls, waits and retries, takes at most ``max.block.ms``, and after that only as
    long as a call that is under way: 20 s at most."""

    def __init__(self, options: GlueOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._backoff = ExponentialBackoff(_FIRST_WAIT_MS, _MAX_WAIT_MS, Random())
        self._limit = f"{options.max_block_ms} ms (kafka.max.block.ms)"
        self._api: Any = None
        self._deadline, self._name = 0.0, ""  # of the method that was called last

    def register(self, subject: str, schema: Schema, topic: str = "") -> RegisteredSchema:
        wanted = self._begin(subject, schema)
        found = self._call("GetSchemaByDefinition", "EntityNotFoundException", **wanted)
        if not isinstance(found, str):
            return self._available(found, subject, schema)
        options = self._options
        if _NO_VERSION not in found:
            found = self._call(
                "CreateSchema", "AlreadyExistsException", RegistryId={"RegistryName": options.registry},
                SchemaName=subject, DataFormat=schema.type, Compatibility=options.compatibility,
                Description=options.description or "", Tags=dict(options.tags), SchemaDefinition=schema.text,
            )  # fmt: skip
        if isinstance(found, str):  # somebody else has created it, or had
            found = self._call("RegisterSchemaVersion", **wanted)
        registered = self._available(found, subject, schema)
        transport = {"x-amz-meta-transport": topic} if topic else {}
        for key, value in {**transport, **dict(options.metadata)}.items():
            pair = {"MetadataKey": key, "MetadataValue": value}
            try:
                self._call("PutSchemaVersionMetadata", SchemaVersionId=str(registered.id), MetadataKeyValue=pair)
            except RegistryError as error:
                _log.warning("%s", error)
        return registered

    def lookup(self, subject: str, schema: Schema) -> RegisteredSchema:
        found = self._call("GetSchemaByDefinition", "EntityNotFoundException", **self._begin(subject, schema))
        if isinstance(found, str):
            advice = "register it first, or set schemaAutoRegistrationEnabled=true"
            raise RegistryError(f"{self._name} is not there with this definition ({found}): {advice}.", _NOT_FOUND)
        return self._available(found, subject, schema)

    def by_id(self, schema_id: RegistryId, subject: str, *, serialized: bool = False) -> RegisteredSchema:
        self._begin(subject)
        found = self._call("GetSchemaVersion", SchemaVersionId=str(schema_id))
        return self._registered(found, subject, Schema(found.get("DataFormat", ""), found.get("SchemaDefinition", "")))

    def _begin(self, subject: str, schema: Schema | None = None) -> dict[str, Any]:
        """Begins a method. Returns the parameters of a call about the definition of a schema."""
        self._deadline = self._clock.now() + self._options.max_block_ms
        self._name = f"Schema {subject} of AWS Glue's {self._options.registry} (registry.name)"
        text = "" if schema is None else schema.text
        if len(text) > _MAX_CHARACTERS:
            raise RegistryError(f"{self._name} has {len(text)} characters. Glue takes {_MAX_CHARACTERS}.")
        return {
            "SchemaId": {"SchemaName": subject, "RegistryName": self._options.registry}, "SchemaDefinition": text
        }  # fmt: skip

    def _available(self, found: Any, subject: str, schema: Schema) -> RegisteredSchema:
        """The version, once Glue has found it compatible."""
        registered, attempts = self._registered(found, subject, schema), 0
        version = f"{self._name}: version {registered.id}"
        while (status := found.get("Status") or found.get("SchemaVersionStatus")) == "PENDING":
            if not self._wait(attempts):
                raise RegistryError(f"{version} is still PENDING after {self._limit}. Write again later.")
            attempts += 1
            found = self._call("GetSchemaVersion", SchemaVersionId=str(registered.id))
        if status == "FAILURE":
            raise RegistryError(
                f"{version} is FAILURE: it is not compatible with an earlier one. Change the schema; or change the "
                "compatibility in Glue, and delete this version, which stays FAILURE.", _CONFLICT,
            )  # fmt: skip
        if status != "AVAILABLE":
            raise RegistryError(f"{version} is {sanitize(str(status), 100)}.")
        return registered

    def _registered(self, found: Any, subject: str, schema: Schema) -> RegisteredSchema:
        try:
            return RegisteredSchema(subject, None, UUID(found["SchemaVersionId"]), schema)
        except (KeyError, ValueError):
            raise RegistryError(f"{self._name}: the response has no id. Is endpoint right?") from None

    def _wait(self, attempts: int) -> bool:
        """Waits before a further call. Returns False if the deadline would pass meanwhile."""
        end = self._clock.now() + self._backoff.delay(attempts)
        while end < self._deadline and (left := end - self._clock.now()) > 0:
            sleep(left)
        return end < self._deadline

    def _call(self, operation: str, unless: str = "", **asked: Any) -> Any:
        """The response to a call, which is repeated until the deadline if that may help. For the error ``unless``, its
        message is returned."""
        from botocore import xform_name
        from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
        from botocore.exceptions import ConnectionError as NoConnectionError
        from botocore.parsers import ResponseParserError

        attempts = 0
        while True:
            try:
                if self._api is None:
                    self._api = _connect(self._options)
                return getattr(self._api, xform_name(operation))(**asked)
            except ClientError as error:
                code, said = (sanitize(str(error.response["Error"].get(part, ""))) for part in ("Code", "Message"))
                status = error.response["ResponseMetadata"].get("HTTPStatusCode", 0)
                may_pass = code in _MAY_PASS or status == _TOO_MANY or status >= _SERVER_ERROR
                if code == unless:
                    return said
            except (BotoCoreError, ResponseParserError) as error:
                code, said, status = type(error).__name__, sanitize(str(error)), None
                may_pass = isinstance(error, (NoConnectionError, HTTPClientError))
            if not may_pass or not self._wait(attempts):
                within = f" within {self._limit}" if may_pass else ""
                advice = _ADVICE.get(code, "").format(operation)
                text = f"{self._name}: {operation} failed{within}: {code}: {said.rstrip('.')}. {advice}"
                raise RegistryError(text.rstrip(), status)
            attempts += 1


def _connect(options: GlueOptions) -> Any:
    """botocore's client, with the credentials that AWS's libraries find, as for MSK with IAM, or of a role."""
    from botocore.config import Config
    from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
    from botocore.exceptions import NoCredentialsError
    from botocore.session import Session

    if (fault := class_fault("glue")) is not None:
        raise ConfigError([f"schemaRegistry {fault}."])
    secret = options.proxy_url
    proxy = None if secret is None else options.providers.credential("proxyUrl", secret.value)
    for name, url in (("endpoint", options.endpoint), ("proxyUrl", proxy)):
        if url is not None and (fault := url_fault(without_secrets(url))) is not None:
            raise ConfigError([f"{name} {fault}."])
    limit_s = min(_MAX_REQUEST_S, max(options.max_block_ms, 1) / 1000.0)
    config = Config(
        connect_timeout=limit_s, read_timeout=limit_s, retries={"total_max_attempts": 1},
        proxies=None if proxy is None else {"http": proxy, "https": proxy},
    )  # fmt: skip
    session = Session()
    region = options.region or os.environ.get("AWS_REGION") or session.get_config_variable("region")
    if options.role is not None:
        if (own := session.get_credentials()) is None:
            raise NoCredentialsError
        create = partial(session.create_client, region_name=region, config=config)
        fetcher = AssumeRoleCredentialFetcher(create, own, options.role, {"RoleSessionName": options.role_session})
        assumed = DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")
        session = Session()
        session.register_component("credential_provider", SimpleNamespace(load_credentials=lambda: assumed))
    return session.create_client("glue", region_name=region, endpoint_url=options.endpoint, config=config)
