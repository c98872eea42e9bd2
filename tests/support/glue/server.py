"""AWS Glue's schema registry on loopback: moto in a process of its own, behind a proxy that gives what moto lacks.

The proxy has Glue's own text for a version that is missing, versions that are PENDING and become AVAILABLE or FAILURE,
and errors that a test asks for; and it keeps a log of the calls.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import urllib3
from flask import Flask, Response, request
from werkzeug.serving import make_server

from tests.support.loopback_app import LoopbackApp
from tests.support.waiting import DEADLINE_S

REGION = "eu-central-1"
ACCESS_DENIED = (
    "AccessDeniedException",
    "User: arn:aws:sts::123456789012:assumed-role/job/i-0 is not authorized to perform this action",
)
THROTTLED = ("ThrottlingException", "Rate exceeded")
CONCURRENT = ("ConcurrentModificationException", "The schema is being modified by another request.")
# It ends with its input, so also when its parent is killed.
_MOTO = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


class Asked(NamedTuple):
    """A call of Glue's API. ``region``, ``key``: what its signature names."""

    operation: str
    body: dict[str, Any]
    region: str
    key: str


@dataclass
class GlueServer(LoopbackApp):
    """``faults``: the next errors of an operation, each a code and a text. ``incompatible``: versions that are
    registered meanwhile become FAILURE. ``pending``: how many times the status of a new version is PENDING.
    """

    faults: dict[str, deque[tuple[str, str]]] = field(default_factory=dict)
    incompatible: bool = False
    pending: int = 0
    asked: list[Asked] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._statuses: dict[str, deque[str]] = {}
        app = Flask("glue")
        app.add_url_rule("/", "call", self._call, methods=["POST"])
        self._server = make_server("127.0.0.1", 0, app, threaded=True)
        self.url = f"http://127.0.0.1:{self._server.port}"

    def __enter__(self) -> Self:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._moto = subprocess.Popen([sys.executable, "-c", _MOTO], text=True, **pipes)
        self._moto_url = f"http://127.0.0.1:{int(self._moto.stdout.readline())}/"
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._moto.communicate(timeout=DEADLINE_S)

    def let_go(self) -> None:
        """No call hangs."""

    def fail(self, operation: str, error: tuple[str, str], times: int = 1) -> None:
        """Has the next calls of ``operation`` fail."""
        self.faults.setdefault(operation, deque()).extend([error] * times)

    def forget(self) -> None:
        """Ends faults and begins the log of calls anew; schemas stay."""
        self.faults.clear()
        self.asked.clear()
        self.incompatible, self.pending = False, 0

    def operations(self) -> list[str]:
        """The calls but those of consumers."""
        return [each.operation for each in self.asked if each.operation != "GetSchemaVersion"]

    def ask(self, operation: str, **body: Any) -> dict[str, Any]:
        """A call of the test itself, which no fault meets and no log has."""
        signature = (
            f"AWS4-HMAC-SHA256 Credential=test/20260101/{REGION}/glue/aws4_request, SignedHeaders=host, Signature=0"
        )
        status, answer = self._forward(operation, body, signature)
        assert status == 200, answer
        return answer

    def _call(self) -> Response:
        operation = request.headers["X-Amz-Target"].removeprefix("AWSGlue.")
        signature, body = request.headers["Authorization"], request.get_json(force=True)
        key, _, region = signature.partition("Credential=")[2].split("/")[:3]
        self.asked.append(Asked(operation, body, region, key))
        if self.faults.get(operation):
            return _error(*self.faults[operation].popleft())
        status, answer = self._forward(operation, body, signature)
        if status != 200:
            if operation == "GetSchemaByDefinition" and self._has_schema(body, signature):
                return _error("EntityNotFoundException", "Schema version is not found.")
            return _response(status, answer)
        identifier = answer.get("SchemaVersionId", "")
        if operation == "RegisterSchemaVersion" and identifier not in self._statuses:
            end = ["FAILURE"] if self.incompatible else []
            self._statuses[identifier] = deque(["PENDING"] * max(self.pending, self.incompatible) + end)
        if statuses := self._statuses.get(identifier):
            answer["Status"] = statuses[0]
            if statuses[0] == "PENDING":
                statuses.popleft()
        return _response(status, answer)

    def _has_schema(self, body: dict[str, Any], signature: str) -> bool:
        return self._forward("GetSchema", {"SchemaId": body["SchemaId"]}, signature)[0] == 200

    def _forward(self, operation: str, body: dict[str, Any], signature: str) -> tuple[int, dict[str, Any]]:
        headers = {
            "Authorization": signature,
            "X-Amz-Target": f"AWSGlue.{operation}",
            "Content-Type": "application/x-amz-json-1.1",
        }
        answer = urllib3.request("POST", self._moto_url, body=json.dumps(body), headers=headers, timeout=DEADLINE_S)
        return answer.status, answer.json()


def _error(code: str, text: str) -> Response:
    return _response(400, {"__type": code, "Message": text})


def _response(status: int, body: dict[str, Any]) -> Response:
    return Response(json.dumps(body), status, content_type="application/x-amz-json-1.1")
