"""A schema registry on loopback: Confluent's API on Flask, with GUIDs, faults and a log of its requests.

Compatibility is not checked: ``incompatible`` says which schemas are refused. protoc answers ``format=serialized``.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import uuid
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from flask import Flask, Response, request
from werkzeug.serving import make_server

from tests.support.loopback_app import LoopbackApp
from tests.support.waiting import DEADLINE_S
from tests.unit.encoding.protos import compiled, files_of


class Asked(NamedTuple):
    """A request: ``path`` with percent signs decoded, ``raw`` as it was sent."""

    method: str
    path: str
    raw: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


class Fault(NamedTuple):
    """The response to the next request instead of its own. ``content``: JSON unless it is bytes."""

    status: int
    content: Any = b""
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed


@dataclass
class SchemaRegistryServer(LoopbackApp):
    """``login``: the header Authorization that it asks for. ``guids`` off: as registries before Confluent 7.9.

    ``names_versions`` off: a registration responds with the id only, as older registries. ``hang``: set it, and
    requests get no response until ``let_go``. ``certificate``: PEM file with key and chain, for https.
    ``client_authority``: PEM file of the authority whose certificates clients must have. ``port``: 0 for a free one.
    """

    login: str | None = None
    guids: bool = True
    names_versions: bool = True
    certificate: Path | None = None
    client_authority: Path | None = None
    port: int = 0
    faults: deque[Fault] = field(default_factory=deque)
    incompatible: set[str] = field(default_factory=set)
    asked: list[Asked] = field(default_factory=list)
    subjects: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.hang = threading.Event()
        self._released = threading.Event()
        self._schemas: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        app = Flask("registry")
        app.before_request(self._before)
        app.register_error_handler(404, lambda _: ("<html>nothing here</html>", 404))
        for method, rule, view in (
            ("POST", "/subjects/<path:subject>/versions", self._register),
            ("POST", "/subjects/<path:subject>", self._lookup),
            ("GET", "/subjects", lambda: sorted(self.subjects)),
            ("GET", "/subjects/<path:subject>/versions/<version>", self._version),
            ("GET", "/schemas/ids/<int:number>", self._by_id),
            ("GET", "/schemas/guids/<uuid:guid>", self._by_guid),
        ):
            app.add_url_rule(f"/registry{rule}", f"{method}{rule}", view, methods=[method])
        self._server = make_server("127.0.0.1", self.port, app, threaded=True, ssl_context=self._tls())
        self.port = self._server.port
        self.address = f"http{'s' if self.certificate else ''}://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """With a path, as Apicurio's."""
        return f"{self.address}/registry"

    def let_go(self) -> None:
        self.hang.clear()
        self._released.set()

    def add(self, subject: str, schema: str, schema_type: str = "AVRO", references: Any = ()) -> int:
        """Registers without a request; returns the id."""
        return self._add(subject, {"schema": schema, "schemaType": schema_type, "references": list(references)})

    def guid(self, number: int) -> bytes:
        """Of the schema with this id."""
        return uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(self._schemas[number - 1])).bytes

    def _tls(self) -> ssl.SSLContext | None:
        if self.certificate is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate)
        if self.client_authority is not None:
            context.load_verify_locations(self.client_authority)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _before(self) -> Any:
        raw = request.environ["RAW_URI"]
        body = request.get_json(force=True) if request.data else None
        self.asked.append(Asked(request.method, request.path, raw, request.args.to_dict(), dict(request.headers), body))
        if self.hang.is_set():
            self._released.wait(DEADLINE_S)
        if self.faults:
            status, content, headers = self.faults.popleft()
            text = content if isinstance(content, bytes) else json.dumps(content).encode()
            return Response(text, status, headers)
        if self.login is not None and request.headers.get("Authorization") != self.login:
            return {"error_code": 401, "message": "Unauthorized"}, 401
        return None

    def _register(self, subject: str) -> Any:
        body = request.get_json(force=True)
        if body["schema"] in self.incompatible:
            message = f"Schema being registered is incompatible with an earlier schema for subject {subject!r}"
            return {"error_code": 409, "message": message}, 409
        if not body["schema"]:
            return {"error_code": 42201, "message": "Invalid schema"}, 422
        number = self._add(subject, body)
        if not self.names_versions:
            return {"id": number}
        return self._shown(subject, number)

    def _lookup(self, subject: str) -> Any:
        if subject not in self.subjects:
            return self._no_subject(subject)
        wanted = _normal(request.get_json(force=True))
        for number in self.subjects[subject]:
            if self._schemas[number - 1] == wanted:
                return self._shown(subject, number)
        return {"error_code": 40403, "message": "Schema not found"}, 404

    def _version(self, subject: str, version: str) -> Any:
        if subject not in self.subjects:
            return self._no_subject(subject)
        numbers = self.subjects[subject]
        if version != "latest" and not 0 < int(version) <= len(numbers):
            return {"error_code": 40402, "message": f"Version {version} not found."}, 404
        return self._shown(subject, numbers[-1 if version == "latest" else int(version) - 1])

    def _by_id(self, number: int) -> Any:
        if not 0 < number <= len(self._schemas):
            return {"error_code": 40403, "message": f"Schema {number} not found"}, 404
        return self._content(number)

    def _by_guid(self, guid: uuid.UUID) -> Any:
        if not self.guids:
            return {"error_code": 404, "message": "HTTP 404 Not Found"}, 404
        for number in range(1, len(self._schemas) + 1):
            if self.guid(number) == guid.bytes:
                return {"id": number, **self._content(number)}
        return {"error_code": 40403, "message": f"Schema {guid} not found"}, 404

    def _no_subject(self, subject: str) -> Any:
        return {"error_code": 40401, "message": f"Subject '{subject}' not found."}, 404

    def _add(self, subject: str, body: dict[str, Any]) -> int:
        with self._lock:
            schema = _normal(body)
            if schema not in self._schemas:
                self._schemas.append(schema)
            number = self._schemas.index(schema) + 1
            versions = self.subjects.setdefault(subject, [])
            if number not in versions:
                versions.append(number)
            return number

    def _shown(self, subject: str, number: int) -> dict[str, Any]:
        version = self.subjects[subject].index(number) + 1
        return {"subject": subject, "version": version, "id": number, **self._content(number)}

    def _content(self, number: int) -> dict[str, Any]:
        schema = dict(self._schemas[number - 1])
        if schema["schemaType"] == "AVRO":
            del schema["schemaType"]  # as Confluent's
        if request and request.args.get("format") == "serialized" and schema.get("schemaType") == "PROTOBUF":
            schema["schema"] = self._serialized(schema)
        guid = {"guid": str(uuid.UUID(bytes=self.guid(number)))} if self.guids else {}
        return {**schema, **guid}

    def _serialized(self, schema: dict[str, Any]) -> str:
        """The file's descriptor in base64."""
        files = {"schema": schema["schema"]}
        unseen = list(schema["references"])
        while unseen:
            each = unseen.pop()
            imported = self._schemas[self.subjects[each["subject"]][each["version"] - 1] - 1]
            files[each["name"].removesuffix(".proto")] = imported["schema"]
            unseen += imported["references"]
        (file,) = (each for each in files_of(compiled(**files)) if each.name == "schema.proto")
        return base64.b64encode(file.SerializeToString()).decode()


def _normal(body: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema": body["schema"],
        "schemaType": body.get("schemaType", "AVRO"),
        "references": list(body.get("references", [])),
    }
