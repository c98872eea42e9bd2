"""``deadLetterPath``: a task's dead letters as a file of JSON lines, on any file system that Arrow reaches."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pyarrow as pa

from spark_kafka_sink.errors import DeadLetterPathError
from spark_kafka_sink.exactly_once.receipts import TaskName, file_system
from spark_kafka_sink.spark.dead_letters.leftovers import RUN_FIELD, run_of
from spark_kafka_sink.spark.dead_letters.names import LetterFiles
from spark_kafka_sink.spark.dead_letters.record import Letters, json_lines

_ERRORS = (OSError, ValueError, ImportError, pa.ArrowException)
"""What a file system may raise; ImportError comes from one that needs a package."""


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
            of_task = {RUN_FIELD: str(self._files.run), **self._name._asdict()}
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
            if not self._files.run.is_beside(run_of(self._system, path)):
                return path, True
            place += 1

    def _error(self, error: Exception) -> DeadLetterPathError:
        return DeadLetterPathError(
            f"deadLetterPath {self._folder} cannot be written: {error}. Set it to a directory that the executors can "
            "write to."
        )
