import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from spark_kafka_sink.testing.kafka_jars import CACHE_VARIABLE, KafkaJarsError, cache_folder, kafka_jars

NAMES = ("kafka_2.13-9.8.7.jar", "kafka-clients-9.8.7.jar", "kafka-tools-9.8.7.jar")

# A java that answers -version, and as Ivy copies whole jars to where -retrieve says.
FAKE_JAVA = """#!/bin/sh
if [ "$1" = -version ]; then echo 'openjdk version "17.0.1"' >&2; exit 0; fi
echo run >> "{runs}"
for last; do :; done
{do}
"""


@pytest.fixture
def repository(tmp_path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    for name in NAMES:
        with zipfile.ZipFile(folder / name, "w") as jar:
            jar.writestr("META-INF/MANIFEST.MF", "x" * 1000)
    return folder


@pytest.fixture
def ivy(tmp_path, monkeypatch, repository):
    """Makes the fake Java; ``runs()`` counts how often it was asked to fetch."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    (tmp_path / "java/bin").mkdir(parents=True)
    log = tmp_path / "runs"

    def install(do=f'cp {repository}/*.jar "$(dirname "$last")"'):
        java = tmp_path / "java/bin/java"
        java.write_text(FAKE_JAVA.format(runs=log, do=do))
        java.chmod(0o755)

    install()
    install.again = install
    install.runs = lambda: len(log.read_text().splitlines()) if log.exists() else 0
    return install


def left_in(folder):
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


def test_jars_are_fetched_once(ivy, tmp_path):
    folder = kafka_jars("9.8.7")
    assert folder == tmp_path / "cache/kafka-9.8.7"
    assert {path.name for path in folder.iterdir()} == set(NAMES)
    assert kafka_jars("9.8.7") == folder
    assert ivy.runs() == 1
    assert left_in(tmp_path / "cache") == ["kafka-9.8.7"]


def test_two_processes_do_not_fetch_at_once(ivy, repository):
    ivy.again(f'sleep 0.5; cp {repository}/*.jar "$(dirname "$last")"')
    program = (
        "from spark_kafka_sink.testing.kafka_jars import kafka_jars; print(len(list(kafka_jars('9.8.7').iterdir())))"
    )
    both = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate(timeout=30)[0].strip() for process in both] == ["3", "3"]
    assert ivy.runs() == 1


def test_a_failed_fetch_is_tried_again_and_then_says_what_ivy_said(ivy, tmp_path):
    ivy.again("echo 'UNRESOLVED DEPENDENCIES: no network'; exit 1")
    with pytest.raises(KafkaJarsError, match=r"9\.8\.7 could not be fetched from Maven Central:\n(.|\n)*no network"):
        kafka_jars("9.8.7")
    assert ivy.runs() == 3
    assert left_in(tmp_path / "cache") == []


def test_a_jar_cut_short_is_refused(ivy, tmp_path, repository):
    cut = repository / NAMES[1]
    cut.write_bytes(cut.read_bytes()[:-40])
    with pytest.raises(KafkaJarsError, match=re.escape(f"did not arrive whole: ['{NAMES[1]}']")):
        kafka_jars("9.8.7")
    assert left_in(tmp_path / "cache") == []


def test_what_a_killed_fetch_left_behind_is_removed(ivy, tmp_path):
    (tmp_path / "cache/.kafka-9.8.7-abc").mkdir(parents=True)
    kafka_jars("9.8.7")
    assert left_in(tmp_path / "cache") == ["kafka-9.8.7"]


def test_a_folder_that_lost_a_jar_is_named(ivy):
    (kafka_jars("9.8.7") / NAMES[0]).unlink()
    with pytest.raises(KafkaJarsError, match=r"kafka-9\.8\.7 lacks kafka_2\.13-9\.8\.7\.jar\. Remove the folder"):
        kafka_jars("9.8.7")


@pytest.mark.parametrize("version", ["4", "4.1", "latest", "../4.1.1"])
def test_a_version_that_is_none_is_refused(version):
    with pytest.raises(KafkaJarsError, match="is not of the form"):
        kafka_jars(version)


def test_the_cache_is_where_the_user_keeps_caches(monkeypatch, tmp_path):
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache/spark-kafka-sink"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg/spark-kafka-sink"
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"
