import hashlib
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from spark_kafka_sink.testing import maven
from spark_kafka_sink.testing.child_processes import GuardedProcess
from spark_kafka_sink.testing.kafka_jars import _ESSENTIAL_JARS, KafkaJarsError, kafka_jars, tools_version
from spark_kafka_sink.testing.kafka_jars import __file__ as kafka_jars_file
from spark_kafka_sink.testing.local_kafka import DEFAULT_VERSION
from spark_kafka_sink.testing.maven import FetchError
from tests.support.waiting import DEADLINE_S
from tests.unit.testing.fake_ivy import FakeIvy, left_in

NAMES = ("kafka_2.13-9.8.7.jar", "kafka-clients-9.8.7.jar", "kafka-tools-9.8.7.jar")


@pytest.fixture
def repository(tmp_path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    for name in NAMES:
        with zipfile.ZipFile(folder / name, "w") as jar:
            jar.writestr("META-INF/MANIFEST.MF", "x" * 1000)
    return folder


@pytest.fixture
def ivy(tmp_path, monkeypatch, repository) -> FakeIvy:
    fake = FakeIvy(tmp_path, monkeypatch)
    fake.copies(f"{repository}/*.jar")
    return fake


def test_jars_are_fetched_once(ivy, tmp_path, caplog):
    with caplog.at_level("INFO", "spark_kafka_sink"):
        folder = kafka_jars("9.8.7")
    assert "Fetching Apache Kafka 9.8.7 (about 45 MB) from Maven Central, only this once, into " in caplog.text
    assert folder == tmp_path / "cache/kafka-9.8.7"
    assert {path.name for path in folder.iterdir()} == set(NAMES)
    assert kafka_jars("9.8.7") == folder
    assert ivy.runs() == 1
    assert left_in(tmp_path / "cache") == ["kafka-9.8.7"]


def test_two_processes_do_not_fetch_at_once(ivy, repository):
    ivy.does(f'sleep 0.5; cp {repository}/*.jar "$(dirname "$last")"')
    program = (
        "from spark_kafka_sink.testing.kafka_jars import kafka_jars; print(len(list(kafka_jars('9.8.7').iterdir())))"
    )
    both = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate(timeout=DEADLINE_S)[0].strip() for process in both] == ["3", "3"]
    assert ivy.runs() == 1


def test_a_failed_fetch_is_tried_again_and_then_says_what_ivy_said(ivy, tmp_path):
    ivy.does("echo 'UNRESOLVED DEPENDENCIES: no network'; exit 1")
    with pytest.raises(FetchError, match=r"9\.8\.7 could not be fetched from Maven Central\.(.|\n)*no network"):
        kafka_jars("9.8.7")
    assert ivy.runs() == 3
    assert left_in(tmp_path / "cache") == []


def test_a_download_that_fails_keeps_what_has_arrived_for_the_next(ivy, tmp_path, repository):
    ivy.does('mkdir -p "$cache/org/jars"; echo jar > "$cache/org/jars/a-1.jar"; exit 1')
    with pytest.raises(FetchError, match="The next start fetches only the files that have not arrived"):
        kafka_jars("9.8.7")
    assert left_in(tmp_path / "cache") == [".ivy-Apache-Kafka-9.8.7"]
    ivy.does(f'test -s "$cache/org/jars/a-1.jar" && cp {repository}/*.jar "$(dirname "$last")"')
    kafka_jars("9.8.7")
    assert left_in(tmp_path / "cache") == ["kafka-9.8.7"]


def test_an_interrupted_download_ends_ivy(ivy, monkeypatch):
    started = []

    def start(command, log):
        started.append(GuardedProcess(command, log=log))
        return started[0]

    def interrupt(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(maven, "GuardedProcess", start)
    monkeypatch.setattr(maven, "time", SimpleNamespace(monotonic=time.monotonic, sleep=interrupt))
    ivy.does("sleep 1000")
    with pytest.raises(KeyboardInterrupt):
        kafka_jars("9.8.7")
    assert started[0].poll() is not None


@pytest.fixture
def known(tmp_path, monkeypatch, repository):
    """Version 9.8.7 has digests."""
    digests = [f"{hashlib.sha256((repository / name).read_bytes()).hexdigest()}  {name}\n" for name in NAMES]
    (tmp_path / "kafka-9.8.7.sha256").write_text("".join(digests))
    monkeypatch.setattr("spark_kafka_sink.testing.kafka_jars._DIGESTS", tmp_path)


@pytest.mark.parametrize("name", [NAMES[1], "further.jar"])
def test_a_jar_of_another_content_or_one_too_many_is_refused(ivy, known, repository, tmp_path, name):
    with zipfile.ZipFile(repository / name, "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", "y" * 1000)
    with pytest.raises(KafkaJarsError, match=f"{re.escape(name)} is not the known file, by its SHA-256"):
        kafka_jars("9.8.7")
    assert left_in(tmp_path / "cache") == []


def test_the_default_version_has_digests():
    lines = (Path(kafka_jars_file).parent / f"kafka-{DEFAULT_VERSION}.sha256").read_text().splitlines()
    assert {f"{name.format(version=DEFAULT_VERSION, scala='2.13')}" for name in _ESSENTIAL_JARS} <= {
        line.split()[1] for line in lines
    }
    assert all(re.fullmatch(r"[0-9a-f]{64}  [\w.-]+\.jar", line) for line in lines)


@pytest.mark.parametrize(("version", "tools"), [("3.9.1", "3.9.1"), ("4.3.1", "4.3.1"), ("4.4.0", "4.3.1")])
def test_releases_without_tools_on_maven_central_use_those_of_the_last_one_that_has_them(version, tools):
    assert tools_version(version) == tools


def test_a_release_with_tools_does_not_arrive_without_them(ivy, repository):
    for name in NAMES:
        (repository / name).rename(repository / name.replace("9.8.7", "4.3.1"))
    (repository / "kafka-tools-4.3.1.jar").unlink()
    with pytest.raises(KafkaJarsError, match=r"did not arrive whole: kafka-tools-4\.3\.1\.jar is missing"):
        kafka_jars("4.3.1")
