"""docs/ARCHITECTURE.md as the tests read it: chapters, and the rows of their tables."""

from __future__ import annotations

import re

from tests.repository.files import ROOT

PAGE = ROOT / "docs" / "ARCHITECTURE.md"


def chapter(heading: str) -> str:
    """The text below a heading ("## …" or "### …"), up to the next heading of its rank or a higher one."""
    rank = len(heading) - len(heading.lstrip("#"))
    _, found, rest = f"\n{PAGE.read_text()}".partition(f"\n{heading}\n")
    assert found, f"{PAGE.name} has no chapter {heading!r}"
    return re.split(rf"\n#{{1,{rank}}} ", rest)[0]


def table(heading: str) -> list[list[str]]:
    """The cells of each row of a chapter's tables, without their head."""
    lines = [line.strip().strip("|") for line in chapter(heading).splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.split("|")] for line in lines]
    heads = {at - 1 for at, row in enumerate(rows) if set("".join(row)) <= {"-", ":", " "}}
    return [row for at, row in enumerate(rows) if at not in heads and at - 1 not in heads]


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)
