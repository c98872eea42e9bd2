"""The provider of tokens in docs/deploy.md, installed as the page says, with stand-ins for Databricks' modules."""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from datetime import UTC, datetime
from types import ModuleType, SimpleNamespace

import botocore.auth
import botocore.session
import pytest
from azure.core.credentials import AccessToken
from pyspark import TaskContext

from spark_kafka_sink.common.config.providers import parse_properties
from spark_kafka_sink.network.login.token_providers import provided_tokens
from spark_kafka_sink.spark.options import SinkOptions
from tests.repository.files import ROOT
from tests.unit.login.test_clouds import KEY, MSK, SECRET, SESSION, SIGNED_AT, b64decoded, expected_url

SECTION = (ROOT / "docs/deploy.md").read_text().partition("#### Service credentials\n")[2]
BLOCKS = dict(re.findall(r"```(\w+)\n(.*?)```", SECTION.partition("\n### ")[0], re.DOTALL))
EVENT_HUBS = "orders.servicebus.windows.net:9093"
GOOGLE = "bootstrap.orders.europe-west3.managedkafka.my-project.cloud.goog:9092"
ACCOUNT = "orders@project.iam.gserviceaccount.com"


class GoogleCredentials:
    """As Google's, without the name of an account."""

    def refresh(self, request):
        assert callable(request)
        self.token, self.expiry = "ya29.access", datetime(2026, 3, 1, 13, 30, 5)


def credentials(cloud):
    if cloud == "aws":
        session = botocore.session.Session()
        session.set_credentials(KEY, SECRET, SESSION)
        return session
    if cloud == "azure":
        return SimpleNamespace(get_token=lambda scope: AccessToken(f"ey.{scope}.x", 1_772_368_205))
    return GoogleCredentials()


@pytest.fixture(params=["task", "notebook"])
def databricks(monkeypatch, request):
    """The modules that a task or a notebook has there. ``cloud``: whose credentials they give; ``asked``: their names."""
    found = SimpleNamespace(cloud="", asked=[])

    def provider(name):
        found.asked.append(name)
        return credentials(found.cloud)

    utilities = SimpleNamespace(credentials=SimpleNamespace(getServiceCredentialsProvider=provider))
    modules = {"databricks": {}, "databricks.sdk": {}}
    if request.param == "task":
        modules["databricks.service_credentials"] = {"getServiceCredentialsProvider": provider}
    else:
        modules["databricks.sdk.runtime"] = {"dbutils": utilities}
    for name, members in modules.items():
        module = ModuleType(name)
        module.__dict__.update(members)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(TaskContext, "_taskContext", object() if request.param == "task" else None)
    return found


@pytest.fixture
def fetch(monkeypatch, tmp_path, databricks):
    """``fetch(cloud, servers)``: a token by the options of the page."""
    project = tomllib.loads(BLOCKS["toml"])["project"]
    (points,) = project["entry-points"].items()
    folder = tmp_path / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = [f"{name} = {value}" for name, value in points[1].items()]
    (folder / "entry_points.txt").write_text("\n".join([f"[{points[0]}]", *lines]))
    (tmp_path / "unity_tokens.py").write_text(BLOCKS["python"])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "unity_tokens", raising=False)
    importlib.invalidate_caches()

    def fetched(cloud, servers):
        databricks.cloud = cloud
        page = parse_properties(BLOCKS["properties"].replace('cloud="aws"', f'cloud="{cloud}" account="{ACCOUNT}"'))
        options = {name.lower(): value for name, value in page.items()}
        sink = SinkOptions.parse({**options, "kafka.bootstrap.servers": servers, "topic": "orders"})
        token = provided_tokens(sink.producer).fetch()
        assert databricks.asked == ["orders"]
        return token

    return fetched


def test_a_service_credential_of_aws_signs_for_msk(fetch, monkeypatch):
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: SIGNED_AT)
    token = fetch("aws", MSK)
    assert b64decoded(token.value) == expected_url(SESSION)
    assert token.expires_at == SIGNED_AT.timestamp() * 1000 + 900_000


def test_a_service_credential_of_azure_has_a_token_for_the_namespace_of_event_hubs(fetch):
    token = fetch("azure", EVENT_HUBS)
    assert token.value == "ey.https://orders.servicebus.windows.net/.default.x"
    assert token.expires_at == 1_772_368_205_000


def test_a_service_credential_of_google_is_wrapped_with_the_account_of_the_options(fetch):
    token = fetch("gcp", GOOGLE)
    _header, claims, access = token.value.split(".")
    assert f'"sub":"{ACCOUNT}"' in b64decoded(claims)
    assert b64decoded(access) == "ya29.access"
    assert token.expires_at == datetime(2026, 3, 1, 13, 30, 5, tzinfo=UTC).timestamp() * 1000
