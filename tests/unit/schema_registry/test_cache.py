"""What a registry said: asked for once per process, and in the driver's files private, whole or absent."""

from __future__ import annotations

import json
import logging
import os
import stat
from pathlib import Path

import pytest

from spark_kafka_sink.errors import RegistryError
from spark_kafka_sink.schemas.registry.cache import CachedRegistry, ResponseFiles, StoredResponse, cached_registry
from spark_kafka_sink.schemas.registry.registry_options import RegistryOptions
from spark_kafka_sink.schemas.registry.schema import RegisteredSchema, Schema, SchemaReference, SchemaType
from spark_kafka_sink.testing.manual_clock import ManualClock
from tests.unit.formats.fake_registry import FakeRegistry

KEY = ("app-1", "http://r", "t-value", "options")
IMPORTED = Schema(SchemaType.PROTOBUF, "message C {}")
SCHEMA = Schema(SchemaType.PROTOBUF, 'import "c.proto"; ü', (SchemaReference("c.proto", "common", 3),))
RESPONSE = StoredResponse(RegisteredSchema("t-value", 2, 7, SCHEMA, bytes(range(16))), {"c.proto": IMPORTED})


def options(**given: str) -> RegistryOptions:
    parsed = RegistryOptions.parse({"schema.registry.url": "http://registry:8081", **given}, [])
    assert parsed is not None
    return parsed


def test_a_process_has_one_cache_of_a_registry_and_an_application():
    assert cached_registry(options()) is cached_registry(options())
    assert cached_registry(options(), "run-1") is cached_registry(options(), "run-1")
    others = [cached_registry(options(), run) for run in ("run-1", "run-2")]
    others.append(cached_registry(options(**{"normalize.schemas": "true"})))
    assert len({cached_registry(options()), *others}) == 4


def test_each_question_is_asked_once_and_an_error_is_asked_again():
    registry = FakeRegistry()
    cached = CachedRegistry(registry, options())
    registry.down = True
    with pytest.raises(RegistryError):
        cached.register("common", IMPORTED)
    registry.down = False
    for number in (1, 2, 3):
        cached.register("common", IMPORTED)
        found = cached.register("t-value", SCHEMA._replace(references=(SchemaReference("c.proto", "common", 1),)))
        cached.lookup("t-value", found.schema)
        assert cached.latest("t-value").schema == cached.by_id(found.id, "t-value").schema == found.schema
        assert cached.imports(found.schema) == {"c.proto": IMPORTED}
        assert len(registry.requests) == 6, f"round {number}"


def test_a_schema_is_registered_under_each_of_its_subjects():
    registry = FakeRegistry()
    cached = CachedRegistry(registry, options())
    found = [cached.register(subject, IMPORTED).subject for subject in ("a-value", "b-value")]
    assert found == ["a-value", "b-value"]
    assert registry.requests == [("register", "a-value"), ("register", "b-value")]


def test_a_later_process_of_the_driver_asks_nothing(files):
    registry = FakeRegistry()
    first = CachedRegistry(registry, options(), files, "run")
    registered = first.register("common", IMPORTED)
    first.register("t-value", SCHEMA._replace(references=(SchemaReference("c.proto", "common", 1),)))
    found = first.latest("t-value")
    registry.down = True
    later = CachedRegistry(registry, options(), files, "run")
    assert later.register("common", IMPORTED) == registered
    assert later.latest("t-value") == found
    assert later.imports(found.schema) == {"c.proto": IMPORTED}
    with pytest.raises(RegistryError):
        CachedRegistry(registry, options(), files, "next run").latest("t-value")


@pytest.fixture
def files(tmp_path: Path) -> ResponseFiles:
    return ResponseFiles(ManualClock(), tmp_path / "own")


def only_file(tmp_path: Path) -> Path:
    (file,) = (tmp_path / "own").iterdir()
    return file


def test_a_response_is_found_again_by_its_whole_key(files, tmp_path):
    files.put(KEY, RESPONSE)
    assert ResponseFiles(ManualClock(), tmp_path / "own").get(KEY) == RESPONSE
    for number in range(len(KEY)):
        assert files.get([*KEY[:number], "other", *KEY[number + 1 :]]) is None
    assert files.get(("app-1http://r", *KEY[2:])) is None


def test_a_schema_asked_by_id_and_without_guid_is_found_again(files):
    response = StoredResponse(RegisteredSchema("t-value", None, 7, IMPORTED), {})
    files.put(KEY, response)
    assert files.get(KEY) == response


def test_rules_of_a_schema_are_found_again(files, tmp_path):
    response = RESPONSE._replace(registered=RESPONSE.registered._replace(rules=("pii (ENCRYPT)",)))
    files.put(KEY, response)
    assert files.get(KEY) == response
    stored = json.loads(only_file(tmp_path).read_text())
    del stored["rules"]
    only_file(tmp_path).write_text(json.dumps(stored))
    assert files.get(KEY) is None


def test_nothing_is_stored_at_first_and_a_newer_response_replaces_an_older_one(files):
    assert files.get(KEY) is None
    files.put(KEY, RESPONSE)
    newer = RESPONSE._replace(registered=RESPONSE.registered._replace(id=8))
    files.put(KEY, newer)
    assert files.get(KEY) == newer


def test_file_and_folder_are_the_users_own(files, tmp_path):
    old = os.umask(0)
    try:
        files.put(KEY, RESPONSE)
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "own").stat().st_mode) == 0o700
    assert stat.S_IMODE(only_file(tmp_path).stat().st_mode) == 0o600


def test_the_default_folder_is_of_this_user(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ResponseFiles(ManualClock()).put(KEY, RESPONSE)
    assert [each.name for each in tmp_path.iterdir()] == [f"spark-kafka-sink-{os.geteuid()}"]


def contents() -> list[bytes]:
    whole = {
        "subject": "t-value", "version": 2, "id": 7, "schema": "s", "schemaType": "AVRO", "references": [],
        "imports": {},
    }  # fmt: skip
    wrong = [{"id": "7"}, {"subject": 1}, {"imports": []}, {"imports": {"a": 1}}, {"schemaType": "XML"}, {"guid": "x"}]
    return [b"", b"\xff", b"[]", b'{"id": 7', b"[" * 100_000, *(json.dumps(whole | each).encode() for each in wrong)]


@pytest.mark.parametrize("content", contents(), ids=range(len(contents())))
def test_strange_content_is_absent(files, tmp_path, content, caplog):
    files.put(KEY, RESPONSE)
    only_file(tmp_path).write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert files.get(KEY) is None
    assert "is not used" in caplog.text


def test_a_cut_file_is_absent_at_every_length(files, tmp_path):
    files.put(KEY, RESPONSE)
    whole = only_file(tmp_path).read_bytes()
    for length in range(len(whole)):
        only_file(tmp_path).write_bytes(whole[:length])
        assert files.get(KEY) is None
    only_file(tmp_path).write_bytes(whole)
    assert files.get(KEY) == RESPONSE


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_folder_open_to_others_is_not_used(files, tmp_path, mode, caplog):
    files.put(KEY, RESPONSE)
    (tmp_path / "own").chmod(mode)
    assert files.get(KEY) is None
    files.put(("other",), RESPONSE)
    assert len(list((tmp_path / "own").iterdir())) == 1
    assert "is not private to this user" in caplog.text


def test_a_folder_of_another_user_is_not_used(files, monkeypatch):
    files.put(KEY, RESPONSE)
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    assert files.get(KEY) is None


def test_a_link_instead_of_a_folder_is_not_followed(files, tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "own").symlink_to(tmp_path / "elsewhere")
    files.put(KEY, RESPONSE)
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("kind", ["open to others", "link", "folder", "pipe"])
def test_a_file_that_is_not_the_users_own_is_absent(files, tmp_path, kind):
    files.put(KEY, RESPONSE)
    file = only_file(tmp_path)
    if kind == "open to others":
        file.chmod(0o644)
    else:
        file.rename(tmp_path / "moved")
        if kind == "link":
            file.symlink_to(tmp_path / "moved")
        elif kind == "folder":
            file.mkdir(mode=0o700)
        else:
            os.mkfifo(file, 0o600)
    assert files.get(KEY) is None


def test_a_folder_that_cannot_be_made_is_a_warning(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    files = ResponseFiles(ManualClock(), tmp_path / "file" / "own")
    files.put(KEY, RESPONSE)
    assert files.get(KEY) is None
    assert "cannot be written, each micro-batch asks the registry" in caplog.text


def test_files_unused_for_a_month_are_removed_and_used_ones_stay(files, tmp_path):
    for name in ("unused", "used"):
        files.put((name,), RESPONSE)
    clock = ManualClock()
    long_ago = clock.epoch_ms() / 1000 - 31 * 24 * 3600
    for file in (tmp_path / "own").iterdir():
        os.utime(file, (long_ago, long_ago))
    assert files.get(("used",)) == RESPONSE
    files = ResponseFiles(clock, tmp_path / "own")
    files.put(("new",), RESPONSE)
    assert (files.get(("unused",)), files.get(("used",)), files.get(("new",))) == (None, RESPONSE, RESPONSE)


def test_a_write_that_fails_leaves_no_file(files, tmp_path, monkeypatch):
    files.put(KEY, RESPONSE)

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.replace", full)
    files.put(("other",), RESPONSE)
    assert len(list((tmp_path / "own").iterdir())) == 1
