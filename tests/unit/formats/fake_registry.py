"""A registry in memory, with GUIDs or without; every request is listed."""

from __future__ import annotations

from spark_kafka_sink.errors import RegistryError
from spark_kafka_sink.schemas.formats import task_formats
from spark_kafka_sink.schemas.registry.cache import CachedRegistry
from spark_kafka_sink.schemas.registry.schema import RegisteredSchema, Schema
from spark_kafka_sink.spark.options import SinkOptions


class FakeRegistry:
    """``down``: every request fails. ``refuses``: every registration is incompatible."""

    def __init__(self, *, guids: bool = False) -> None:
        self.requests: list[tuple[str, str]] = []
        self.down = False
        self.refuses = False
        self.rules: dict[str, tuple[str, ...]] = {}
        """By subject."""
        self._guids = guids
        self._ids: dict[Schema, int] = {}
        self._versions: dict[str, list[Schema]] = {}

    def serve_workers(self, monkeypatch):
        """Tasks ask this registry, as those of a new worker: no response of an earlier one is cached."""
        caches = {}

        def cached(options, application):
            return caches.setdefault((options, application), CachedRegistry(self, options))

        monkeypatch.setattr(task_formats, "cached_registry", cached)

    def register(self, subject, schema, topic=""):
        self._note("register", subject)
        versions = self._versions.setdefault(subject, [])
        if schema not in versions:
            if self.refuses:
                raise RegistryError(f"{subject}: incompatible with an earlier schema.", 409, 409)
            self._ids.setdefault(schema, len(self._ids) + 1)
            versions.append(schema)
        return self._registered(subject, schema)

    def lookup(self, subject, schema):
        self._note("lookup", subject)
        if schema not in self._versions.get(subject, []):
            raise RegistryError(f"{subject} has no such schema.", 404, 40403)
        return self._registered(subject, schema)

    def latest(self, subject, *, serialized=False):
        self._note("latest", subject)
        if subject not in self._versions:
            raise RegistryError(f"no subject {subject}.", 404, 40401)
        return self._registered(subject, self._versions[subject][-1])

    def by_id(self, schema_id, subject, *, serialized=False):
        self._note("by_id", str(schema_id))
        for schema, number in self._ids.items():
            if number == schema_id:
                return self._registered(subject, schema)._replace(version=None)
        raise RegistryError(f"no schema {schema_id}.", 404, 40403)

    def imports(self, schema, *, serialized=False):
        if schema.references:
            self._note("imports", schema.references[0].subject)
        return {each.name: self._versions[each.subject][each.version - 1] for each in schema.references}

    def _registered(self, subject, schema):
        number = self._ids[schema]
        versions = self._versions.get(subject, [])
        version = versions.index(schema) + 1 if schema in versions else None
        guid = number.to_bytes(16, "big") if self._guids else None
        return RegisteredSchema(subject, version, number, schema, guid, self.rules.get(subject, ()))

    def _note(self, what, subject):
        if self.down:
            raise RegistryError("the registry does not respond.")
        self.requests.append((what, subject))


def formats_of(**given):
    """Of a sink that writes Avro and has a registry; underscores stand for dots."""
    named = {name.replace("_", "."): value for name, value in given.items()}
    url = {"schema.registry.url": "http://registry:8081"}
    return SinkOptions.parse({"kafka.bootstrap.servers": "a:1", "valueFormat": "avro", **url, **named}).formats
