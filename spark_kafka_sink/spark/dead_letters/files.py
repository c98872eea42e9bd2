"""``deadLetterPath``: files of JSON lines, one per task, on any file system that Arrow reaches; and their names."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote
from uuid import uuid4

import pyarrow as pa

from spark_kafka_sink.common.foreign_text import clause
from spark_kafka_sink.errors import DeadLetterPathError
from spark_kafka_sink.exactly_once.receipts import TaskName
from spark_kafka_sink.spark.dead_letters.record import Letters, json_lines
from spark_kafka_sink.spark.python_process import announce

_ERRORS = (OSError, ValueError, ImportError, pa.ArrowException)
"""What a file system may raise; ImportError comes from one that needs a package."""

_RUN_FIELD: Final = "run"
"""The first field of each line, so that the beginning of a file tells the run that wrote it."""

_BEGINNING: Final = f'{{"{_RUN_FIELD}":"'
_LONGEST_RUN: Final = 1_000
_HADOOPS_S3: Final = re.compile("^s3[an]://")

_LONGEST_TOPIC: Final = 100
"""A name of a file has at most 255 bytes on most file systems, a topic's up to 249."""

_unreachable: set[str] = set()


class LetterRun(NamedTuple):
    """One run of a write, by Spark's application and executions. ``outer``: execution of the micro-batch whose
    foreachBatch has the write; else the same as ``execution``.
    """

    application: str = ""
    outer: str = ""
    execution: str = ""

    def __str__(self) -> str:
        return "/".join(self)

    def is_beside(self, other: str) -> bool:
        """Whether ``other`` is another write of the same run of foreachBatch, and no earlier run of this write."""
        application, outer, execution = (*other.split("/"), "", "", "")[:3]
        return (application, outer) == (self.application, self.outer) and execution != self.execution


class LetterFiles(NamedTuple):
    """The files of a write. ``name``: the same when the write is run again. ``complete`` False: of a replay whose tasks
    write no dead letters.
    """

    name: str
    run: LetterRun = LetterRun()
    complete: bool = True

    def of_task(self, task: int, place: int = 1) -> str:
        """``place``: above 1 if another write of the micro-batch has the same name."""
        return f"{self.name}-{task}.jsonl" if place == 1 else f"{self.name}-{task}.{place}.jsonl"

    def unfinished(self, task: int, unique: str) -> str:
        """``unique``: 32 hexadecimal digits."""
        return f".{self.of_task(task)}.{quote(str(self.run), safe='')}.{unique}"

    def task_in(self, file: str) -> int | None:
        """The task whose file has this name; None for other writes' files."""
        found = re.fullmatch(rf"{re.escape(self.name)}-(\d+)(\.\d+)?\.jsonl", file)
        return None if found is None else int(found[1])

    def run_in(self, file: str) -> str | None:
        """The run that began an unfinished file of this name; None for other files."""
        found = re.fullmatch(rf"\.{re.escape(self.name)}-\d+\.jsonl\.(.+)\.[0-9a-f]{{32}}", file)
        return None if found is None else unquote(found[1])


def write_name(query: str, batch: int, topic: str | None = None) -> str:
    """``topic``: of a write of a foreachBatch that has no other name."""
    name = f"{quoted(query)}-{batch}"
    if topic is None:
        return name
    if len(topic) > _LONGEST_TOPIC:
        topic = f"{topic[:_LONGEST_TOPIC]}-{sha256(topic.encode()).hexdigest()[:8]}"
    return f"{name}-{topic}"


def quoted(name: str) -> str:
    """The text as the name of a file."""
    return quote(name, safe=" ")


class DeadLetterFile:
    """A task's file in ``folder``, made with the first dead letter under another name. ``finish`` gives it its own, in
    the place of an earlier run's. Raises ``DeadLetterPathError``.
    """

    def __init__(self, folder: str, files: LetterFiles, name: TaskName) -> None:
        self._folder = folder
        self._files = files
        self._name = name
        self._system: Any = None
        self._stream: Any = None
        self._path = ""
        self._unfinished = ""

    def write(self, letters: Letters) -> None:
        try:
            if self._stream is None:
                self._open()
                self._system.create_dir(self._path, recursive=True)
                self._stream = self._system.open_output_stream(self._unfinished)
            of_task = {_RUN_FIELD: str(self._files.run), **self._name._asdict()}
            self._stream.write(json_lines(letters, **of_task))
        except _ERRORS as error:
            raise self._error(error) from error

    def finish(self) -> None:
        """Give the file its name. Without a dead letter, an earlier run's file is removed."""
        try:
            if self._stream is None:
                self._open()
                path, is_there = self._own_path()
                if is_there:
                    self._system.delete_file(path)
                return
            self._stream.close()
            self._system.move(self._unfinished, self._own_path()[0])
        except _ERRORS as error:
            raise self._error(error) from error
        self._stream = None

    def close(self) -> None:
        """Removes an unfinished file."""
        if self._stream is None:
            return
        stream, self._stream = self._stream, None
        try:
            stream.close()
            self._system.delete_file(self._unfinished)
        except _ERRORS:  # the task fails already, with another error
            return

    def _open(self) -> None:
        """The file system is there, and the folder in it has a path."""
        self._system, self._path = file_system(self._folder)
        self._unfinished = f"{self._path}/{self._files.unfinished(self._name.task, uuid4().hex)}"

    def _own_path(self) -> tuple[str, bool]:
        """The task's file, and whether an earlier run left one. Writes of one foreachBatch that have the same name take
        one place after the other: in the same order when the micro-batch is run again.
        """
        place = 1
        while True:
            path = f"{self._path}/{self._files.of_task(self._name.task, place)}"
            if not self._system.get_file_info(path).is_file:
                return path, False
            if not self._files.run.is_beside(_run_of(self._system, path)):
                return path, True
            place += 1

    def _error(self, error: Exception) -> DeadLetterPathError:
        return DeadLetterPathError(
            f"deadLetterPath {self._folder} cannot be written: {clause(error)}. Set it to a directory that the "
            "executors can write to."
        )


def remove_leftovers(found: Sequence[LetterFiles], tasks: int, folder: str) -> None:
    """Removes unfinished files of the write, and the files of tasks that an earlier run had and this one has not.

    Called on the driver after the commit; ``found`` comes from the tasks. The rows are committed, so a failure is one
    warning per path and process.
    """
    if not found:
        return
    write = found[0]._replace(complete=all(each.complete for each in found))
    try:
        system, path = file_system(folder)
        for name in _leftovers(system, path, write, tasks):
            system.delete_file(name)
    except Exception as error:
        if folder not in _unreachable:
            _unreachable.add(folder)
            announce(
                f"deadLetterPath {folder} cannot be tidied up by the driver: {clause(error)}. The dead letters of "
                "committed writes are complete. Files of killed tasks, whose names begin with a dot, and of an earlier "
                "run with more tasks may stay there.",
                logging.WARNING,
            )


def _leftovers(system: Any, path: str, write: LetterFiles, tasks: int) -> Iterator[str]:
    from pyarrow import fs

    for info in system.get_file_info(fs.FileSelector(path, allow_not_found=True)):
        if (run := write.run_in(info.base_name)) is None:
            task = write.task_in(info.base_name)
            if task is None or task < tasks or not write.complete:
                continue
            run = _run_of(system, info.path)
        if not write.run.is_beside(run):
            yield info.path


def _run_of(system: Any, file: str) -> str:
    """The run that wrote a file, as text; "" if its first line does not say."""
    with system.open_input_stream(file) as stream:
        beginning = stream.read(_LONGEST_RUN).decode(errors="replace")
    if not beginning.startswith(_BEGINNING):
        return ""
    run: str = beginning.removeprefix(_BEGINNING).partition('"')[0]
    return run


def file_system(folder: str) -> tuple[Any, str]:
    """Arrow's file system, and the path in it, of a path or a URI that Arrow knows. Hadoop's s3a:// is S3, too."""
    from pyarrow import fs

    folder = _HADOOPS_S3.sub("s3://", folder)
    return fs.FileSystem.from_uri(folder) if "://" in folder else (fs.LocalFileSystem(), folder)
