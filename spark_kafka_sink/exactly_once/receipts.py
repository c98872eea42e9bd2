"""Receipts: how many rows a task wrote to each partition, as records of a topic or lines of a file (SPARK-24647).

Unlike the ledger they are a history: one JSON object per task and partition, kept as long as the user keeps them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple
from uuid import uuid4

from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.common.task_figures import TaskFigures, int64, text
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.producer import Delivery
from spark_kafka_sink.records.columns import RecordColumns, bytes_column

_FIELDS: Final[Mapping[str, type]] = {
    "query": str,
    "batch": int,
    "task": int,
    "topic": str,
    "partition": int,
    "first_offset": int,
    "last_offset": int,
    "count": int,
    "bytes": int,
    "began_at": int,
    "ended_at": int,
}
_SHOWN: Final = 100
_HADOOPS_S3: Final = re.compile("^s3[an]://")


class TaskName(NamedTuple):
    """The task that wrote the rows of a receipt."""

    query: str
    batch: int
    task: int


@dataclass(frozen=True, slots=True)
class WriteReceipt:
    """What a task wrote to a partition: ``count`` rows of ``bytes`` bytes before compression, between two offsets (-1:
    unknown).

    ``query`` and ``batch``: a streaming query's id and micro-batch, txnAppId and txnVersion, or a batch job's name and
    0. ``began_at`` and ``ended_at``: epoch ms, the executor's clock, of the task's first row and last acknowledgement.
    ``figures``: of the whole task, in the first of its receipts; None in the others, and in those of releases before.
    ``query_name``: of the streaming query that wrote the rows, "" if it has none.
    """

    query: str
    batch: int
    task: int
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    count: int
    bytes: int
    began_at: int
    ended_at: int
    figures: TaskFigures | None = None
    query_name: str = ""

    def line(self) -> str:
        """The receipt as one line of JSON."""
        fields = {name: getattr(self, name) for name in _FIELDS}
        if self.query_name:
            fields["query_name"] = self.query_name
        if self.figures is not None:
            fields["figures"] = self.figures.as_json()
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def parse(cls, line: str) -> WriteReceipt:
        """The receipt in a line. Ignores fields of later releases. Raises ``ValueError`` for anything but a receipt."""
        try:
            fields = json.loads(line)
            values = {name: _of(kind, fields[name]) for name, kind in _FIELDS.items()}
            figures = fields.get("figures")
            return cls(
                **values,
                figures=None if figures is None else TaskFigures.from_json(figures),
                query_name=_of(str, fields.get("query_name", "")),
            )
        except KeyError as error:
            raise ValueError(f"{_start(line)} is not a receipt: it has no field {error}") from None
        except (TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(f"{_start(line)} is not a receipt: {error}") from None


def _of(kind: type, value: Any) -> Any:
    """``value``, if it is of this kind. Raises ``TypeError``, ``ValueError``."""
    if type(value) is not kind:
        raise TypeError(f"{value!r} is not {kind.__name__}")
    checked: str | int = text(value) if kind is str else int64(value)  # type: ignore[arg-type]
    return checked


def _start(line: str) -> str:
    """The beginning of the line, for an error message."""
    return repr(line if len(line) <= _SHOWN else line[:_SHOWN] + "…")


def receipts_of(
    name: TaskName,
    deliveries: Mapping[TopicPartition, Delivery],
    began_at: int,
    ended_at: int,
    figures: TaskFigures | None = None,
) -> tuple[WriteReceipt, ...]:
    """The receipts of a task, sorted by topic and partition. A task with dead letters only has one, of no rows."""
    receipts = [
        WriteReceipt(
            *name,
            *partition,
            first_offset=sent.first_offset,
            last_offset=sent.last_offset,
            count=sent.count,
            bytes=sent.size,
            began_at=began_at,
            ended_at=ended_at,
        )
        for partition, sent in sorted(deliveries.items())
    ]
    if not receipts and figures is not None and figures.dead_letters:
        no_rows = WriteReceipt(
            *name,
            topic="",
            partition=-1,
            first_offset=-1,
            last_offset=-1,
            count=0,
            bytes=0,
            began_at=began_at,
            ended_at=ended_at,
            figures=figures,
        )
        return (no_rows,)
    return (*(replace(first, figures=figures) for first in receipts[:1]), *receipts[1:])


def receipt_columns(receipts: Sequence[WriteReceipt]) -> RecordColumns:
    """Receipts as records of a receipts topic. The key is the query, so that one query's receipts are in one partition,
    in order.
    """
    return RecordColumns(
        key=bytes_column([each.query.encode() for each in receipts]),
        value=bytes_column([each.line().encode() for each in receipts]),
    )


def write_lines(folder: str, receipts: Iterable[WriteReceipt], job: str = "") -> None:
    """Writes one file of JSON lines per batch, ``<folder>/<query>-<batch>.jsonl``. A batch written again replaces its
    file.

    ``folder`` is a path, or a URI that Arrow knows (``s3://``, ``hdfs://``, ``gs://``). ``job`` is 32 hexadecimal
    digits that tell apart jobs of the same query and batch: ``<query>-<batch>-<job>.jsonl``.
    """
    files: dict[str, list[str]] = {}
    for each in receipts:
        files.setdefault(_file_name(each.query, each.batch, job), []).append(each.line() + "\n")
    if not files:
        return
    system, path = file_system(folder)
    system.create_dir(path, recursive=True)
    for name, lines in files.items():
        with system.open_output_stream(f"{path}/{name}") as file:
            file.write("".join(lines).encode())


def has_lines(folder: str, query: str, batch: int) -> bool:
    from pyarrow import fs

    system, path = file_system(folder)
    return bool(system.get_file_info(f"{path}/{_file_name(query, batch)}").type == fs.FileType.File)


def read_lines(folder: str, query: str, batch: int) -> tuple[WriteReceipt, ...]:
    """The receipts of a batch, or of its jobs; none if it has no file. Raises ``KafkaError``."""
    try:
        system, path = file_system(folder)
        try:
            return _lines(system, f"{path}/{_file_name(query, batch)}")
        except FileNotFoundError:
            names = _files_of_jobs(system, path, query, batch)
            return tuple(each for name in names for each in _lines(system, name))
    except (OSError, ValueError) as error:
        raise KafkaError(f"receiptsPath {folder} cannot be read: {error}") from error


def _lines(system: Any, name: str) -> tuple[WriteReceipt, ...]:
    with system.open_input_stream(name) as file:
        return tuple(WriteReceipt.parse(line) for line in file.read().decode().splitlines())


def _files_of_jobs(system: Any, path: str, query: str, batch: int) -> list[str]:
    from pyarrow import fs

    named = re.compile(re.escape(f"{query}-{batch}-") + r"[0-9a-f]{32}\.jsonl")
    found = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
    return sorted(info.path for info in found if named.fullmatch(info.base_name))


def probe(folder: str) -> None:
    """Writes a file into the folder and removes it; raises what ``write_lines`` would."""
    system, path = file_system(folder)
    system.create_dir(path, recursive=True)
    name = f"{path}/.probe-{uuid4().hex}"
    with system.open_output_stream(name) as file:
        file.write(b"")
    system.delete_file(name)


def _file_name(query: str, batch: int, job: str = "") -> str:
    return f"{query}-{batch}-{job}.jsonl" if job else f"{query}-{batch}.jsonl"


def file_system(folder: str) -> tuple[Any, str]:
    """Arrow's file system, and the path in it, of a path or a URI that Arrow knows. Hadoop's s3a:// is S3, too."""
    from pyarrow import fs

    folder = _HADOOPS_S3.sub("s3://", folder)
    return fs.FileSystem.from_uri(folder) if "://" in folder else (fs.LocalFileSystem(), folder)
