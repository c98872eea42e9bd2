"""What the package does, recorded in text files: a change that should not be noticed must leave them as they are.

``python -m tests.recorded`` writes the files anew. The difference is then part of the change, and shows a reviewer
what users see of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from tests.recorded.golden_bytes import golden_bytes
from tests.recorded.public_names import public_names
from tests.recorded.writes import at_least_once, exactly_once

FILES = Path(__file__).parent / "files"

RECORDERS: Mapping[str, Callable[[], list[str]]] = MappingProxyType({
    "at_least_once.txt": at_least_once,
    "exactly_once.txt": exactly_once,
    "golden_bytes.txt": golden_bytes,
    "public_names.txt": public_names,
})  # fmt: skip
"""A file of ``FILES`` → its lines."""
