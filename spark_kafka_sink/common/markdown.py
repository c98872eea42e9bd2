"""Generated blocks of Markdown pages: the tables of the documentation."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

_BLOCK: Final = re.compile(r"(?P<begin><!-- options:(?P<name>\w+) -->\n).*?(?P<end><!-- options:end -->)", re.DOTALL)


def filled(page: str, tables: Mapping[str, Callable[[], str]]) -> str:
    """``page`` with every block from ``<!-- options:NAME -->`` to ``<!-- options:end -->`` replaced by its table.

    Blocks of other names stay as they are: each module fills its own.
    """

    def fresh(block: re.Match[str]) -> str:
        made = tables.get(block["name"])
        return block[0] if made is None else f"{block['begin']}\n{made()}\n\n{block['end']}"

    return _BLOCK.sub(fresh, page)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table. Bars in cells, and angle brackets outside of backticks, are escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_escaped(cell) for cell in line) + " |" for line in lines)


def _escaped(cell: str) -> str:
    """Bars would end the cell; outside of backticks, ``<name>`` would be an HTML tag."""
    parts = cell.replace("|", "\\|").split("`")
    return "`".join(part if number % 2 else part.replace("<", "&lt;") for number, part in enumerate(parts))
