"""``deadLetterPath``: a task's dead letters as a file of JSON lines, on any file system that Arrow reaches."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa

from spark_kafka_sink.errors import DeadLetterPathError
from spark_kafka_sink.exactly_once.receipts import TaskName, file_system
from spark_kafka_sink.spark.dead_letters.record import Letters, json_lines

_ERRORS = (OSError, ValueError, ImportError, pa.ArrowException)
"""Of a file system; ImportError: of one that needs a package."""


class DeadLetterFile:
    """``<folder>/<query>-<batch>-<task>.jsonl``, made with the first dead letter under another name. ``finish`` gives
    it its own, in the place of an earlier attempt's. Raises ``DeadLetterPathError``.
    """

    def __init__(self, folder: str, name: TaskName) -> None:
        self._folder = folder
        self._name = name
        self._system: Any = None
        self._stream: Any = None
        self._paths = "", ""

    def write(self, letters: Letters) -> None:
        try:
            if self._stream is None:
                folder = self._open()
                self._system.create_dir(folder, recursive=True)
                self._stream = self._system.open_output_stream(self._paths[0])
            name = self._name
            self._stream.write(json_lines(letters, query=name.query, batch=name.batch, task=name.task))
        except _ERRORS as error:
            raise self._error(error) from error

    def finish(self) -> None:
        """Without a dead letter, an earlier attempt's file is removed."""
        try:
            if self._stream is None:
                self._open()
                if self._system.get_file_info(self._paths[1]).is_file:
                    self._system.delete_file(self._paths[1])
                return
            self._stream.close()
            self._system.move(*self._paths)
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
            self._system.delete_file(self._paths[0])
        except _ERRORS:  # the task fails already, with another error
            return

    def _open(self) -> str:
        """The file system is there; returns the folder in it."""
        self._system, folder = file_system(self._folder)
        name = f"{quote(self._name.query, safe=' ')}-{self._name.batch}-{self._name.task}.jsonl"
        self._paths = f"{folder}/.{name}.{uuid4().hex}", f"{folder}/{name}"
        return folder

    def _error(self, error: Exception) -> DeadLetterPathError:
        return DeadLetterPathError(
            f"deadLetterPath {self._folder} cannot be written: {error}. Set it to a directory that the executors can "
            "write to."
        )
