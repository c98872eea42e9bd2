"""Names of the files of ``deadLetterPath``: of which write they are, and of which run of it. No I/O."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

_LONGEST_TOPIC: Final = 100
"""A name of a file has at most 255 bytes on most file systems, a topic's up to 249."""


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
