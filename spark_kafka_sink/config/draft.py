"""``Draft``: a configuration that the rules still check and change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Draft:
    """An unfinished configuration: the ``values`` of all options, the options ``given``, the ``faulty`` ones.

    ``names``: the old name of an option that is given under it.
    """

    prefix: str
    values: dict[str, Any] = field(default_factory=dict)
    given: set[str] = field(default_factory=set)
    faulty: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)

    def fault(self, name: str, sentence: str) -> None:
        self.faulty.add(name)
        self.faults.append(f"{self.prefix}{self.names.get(name, name)} {sentence}")

    def warn(self, name: str, sentence: str) -> None:
        self.warnings.append(f"{self.prefix}{self.names.get(name, name)} {sentence}")
