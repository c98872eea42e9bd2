"""Compiles .proto text of a registry into a descriptor set, by the ``protoc`` of grpcio-tools in a child process.

The text is foreign, so ``protoc`` runs without plugins, reads only a private folder with the given files and its own
``google/protobuf``, and has limits on its time, its memory and each file that it writes, its messages among them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from spark_kafka_sink.errors import shown
from spark_kafka_sink.schemas.encoding.descriptors import known_files, library
from spark_kafka_sink.schemas.formats.format_options import FormatError

_TIMEOUT_S: Final = 30
_MAX_MEMORY: Final = 1 << 30  # a schema of 1 MB needs an eighth of it
_MAX_OUTPUT: Final = 16 << 20
_LONGEST_SHOWN: Final = 2000
_COMMAND: Final = f"""
import contextlib, resource, runpy
for name, limit in ("AS", {_MAX_MEMORY}), ("CPU", {_TIMEOUT_S}), ("FSIZE", {_MAX_OUTPUT}), ("CORE", 0):
    with contextlib.suppress(ValueError, OSError):  # the limit is lower already, or the system lacks it
        resource.setrlimit(getattr(resource, f"RLIMIT_{{name}}"), (limit, limit))
runpy.run_module("grpc_tools.protoc", run_name="__main__", alter_sys=True)
"""
"""The child limits itself, because ``preexec_fn`` is not safe in a process with threads."""
_MAP_ENTRY: Final = re.compile(
    r"""//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?|\b(option\s+map_entry\s*=\s*true\s*;)""",
    re.DOTALL,
)
"""Comments and strings are found too, because they may hold the same words; only the option is a group.

Without an end, they go to the end of the text or line: no text takes more time than its length explains."""
_MARK: Final = "_pykafka_map_entry_"
_EDITION: Final = re.compile(r"^[^\S\n]*edition\s*=", re.MULTILINE)
_IMPORTED: Final = re.compile(r"""["']((?:google/type|confluent(?:/type)?)/\w+\.proto)["']""")


def has_protoc() -> bool:
    return find_spec("grpc_tools") is not None


def writes_entries_out(text: str) -> bool:
    """Whether .proto text declares entries of maps as messages. Java's serializers register such text."""
    return any(found[1] for found in _MAP_ENTRY.finditer(text))


def compile_proto(text: str, imports: Mapping[str, str], what: str) -> bytes:
    """The descriptor set of ``text``, whose file comes last. Raises ``FormatError``.

    ``imports``: texts by the names that imports use. ``what``: what errors call the schema.
    """
    return _compiled(text, tuple(imports.items()), what)


@lru_cache(16)  # planned anew for each micro-batch
def _compiled(text: str, imported: tuple[tuple[str, str], ...], what: str) -> bytes:
    imports = dict(imported)
    main = "schema.proto"
    while main in imports:
        main = f"_{main}"
    library = known_files(set(_IMPORTED.findall("\n".join((text, *imports.values())))) - imports.keys())
    with TemporaryDirectory(prefix="spark-kafka-sink-protoc-") as private:
        folder, known, output = Path(private, "files"), Path(private, "known"), Path(private, "output")
        folder.mkdir()
        for name, each in {**imports, main: text}.items():
            _write(folder, name, _marked(each), what)
        known.write_bytes(library)
        arguments = [*([f"--descriptor_set_in={known}"] if library else []), "--include_imports"]
        _run(Path(private), [*arguments, f"--descriptor_set_out={output}", main], what)
        return _with_map_entries(output.read_bytes())


def _marked(text: str) -> str:
    """The text with a mark in each entry of a map that is written out, because protoc refuses ``map_entry``."""
    mark = _MARK if _EDITION.search(text) else f'"{_MARK}"'
    return _MAP_ENTRY.sub(lambda found: f"reserved {mark};" if found[1] else found[0], text)


def _with_map_entries(descriptor_set: bytes) -> bytes:
    """The descriptor set in which each message that has the mark gets the option ``map_entry``."""
    if _MARK.encode() not in descriptor_set:
        return descriptor_set
    files = library().FileDescriptorSet.FromString(descriptor_set)
    messages = [message for file in files.file for message in file.message_type]
    while messages:
        message = messages.pop()
        messages += message.nested_type
        if _MARK in message.reserved_name:
            message.reserved_name.remove(_MARK)
            message.options.map_entry = True
    serialized: bytes = files.SerializeToString()
    return serialized


def _write(folder: Path, name: str, text: str, what: str) -> None:
    parts = name.split("/")
    if not name.isprintable() or "\\" in name or not {"", ".", ".."}.isdisjoint(parts):
        raise FormatError(f"{what} imports {name!a:.200}, which is not a path of a .proto file.")
    path = folder.joinpath(*parts)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise FormatError(f"{what} cannot be compiled: its file {name!a:.200} cannot be written: {reason}.") from error


def _run(private: Path, arguments: list[str], what: str) -> None:
    folder, messages = private / "files", private / "messages"
    # -P: a schema's file is never taken for a module. PYTHONPATH: Spark's files count as for this process.
    command = [sys.executable, "-P", "-c", _COMMAND, f"-I{folder}", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        with messages.open("wb") as file:
            done = subprocess.run(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=file,
                timeout=_TIMEOUT_S,
                check=False,
            )
    except subprocess.TimeoutExpired as error:
        raise FormatError(f"{what} cannot be compiled: protoc did not end within {_TIMEOUT_S} s.") from error
    except OSError as error:
        raise FormatError(f"{what} cannot be compiled: {sys.executable} does not start: {error.strerror}.") from error
    if done.returncode:
        with messages.open("rb") as file:
            said = file.read(_LONGEST_SHOWN).decode(errors="replace").replace(f"{folder}/", "")
        text = shown("; ".join(said.splitlines())) or f"it ended with {done.returncode}"
        raise FormatError(f"{what} cannot be compiled; protoc says: {text}")
