"""Text of others in errors, logs and terminals: made safe to show, and to go on after."""

from __future__ import annotations

from collections.abc import Sequence

_LONGEST = 2000
LONGEST_ERROR = 20_000
_ITEM = "\n- "


def shown(text: str, longest: int = _LONGEST) -> str:
    """The text for people: at most ``longest`` characters, and a mark if some are left out, on one line.

    What ``str.isprintable`` refuses is written as an escape, such as line ends, which could forge lines of a log, ESC,
    which commands a terminal, and marks that turn the direction of writing.
    """
    begin = text[: longest + 1]
    if begin.isprintable():
        return begin if len(begin) <= longest else f"{begin[:longest]}…"
    escaped = ""
    for char in begin:
        piece = char if char.isprintable() else ascii(char)[1:-1]
        if len(escaped) + len(piece) > longest:
            return f"{escaped}…"
        escaped += piece
    return escaped


def error_text(text: str) -> str:
    """The text of an error, escaped, and cut with a mark after 20,000 characters. It may be a list, and quote peers."""
    escaped = _ITEM.join(shown(each, LONGEST_ERROR) for each in text[: LONGEST_ERROR + 1].split(_ITEM))
    return escaped if len(escaped) <= LONGEST_ERROR else f"{escaped[:LONGEST_ERROR]}…"


def error_list(items: Sequence[str]) -> str:
    """The text of an error about these items: each on a line of its own, unless there is only one."""
    escaped = [shown(each, LONGEST_ERROR) for each in items]
    return escaped[0] if len(escaped) == 1 else "\n".join(f"- {each}" for each in escaped)


def clause(error: object) -> str:
    """The text without the full stop at its end, so that a sentence can go on after it."""
    return str(error).removesuffix(".")
