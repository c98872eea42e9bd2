"""The archive of the registry is fetched once, checked, and never left half."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from spark_kafka_sink.testing import apicurio
from spark_kafka_sink.testing.apicurio import ApicurioError, apicurio_runner
from spark_kafka_sink.testing.kafka_jars import CACHE_VARIABLE


@pytest.fixture
def archive(tmp_path, monkeypatch) -> Path:
    """An archive of version 9.8.7, at the place it is fetched from."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    path = tmp_path / "apicurio-registry-app-9.8.7-all.tar.gz"
    with tarfile.open(path, "w:gz") as members:
        for name in ("apicurio-registry-app-9.8.7-runner.jar", "lib/one.jar"):
            member = tarfile.TarInfo(name)
            member.size = 3
            members.addfile(member, io.BytesIO(b"jar"))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(apicurio, "_SHA_256", {"9.8.7": digest})
    monkeypatch.setattr(apicurio, "_ADDRESS", tmp_path.as_uri() + "/{name}")
    return path


def cached(tmp_path) -> list[str]:
    return sorted(each.name for each in (tmp_path / "cache").iterdir() if not each.name.endswith(".lock"))


def test_it_is_fetched_once(archive, tmp_path):
    runner = apicurio_runner("9.8.7")
    assert runner == tmp_path / "cache/apicurio-registry-9.8.7/apicurio-registry-app-9.8.7-runner.jar"
    assert (runner.parent / "lib/one.jar").read_bytes() == b"jar"
    archive.unlink()
    assert apicurio_runner("9.8.7") == runner
    assert cached(tmp_path) == ["apicurio-registry-9.8.7"]


def test_another_archive_than_the_known_one_is_refused(archive, tmp_path):
    archive.write_bytes(archive.read_bytes() + b"\0")
    with pytest.raises(ApicurioError, match=r"could not be fetched from file:.*: what arrived has another SHA-256"):
        apicurio_runner("9.8.7")
    assert cached(tmp_path) == []


def test_an_archive_that_cannot_be_fetched_is_named(archive, tmp_path):
    archive.unlink()
    with pytest.raises(ApicurioError, match=r"9\.8\.7 could not be fetched from file:.*No such file"):
        apicurio_runner("9.8.7")
    assert cached(tmp_path) == []


def test_an_unknown_version_and_an_incomplete_folder_are_errors(archive, tmp_path):
    with pytest.raises(ApicurioError, match=r"1\.0\.0 is unknown; write one of 9\.8\.7\."):
        apicurio_runner("1.0.0")
    (tmp_path / "cache/apicurio-registry-9.8.7").mkdir(parents=True)
    with pytest.raises(ApicurioError, match=r"lacks apicurio-registry-app-9\.8\.7-runner\.jar\. Remove the folder"):
        apicurio_runner("9.8.7")
