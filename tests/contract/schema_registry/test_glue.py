"""What the client asks AWS Glue, in which order, and what it makes of each answer: botocore against a scripted Glue."""

import json
import logging
import subprocess
import sys
from collections import defaultdict, deque
from functools import cache
from uuid import UUID

import pytest
from botocore.loaders import create_loader
from flask import Flask, Response, request
from werkzeug.serving import make_server

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config.providers import CLASSES, URLS
from spark_kafka_sink.errors import ConfigError, RegistryError
from spark_kafka_sink.schemas.registry.glue import GlueRegistry
from spark_kafka_sink.schemas.registry.schema import RegisteredSchema, Schema
from spark_kafka_sink.spark.options import SinkOptions
from tests.support.loopback_app import LoopbackApp

ID = UUID(int=7)
AVRO = Schema("AVRO", '"int"')
FOUND = RegisteredSchema("t", None, ID, AVRO)
GET, REGISTER, CREATE = "GetSchemaByDefinition", "RegisterSchemaVersion", "CreateSchema"
VERSION, METADATA = "GetSchemaVersion", "PutSchemaVersionMetadata"
ASSUMED = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
<AccessKeyId>OFROLE</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>
<Expiration>2999-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"""


def version(status="AVAILABLE", **more):
    return 200, {"SchemaVersionId": str(ID), "Status": status, **more}


def error(code, message="", status=400):
    return status, {"__type": code, "Message": message}


CREATED = (200, {"SchemaVersionId": str(ID), "SchemaVersionStatus": "AVAILABLE"})
NO_VERSION = error("EntityNotFoundException", "Schema version is not found.")
NO_SCHEMA = error("EntityNotFoundException", "Schema is not found.")


_create_loader = cache(create_loader)  # what takes long is read once


class ScriptedGlue(LoopbackApp):
    """Glue and STS. ``answers``: of each operation, in turn; the last one is given again. ``calls``: operation and
    parameters. ``keys``: the access key of each call."""

    def __init__(self):
        self.answers = defaultdict(deque, {METADATA: deque([(200, {})])})
        self.calls, self.keys = [], []
        app = Flask("glue")
        app.add_url_rule("/", "answer", self._answer, methods=["POST"])
        self._server = make_server("127.0.0.1", 0, app, threaded=True)
        self.url = f"http://127.0.0.1:{self._server.port}"

    def let_go(self):
        pass

    def script(self, **answers):
        self.answers.update({name: deque(each if isinstance(each, list) else [each]) for name, each in answers.items()})

    @property
    def operations(self):
        return [name for name, _ in self.calls]

    def _answer(self):
        self.keys.append(request.headers["Authorization"].partition("Credential=")[2].partition("/")[0])
        if "X-Amz-Target" not in request.headers:
            self.calls.append((request.form["Action"], request.form.to_dict()))
            return Response(ASSUMED, 200)
        name = request.headers["X-Amz-Target"].removeprefix("AWSGlue.")
        self.calls.append((name, request.get_json(force=True)))
        answers = self.answers[name]
        status, body = answers.popleft() if len(answers) > 1 else answers[0]
        return Response(json.dumps(body), status)


@pytest.fixture
def glue(monkeypatch, tmp_path):
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "OWN")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setattr("spark_kafka_sink.schemas.registry.glue._FIRST_WAIT_MS", 10.0)
    monkeypatch.setattr("botocore.session.create_loader", _create_loader)
    with ScriptedGlue() as server:
        yield server


def registry(glue, **given):
    options = {"kafka.bootstrap.servers": "a:1", "kafka.max.block.ms": "5000", "schemaRegistry": "glue",
               "valueFormat": "avro", "endpoint": glue.url, "region": "eu-west-1"}  # fmt: skip
    options = {name: value for name, value in {**options, **given}.items() if value is not None}
    return GlueRegistry(SinkOptions.parse(options).formats.registry, SystemClock())


@pytest.mark.parametrize(
    ("answers", "operations"),
    [
        ({GET: version()}, [GET]),
        ({GET: NO_VERSION, REGISTER: version()}, [GET, REGISTER, METADATA]),
        ({GET: NO_SCHEMA, CREATE: CREATED}, [GET, CREATE, METADATA]),
        ({GET: NO_SCHEMA, CREATE: error("AlreadyExistsException"), REGISTER: version()},
         [GET, CREATE, REGISTER, METADATA]),
        ({GET: NO_VERSION, REGISTER: version("PENDING"), VERSION: [version("PENDING"), version()]},
         [GET, REGISTER, VERSION, VERSION, METADATA]),
        ({GET: version("PENDING"), VERSION: version()}, [GET, VERSION]),
        ({GET: [error("ThrottlingException", "Rate exceeded"), error("Internal", status=500), NO_VERSION],
          REGISTER: [error("ConcurrentModificationException"), version()]},
         [GET, GET, GET, REGISTER, REGISTER, METADATA]),
        ({GET: NO_VERSION, REGISTER: version(), METADATA: error("AccessDeniedException", "no")},
         [GET, REGISTER, METADATA]),
    ],
)  # fmt: skip
def test_a_schema_is_found_registered_or_created_in_javas_order(glue, answers, operations, caplog):
    glue.script(**answers)
    with caplog.at_level(logging.WARNING):
        assert registry(glue).register("t", AVRO, "t") == FOUND
    assert glue.operations == operations
    assert ("Allow glue:PutSchemaVersionMetadata in the policy" in caplog.text) == (METADATA in answers)


def test_what_is_created_has_what_the_options_say(glue):
    glue.script(**{GET: NO_SCHEMA, CREATE: CREATED})
    given = {"registry.name": "r", "compatibility": "full", "description": "d", "tags.team": "x", "metadata.by": "me"}
    registry(glue, **given).register("s", AVRO, "t")
    name = {"SchemaName": "s", "RegistryName": "r"}
    key, of = "MetadataKeyValue", {"SchemaVersionId": str(ID)}
    assert glue.calls == [
        (GET, {"SchemaId": name, "SchemaDefinition": '"int"'}),
        (CREATE, {"RegistryId": {"RegistryName": "r"}, "SchemaName": "s", "DataFormat": "AVRO", "Compatibility": "FULL",
                  "Description": "d", "Tags": {"team": "x"}, "SchemaDefinition": '"int"'}),
        (METADATA, {**of, key: {"MetadataKey": "x-amz-meta-transport", "MetadataValue": "t"}}),
        (METADATA, {**of, key: {"MetadataKey": "by", "MetadataValue": "me"}}),
    ]  # fmt: skip


def test_a_replay_gets_the_schema_of_its_id(glue):
    glue.script(**{VERSION: version(DataFormat="JSON", SchemaDefinition="{}", VersionNumber=3)})
    assert registry(glue).by_id(ID, "t") == RegisteredSchema("t", None, ID, Schema("JSON", "{}"))
    assert glue.calls == [(VERSION, {"SchemaVersionId": str(ID)})]


NAME = r"^Schema t of AWS Glue's default-registry \(registry.name\)"


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({GET: NO_VERSION, REGISTER: version("FAILURE")},
         f"version {ID} is FAILURE: it is not compatible with an earlier one. Change the schema; or change the "
         "compatibility in Glue, and delete this version"),
        ({GET: version("FAILURE")}, f"version {ID} is FAILURE: it is not compatible"),
        ({GET: version("DELETING")}, f"version {ID} is DELETING."),
        ({GET: version("PENDING"), VERSION: version("PENDING")},
         rf"version {ID} is still PENDING after 400 ms \(kafka.max.block.ms\)"),
        ({GET: error("AccessDeniedException", "User: x is not authorized.")},
         "GetSchemaByDefinition failed: AccessDeniedException: User: x is not authorized. Allow glue:GetSchemaByDefin"),
        ({GET: error("ThrottlingException", "Rate exceeded")},
         r"GetSchemaByDefinition failed within 400 ms \(kafka.max.block.ms\): ThrottlingException: Rate exceeded."),
        ({GET: (200, {})}, "the response has no id. Is endpoint right"),
        ({GET: NO_SCHEMA, CREATE: error("EntityNotFoundException", "Registry is not found.")},
         "CreateSchema failed: EntityNotFoundException: Registry is not found."),
    ],
)  # fmt: skip
def test_an_error_says_which_schema_why_and_what_to_do(glue, answers, said):
    glue.script(**answers)
    with pytest.raises(RegistryError, match=f"{NAME}: {said}"):
        registry(glue, **{"kafka.max.block.ms": "400"}).register("t", AVRO, "t")
    assert METADATA not in glue.operations


def test_without_registration_a_version_must_be_there(glue):
    for answer in (NO_VERSION, NO_SCHEMA):
        glue.script(**{GET: answer})
        with pytest.raises(RegistryError, match="register it first, or set schemaAutoRegistrationEnabled=true") as told:
            registry(glue).lookup("t", AVRO)
        assert told.value.status == 404
    glue.script(**{GET: version()})
    assert registry(glue).lookup("t", AVRO) == FOUND
    assert glue.operations == [GET] * 3


def test_a_schema_that_is_too_long_is_not_sent_and_an_endpoint_that_is_not_there_is_an_error_in_time(glue):
    with pytest.raises(RegistryError, match=f"{NAME} has 170001 characters. Glue takes 170000"):
        registry(glue).register("t", Schema("JSON", "x" * 170_001))
    assert glue.calls == []
    with pytest.raises(RegistryError, match=r"failed within 300 ms .*: EndpointConnectionError: .*127.0.0.1:1/"):
        registry(glue, endpoint="http://127.0.0.1:1", **{"kafka.max.block.ms": "300"}).lookup("t", AVRO)


def test_region_and_credentials_come_from_aws_usual_places(glue, monkeypatch):
    glue.script(**{GET: version()})
    with pytest.raises(RegistryError, match="NoRegionError: .* Give the option region, or set AWS_REGION"):
        registry(glue, region=None).lookup("t", AVRO)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    assert registry(glue, region=None).lookup("t", AVRO) == FOUND
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    for role in ({}, {"assumeRoleArn": "arn:aws:iam::123456789012:role/r"}):
        with pytest.raises(RegistryError, match="NoCredentialsError: .* Neither the environment nor a profile nor the"):
            registry(glue, **role).lookup("t", AVRO)
    assert glue.keys == ["OWN"]


def test_a_role_is_assumed_and_a_proxy_is_used(glue, monkeypatch):
    glue.script(**{GET: version()})
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", glue.url)
    asked = registry(glue, assumeRoleArn="arn:aws:iam::123456789012:role/r", assumeRoleSessionName="mine")
    assert asked.lookup("t", AVRO) == asked.lookup("t", AVRO) == FOUND
    assert glue.operations == ["AssumeRole", GET, GET]
    assert glue.calls[0][1]["RoleSessionName"] == "mine"
    assert glue.keys == ["OWN", "OFROLE", "OFROLE"]
    monkeypatch.setenv("PROXY", glue.url)
    assert registry(glue, endpoint="http://glue.invalid", proxyUrl="${env:PROXY}").lookup("t", AVRO) == FOUND
    monkeypatch.setenv(URLS, glue.url)
    for given in ({"endpoint": "http://evil.invalid"}, {"proxyUrl": "http://evil.invalid"}):
        with pytest.raises(ConfigError, match=rf"^{next(iter(given))} has a URL that .*{URLS}"):
            registry(glue, **given).lookup("t", AVRO)
    monkeypatch.setenv(CLASSES, "gcp")
    with pytest.raises(ConfigError, match=f"^schemaRegistry names 'glue', which .*{CLASSES}"):
        registry(glue).lookup("t", AVRO)


_LATER = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from spark_kafka_sink.schemas.registry.cache import cached_registry
from spark_kafka_sink.schemas.registry.schema import Schema
from spark_kafka_sink.spark.options import SinkOptions
options = {"kafka.bootstrap.servers": "a:1", "schemaRegistry": "glue", "valueFormat": "avro", "endpoint": sys.argv[2],
           "region": "eu-west-1", "schemaAutoRegistrationEnabled": "true"}
cached = cached_registry(SinkOptions.parse(options).formats.registry, "app", on_driver=True)
print(cached.register("t", Schema("AVRO", '"int"'), "t").id, "botocore" in sys.modules)
"""


def test_an_answer_of_the_applications_cache_imports_no_botocore(glue, tmp_path):
    glue.script(**{GET: version()})
    command = [sys.executable, "-c", _LATER, str(tmp_path), glue.url]
    said = [subprocess.run(command, check=True, capture_output=True, text=True).stdout for _ in range(2)]
    assert said == [f"{ID} True\n", f"{ID} False\n"]
    assert glue.operations == [GET]
