"""A registry that cannot start says why and leaves nothing. The real one: ``tests/contract/schema_registry``."""

from __future__ import annotations

import socket

import pytest

from spark_kafka_sink.testing import LocalSchemaRegistry, LocalSchemaRegistryError
from tests.unit.testing.fake_ivy import FakeIvy


def test_a_port_in_use_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LocalSchemaRegistryError, match=f"Port {port} is in use; choose another one"):
            LocalSchemaRegistry(port).__enter__()


def test_a_registry_that_ends_at_once_shows_its_log_and_leaves_no_folder(tmp_path, monkeypatch):
    runner = tmp_path / "cache/apicurio-registry-3.0.9/apicurio-registry-app-3.0.9-runner.jar"
    runner.parent.mkdir(parents=True)
    runner.touch()
    FakeIvy(tmp_path, monkeypatch).does("echo 'no memory for a JVM'; exit 1")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    registry = LocalSchemaRegistry()
    with pytest.raises(LocalSchemaRegistryError, match=r"3\.0\.9 ended at once:\n(.|\n)*no memory for a JVM"):
        registry.__enter__()
    assert not registry.alive()
    assert not registry.folder.exists()
    with pytest.raises(LocalSchemaRegistryError, match="is not running"):
        registry.kill()
