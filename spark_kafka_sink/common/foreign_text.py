"""Makes text that a peer sent safe to show in errors, logs and terminals."""

from __future__ import annotations

_LONGEST = 2000


def shown(text: str, longest: int = _LONGEST) -> str:
    """The text for people: at most ``longest`` characters, on one line.

    What ``str.isprintable`` refuses is written as an escape, such as line ends, which could forge lines of a log, ESC,
    which commands a terminal, and marks that turn the direction of writing.
    """
    escaped = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text[:longest])
    return f"{escaped}…" if len(text) > longest else escaped
