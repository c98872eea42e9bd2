"""What a registry said: asked for once per process, and in the driver's file private, whole or absent."""

from __future__ import annotations

import json
import logging
import os
import stat
from pathlib import Path

import pytest

from spark_kafka_sink.errors import RegistryError
from spark_kafka_sink.schemas.registry.cache import ApplicationFile, CachedRegistry, cached_registry
from spark_kafka_sink.schemas.registry.registry_options import ConfluentOptions
from spark_kafka_sink.schemas.registry.schema import RegisteredSchema, Schema, SchemaReference
from tests.support.manual_clock import ManualClock
from tests.unit.formats.fake_registry import FakeRegistry

KEY = ("http://r", "t-value", "options")
IMPORTED = Schema("PROTOBUF", "message C {}")
SCHEMA = Schema("PROTOBUF", 'import "c.proto"; ü', (SchemaReference("c.proto", "common", 1),))


def options(**given: str) -> ConfluentOptions:
    parsed = ConfluentOptions.parse({"schema.registry.url": "http://registry:8081", **given}, [])
    assert parsed is not None
    return parsed


def test_a_process_has_one_cache_of_a_registry_and_an_application():
    others = [(options(), "run-2"), (options(**{"normalize.schemas": "true"}), "run-1")]
    caches = [cached_registry(*each) for each in ((options(), "run-1"), (options(), "run-1"), *others)]
    assert caches[0] is caches[1]
    assert len(set(caches)) == 3


def test_each_question_is_asked_once_and_an_error_is_asked_again():
    registry = FakeRegistry()
    cached = CachedRegistry(registry, options())
    registry.down = True
    with pytest.raises(RegistryError):
        cached.register("common", IMPORTED)
    registry.down = False
    for number in (1, 2, 3):
        cached.register("common", IMPORTED)
        found = cached.register("t-value", SCHEMA)
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


@pytest.fixture
def file(tmp_path: Path) -> ApplicationFile:
    return in_process(tmp_path)


def in_process(tmp_path: Path, application: str = "run", clock: ManualClock | None = None) -> ApplicationFile:
    """The file as another process of the driver opens it."""
    return ApplicationFile(application, clock or ManualClock(), tmp_path / "own")


def path_of(tmp_path: Path) -> Path:
    (path,) = (tmp_path / "own").iterdir()
    return path


def test_a_later_process_of_the_driver_asks_nothing(tmp_path):
    registry = FakeRegistry(guids=True)
    first = CachedRegistry(registry, options(), in_process(tmp_path))
    registered = first.register("common", IMPORTED)
    first.register("t-value", SCHEMA)
    found = first.latest("t-value")
    first.imports(found.schema)
    registry.rules["by-id"] = ("pii (ENCRYPT)",)
    ruled = first.by_id(1, "by-id")
    registry.down = True
    later = CachedRegistry(registry, options(), in_process(tmp_path))
    assert later.register("common", IMPORTED) == registered
    assert later.latest("t-value") == found
    assert later.imports(found.schema) == {"c.proto": IMPORTED}
    assert later.by_id(1, "by-id") == ruled
    assert (ruled.version, ruled.rules) == (None, ("pii (ENCRYPT)",))
    for given, application in ((options(), "next run"), (options(**{"normalize.schemas": "true"}), "run")):
        with pytest.raises(RegistryError):
            CachedRegistry(registry, given, in_process(tmp_path, application)).latest("t-value")


def test_processes_that_write_at_once_lose_nothing(tmp_path):
    count, processes = 200, []
    for number in range(3):
        if (child := os.fork()) == 0:
            try:
                own = in_process(tmp_path)
                for each in range(count):
                    own.add((f"{number}", f"{each}"), "x" * 5000)
            finally:
                os._exit(0)
        processes.append(child)
    for child in processes:
        os.waitpid(child, 0)
    file = in_process(tmp_path)
    values = [file.get((f"{number}", f"{each}")) for number in range(3) for each in range(count)]
    assert values == ["x" * 5000] * 3 * count


def test_file_and_folder_are_the_users_own(file, tmp_path):
    old = os.umask(0)
    try:
        file.add(KEY, 1)
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "own").stat().st_mode) == 0o700
    assert stat.S_IMODE(path_of(tmp_path).stat().st_mode) == 0o600


@pytest.mark.parametrize("line", [b"\xff", b"[]", b"[[], 1]", b"1", b'["a"', b"[" * 100_000, b'["a", 1, 2]'])
def test_a_strange_line_is_absent_and_others_are_not(file, tmp_path, line, caplog):
    file.add(("before",), 1)
    with path_of(tmp_path).open("ab") as opened:
        opened.write(line + b"\n")
    file.add(("after",), 2)
    with caplog.at_level(logging.WARNING):
        assert [in_process(tmp_path).get((key,)) for key in ("before", "after")] == [1, 2]
    assert "is not used" in caplog.text


@pytest.mark.parametrize(("field", "value"), [("id", "7"), ("subject", 1), ("rules", 1), ("guid", "x")])
def test_a_response_that_is_strange_is_asked_for_again(tmp_path, field, value):
    registry = FakeRegistry()
    found = CachedRegistry(registry, options(), in_process(tmp_path)).register("t-value", IMPORTED)
    digest, written = json.loads(path_of(tmp_path).read_text())
    written[RegisteredSchema._fields.index(field)] = value
    path_of(tmp_path).write_text(json.dumps([digest, written]) + "\n")
    assert CachedRegistry(registry, options(), in_process(tmp_path)).register("t-value", IMPORTED) == found
    assert len(registry.requests) == 2


def test_a_line_that_a_process_could_not_write_whole_is_absent_at_every_length(file, tmp_path):
    file.add(("before",), 1)
    file.add(KEY, "cut")
    path = path_of(tmp_path)
    whole = path.read_bytes()
    for length in range(whole.index(b"\n\n") + 1, len(whole)):
        path.write_bytes(whole[:length])
        other = in_process(tmp_path)
        other.add(("after",), 2)
        assert (other.get(("before",)), other.get(KEY) in (None, "cut"), other.get(("after",))) == (1, True, 2)


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_folder_open_to_others_is_not_used(file, tmp_path, mode, caplog):
    file.add(KEY, 1)
    (tmp_path / "own").chmod(mode)
    assert in_process(tmp_path).get(KEY) is None
    size = path_of(tmp_path).stat().st_size
    file.add(KEY, 2)
    assert path_of(tmp_path).stat().st_size == size
    assert "its folder is not private to this user" in caplog.text


def test_a_folder_of_another_user_is_not_used(file, monkeypatch):
    file.add(KEY, 1)
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    assert file.get(KEY) is None


def test_a_link_instead_of_a_folder_is_not_followed(file, tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "own").symlink_to(tmp_path / "elsewhere")
    file.add(KEY, 1)
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("kind", ["open to others", "link", "folder", "pipe"])
def test_a_file_that_is_not_the_users_own_is_neither_read_nor_written(file, tmp_path, kind):
    file.add(KEY, 1)
    path = path_of(tmp_path)
    moved = path.rename(tmp_path / "moved")
    if kind == "open to others":
        path.write_bytes(moved.read_bytes())
        path.chmod(0o644)
    elif kind == "link":
        path.symlink_to(moved)
    elif kind == "folder":
        path.mkdir(mode=0o700)
    else:
        os.mkfifo(path, 0o600)
    before = moved.stat().st_size
    other = in_process(tmp_path)
    assert other.get(KEY) is None
    other.add(KEY, 2)
    assert other.get(KEY) is None
    assert moved.stat().st_size == before


def test_a_folder_that_cannot_be_made_is_a_warning(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    file = ApplicationFile("run", ManualClock(), tmp_path / "file" / "own")
    file.add(KEY, 1)
    assert file.get(KEY) is None
    assert "cannot be written, so each micro-batch asks again" in caplog.text


def test_files_unused_for_a_month_are_removed_and_used_ones_stay(tmp_path):
    clock = ManualClock()
    long_ago = clock.epoch_ms() / 1000 - 31 * 24 * 3600
    for application in ("unused", "used"):
        in_process(tmp_path, application).add(KEY, application)
    for each in (tmp_path / "own").iterdir():
        os.utime(each, (long_ago, long_ago))
    assert in_process(tmp_path, "used").get(KEY) == "used"
    in_process(tmp_path, "new", clock).add(KEY, "new")
    applications = ("unused", "used", "new")
    assert [in_process(tmp_path, each).get(KEY) for each in applications] == [None, "used", "new"]
