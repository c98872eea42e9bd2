"""The archive of the registry is fetched once, checked, and never left half; a start that fails says why. Free ports.

The real registry: ``tests/contract/schema_registry``.
"""

import hashlib
import io
import socket
import tarfile

import pytest

from spark_kafka_sink.testing import LocalSchemaRegistry, LocalSchemaRegistryError, apicurio, maven
from spark_kafka_sink.testing.apicurio import ApicurioError, apicurio_runner
from spark_kafka_sink.testing.kafka_node import HOST, free_ports, is_free
from tests.unit.testing.fake_ivy import FakeIvy, left_in


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """An archive of version 9.8.7."""
    path = tmp_path / "apicurio-registry-app-9.8.7.tar.gz"
    with tarfile.open(path, "w:gz") as members:
        for name in ("apicurio-registry-app-9.8.7-runner.jar", "lib/one.jar"):
            member = tarfile.TarInfo(name)
            member.size = 3
            members.addfile(member, io.BytesIO(b"jar"))
    monkeypatch.setattr(apicurio, "VERSION", "9.8.7")
    monkeypatch.setattr(apicurio, "_SHA_256", hashlib.sha256(path.read_bytes()).hexdigest())
    return path


@pytest.fixture
def ivy(tmp_path, monkeypatch, archive):
    fake = FakeIvy(tmp_path, monkeypatch)
    fake.copies(str(archive))
    return fake


def test_it_is_fetched_once(ivy, tmp_path):
    runner = apicurio_runner()
    assert runner == tmp_path / "cache/apicurio-registry-9.8.7/apicurio-registry-app-9.8.7-runner.jar"
    assert (runner.parent / "lib/one.jar").read_bytes() == b"jar"
    assert apicurio_runner() == runner
    assert ivy.runs() == 1
    assert left_in(tmp_path / "cache") == ["apicurio-registry-9.8.7"]


def test_its_first_start_says_what_is_fetched_where_no_logging_is_set_up(ivy, archive, monkeypatch, capsys):
    """Incident: 66 s without a word."""
    ivy.does(f'echo "downloading https://repo/{archive.name} ..."; cp {archive} "$(dirname "$last")"')
    monkeypatch.setattr(maven.logger, "propagate", False)
    apicurio_runner()
    begin, end = capsys.readouterr().err.splitlines()
    assert begin.startswith("Fetching Apicurio Registry 9.8.7 (about 109 MB) from Maven Central, only this once, into ")
    assert end == "Fetched Apicurio Registry 9.8.7"
    apicurio_runner()
    assert capsys.readouterr().err == ""


def test_another_archive_than_the_known_one_is_refused(ivy, archive, tmp_path):
    archive.write_bytes(archive.read_bytes() + b"\0")
    with pytest.raises(ApicurioError, match=r"9\.8\.7 did not arrive whole: what arrived has another SHA-256\."):
        apicurio_runner()
    assert left_in(tmp_path / "cache") == []


def test_an_incomplete_folder_is_an_error(ivy, tmp_path):
    (tmp_path / "cache/apicurio-registry-9.8.7").mkdir(parents=True)
    with pytest.raises(ApicurioError, match=r"lacks apicurio-registry-app-9\.8\.7-runner\.jar\. Remove the folder"):
        apicurio_runner()


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


def test_ports_are_distinct_free_and_never_those_of_outgoing_connections():
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert all(1024 < port < 32_768 for port in ports)
    assert all(map(is_free, ports))


def test_a_port_somebody_listens_on_is_not_free():
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        listener.listen()
        assert not is_free(listener.getsockname()[1])
