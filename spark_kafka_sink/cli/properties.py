"""Java's ``.properties`` files, in which Kafka's own tools keep the producer's options."""

from __future__ import annotations

import re
from pathlib import Path

_COMMENT = ("#", "!")
_ENTRY = re.compile(r"(?P<name>(?:\\.|[^\\\s:=])+)\s*[:=]?\s*(?P<value>.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def read_properties(path: Path) -> dict[str, str]:
    """Name → value by the rules of ``java.util.Properties.load``; of a name given twice the last counts.

    Raises OSError when there is no such file.
    """
    entries: dict[str, str] = {}
    lines = iter(path.read_text("latin-1").splitlines())
    for line in lines:
        entry = line.lstrip()
        if not entry or entry.startswith(_COMMENT):
            continue
        while _goes_on(entry):
            entry = entry[:-1] + next(lines, "").lstrip()
        if match := _ENTRY.fullmatch(entry):
            entries[_unescaped(match["name"])] = _unescaped(match["value"])
    return entries


def _goes_on(line: str) -> bool:
    """An even number of backslashes at the end are escaped ones."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: str) -> str:
    def plain(escape: re.Match[str]) -> str:
        letter = escape[1]
        return chr(int(letter[1:], 16)) if len(letter) > 1 else _LETTERS.get(letter, letter)

    return _ESCAPE.sub(plain, text)
