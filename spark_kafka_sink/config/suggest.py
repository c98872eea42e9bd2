"""The "did you mean" of the error texts."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str], prefix: str = "") -> str:
    """``; did you mean <prefix>X?`` for the known name X closest to ``name``, an empty text when none is close."""
    plain = {candidate.lower().replace("_", "."): candidate for candidate in known}
    close = get_close_matches(name.lower().replace("_", "."), plain, n=1, cutoff=0.72)
    return f"; did you mean {prefix}{plain[close[0]]}?" if close else ""
