"""The Python blocks of the pages. A comment before a block says how it is tested.

``<!-- run: spark -->``: in ``tests/spark/test_pages.py``. ``<!-- run: pytest -->``: as tests of a user, in
``tests/spark/test_readme.py``. ``<!-- run: no, … -->``: it only compiles. Without one it runs beside TestBroker. Those
of ``encoding.md`` run beside a schema registry: ``tests/spark/test_encoding_page.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tests.repository.files import ROOT

_BLOCK = re.compile(r"(?:<!-- run: (?P<how>[^\n]*) -->\n)?^```python\n(?P<text>.*?)^```", re.DOTALL | re.MULTILINE)

# How the blocks of a page are tested that have no comment.
_OF_PAGE = {"encoding.md": "registry"}


class PythonBlock(NamedTuple):
    """``where``: page and line. ``how``: "spark", "pytest", "no, …" with the reason, or "" for TestBroker."""

    where: str
    how: str
    text: str


def python_blocks() -> Iterator[PythonBlock]:
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = page.read_text()
        for found in _BLOCK.finditer(text):
            where = f"{page.name}:{text.count(chr(10), 0, found.start('text'))}"
            yield PythonBlock(where, found["how"] or _OF_PAGE.get(page.name, ""), found["text"])
