"""What planning and tasks need of a schema registry: its options, and the client that asks it.

Confluent's is in ``registry_options.py`` and ``client.py``, AWS Glue's in ``glue.py``. A further registry is a file
with two such classes, and a line in ``REGISTRIES`` (``formats/format_options.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import RegistryId
from spark_kafka_sink.schemas.registry.schema import RegisteredSchema, Schema, SchemaIdPlace, Side, SubjectNameStrategy

if TYPE_CHECKING:
    from spark_kafka_sink.schemas.encoding.encoder import Encoder


@dataclass(frozen=True, slots=True)
class SideOptions:
    """The options of the key's or the value's schema.

    ``subject_name``: the subject for all topics; None: the strategy names it. ``strict``: whether a schema that options
    give besides ``use_latest_version`` or ``schema_id`` must be the registry's.
    """

    auto_register: bool
    subject_name_strategy: SubjectNameStrategy
    subject_name: str | None = None
    use_latest_version: bool = False
    schema_id: int | None = None
    strict: bool = False
    schema_id_place: SchemaIdPlace = SchemaIdPlace.PREFIX

    @property
    def takes_registered(self) -> bool:
        """Whether rows are written with a schema that the registry holds: the latest version, or the schema with a
        given id."""
        return self.use_latest_version or self.schema_id is not None

    @property
    def needs_topic(self) -> bool:
        """Whether each topic has a subject of its own."""
        return self.subject_name is None and self.subject_name_strategy is not SubjectNameStrategy.RECORD

    def subject(self, topic: str, side: Side, record: str) -> str:
        """The subject's name; see ``SubjectNameStrategy.subject``."""
        return self.subject_name or self.subject_name_strategy.subject(topic, side, record)


class RegistryOptions(Protocol):
    """The options of a registry, and how its serializers write. Picklable and hashable."""

    client: ClassVar[str]
    """The class that implements ``Registry``, as ``module:class``. It takes these options and a clock."""
    bare_bytes: ClassVar[bool]
    """Avro: whether a value whose whole schema is ``bytes`` has no length in front."""
    derives_null: ClassVar[bool]
    """Avro: whether a column that may be null derives a union with null."""
    single_files: ClassVar[bool]
    """Protobuf: whether a schema is one file, and a message has a number in it. Otherwise the schema refers to files
    that it imports, and a message has a path of indexes."""

    def __hash__(self) -> int: ...

    @classmethod
    def owns(cls, name: str) -> bool:
        """Whether a name, in lower case, is an option of this registry."""

    @classmethod
    def parse(
        cls,
        options: Mapping[str, str],
        faults: list[str],
        producer: ProducerConfig | None,
        encoded: Mapping[Side, str],
        /,
    ) -> Self | None:
        """None after a fault, which is added to ``faults``, and if no option of an optional registry is given.

        ``options``: all options, of which only the registry's are read. ``producer``: the options of the brokers; None
        if they have faults. ``encoded``: the type of schema of each encoded side.
        """

    @property
    def scope(self) -> tuple[str, ...]:
        """What an answer depends on besides its question. Has no secrets."""

    def side(self, side: Side) -> SideOptions: ...

    def encoder(self, encoder: Encoder, indexes: tuple[int, ...]) -> Encoder:
        """The encoder of what follows the schema's name. ``indexes``: the message's, for Protobuf."""

    def schema_name(self, found: RegisteredSchema, indexes: tuple[int, ...], side: Side) -> tuple[bytes, bytes | None]:
        """The prefix and the header (or None) by which a record names its schema. Raises ``RegistryError``."""


class Registry(Protocol):
    """The client of a registry. Caches no response; see ``CachedRegistry``.

    Each call blocks, but not without end. It raises ``RegistryError``, and ``ConfigError`` for stores or placeholders
    that cannot be read. No text contains a credential. For one thread at a time.
    """

    def register(self, subject: str, schema: Schema, topic: str = "") -> RegisteredSchema:
        """Registers the schema under the subject, unless the subject already has it. Returns the subject's version with
        the schema. ``topic``: the topic of its first rows, if it is known."""

    def lookup(self, subject: str, schema: Schema) -> RegisteredSchema:
        """The version of the subject that has this schema."""

    def latest(self, subject: str, *, serialized: bool = False) -> RegisteredSchema:
        """The latest version, for ``use_latest_version``. ``serialized``: see ``Schema.serialized_file``."""
        raise NotImplementedError

    def by_id(self, schema_id: RegistryId, subject: str, *, serialized: bool = False) -> RegisteredSchema:
        """The schema with an id. Its version may be None."""

    def imports(self, schema: Schema, *, serialized: bool = False) -> Mapping[str, Schema]:
        """All schemas that ``schema`` imports, by the names of the imports, each after the schemas that it imports
        itself."""
        return {}
