"""What runs and tasks that ended early left in ``deadLetterPath``, removed by the driver after the commit."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pyspark.sql.datasource import WriterCommitMessage

from spark_kafka_sink.spark.commit_message import KafkaCommitMessage, announce
from spark_kafka_sink.spark.dead_letters.names import LetterFiles

RUN_FIELD: Final = "run"
"""The first field of each line, so that the beginning of a file tells the run that wrote it."""

_BEGINNING: Final = f'{{"{RUN_FIELD}":"'
_LONGEST_RUN: Final = 1_000

_unreachable: set[str] = set()


def remove_leftovers(messages: Sequence[WriterCommitMessage | None], folder: str | None) -> None:
    """Removes unfinished files of the write, and the files of tasks that an earlier run had and this one has not.

    The rows are committed, so a failure is one warning per path and process.
    """
    files = [message.letter_files for message in messages if isinstance(message, KafkaCommitMessage)]
    found = [each for each in files if each is not None]
    if folder is None or not found:
        return
    from spark_kafka_sink.exactly_once.receipts import file_system

    write = found[0]._replace(complete=all(each.complete for each in found))
    try:
        system, path = file_system(folder)
        for name in _leftovers(system, path, write, len(messages)):
            system.delete_file(name)
    except Exception as error:
        if folder not in _unreachable:
            _unreachable.add(folder)
            announce(
                f"deadLetterPath {folder} cannot be tidied up by the driver: {error}. The dead letters of committed "
                "writes are complete. Files of killed tasks, whose names begin with a dot, and of an earlier run with "
                "more tasks may stay there.",
                logging.WARNING,
            )


def run_of(system: Any, file: str) -> str:
    """The run that wrote a file, as text; "" if its first line does not say."""
    with system.open_input_stream(file) as stream:
        beginning = stream.read(_LONGEST_RUN).decode(errors="replace")
    if not beginning.startswith(_BEGINNING):
        return ""
    run: str = beginning.removeprefix(_BEGINNING).partition('"')[0]
    return run


def _leftovers(system: Any, path: str, write: LetterFiles, tasks: int) -> Iterator[str]:
    from pyarrow import fs

    for info in system.get_file_info(fs.FileSelector(path, allow_not_found=True)):
        if (run := write.run_in(info.base_name)) is None:
            task = write.task_in(info.base_name)
            if task is None or task < tasks or not write.complete:
                continue
            run = run_of(system, info.path)
        if not write.run.is_beside(run):
            yield info.path
