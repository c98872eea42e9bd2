"""The format of ``.properties`` files (``java.util.Properties.load``)."""

from __future__ import annotations

import re

_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANKS = " \t\f"
_COMMENT = ("#", "!")
_ENTRY = re.compile(r"(?P<name>(?:\\.|[^\\ \t\f:=])+)[ \t\f]*[:=]?[ \t\f]*(?P<value>.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Values by names. A repeated name has its last value."""
    entries: dict[str, str] = {}
    lines = iter(_LINE_END.split(text))
    for line in lines:
        entry = line.lstrip(_BLANKS)
        if not entry or entry.startswith(_COMMENT):
            continue
        # An odd number of backslashes at the end continues the line.
        while (len(entry) - len(entry.rstrip("\\"))) % 2:
            entry = entry[:-1] + next(lines, "").lstrip(_BLANKS)
        if match := _ENTRY.fullmatch(entry):
            entries[_unescaped(match["name"])] = _unescaped(match["value"])
    return entries


def _unescaped(text: str) -> str:
    """Replaces escapes. As in Java's strings, a character above U+FFFF is two of them."""
    return _ESCAPE.sub(_plain, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _plain(escape: re.Match[str]) -> str:
    letter = escape[1]
    return chr(int(letter[1:], 16)) if len(letter) > 1 else _LETTERS.get(letter, letter)
