"""``Draft``: a configuration that the rules still check and change."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit


@dataclass
class Draft:
    """An unfinished configuration: the ``values`` of all options, the options ``given``, the ``faulty`` ones.

    ``names`` has the old names of options that are given by them. ``placeholders`` has the options whose values come
    from config providers, as they were given; no fault or warning about them shows a value. ``concerned`` has the
    options that the current rule reads.
    """

    prefix: str
    values: dict[str, Any] = field(default_factory=dict)
    given: set[str] = field(default_factory=set)
    faulty: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    placeholders: dict[str, str] = field(default_factory=dict)
    concerned: frozenset[str] = frozenset()

    def fault(self, name: str, sentence: str) -> None:
        self.faulty.add(name)
        self.faults.append(self._about(name, sentence, "is refused"))

    def forbid(self, name: str, clause: str) -> None:
        """Adds a fault of ``operator_limits``. It shows no value, not even one of a config provider."""
        self.faulty.add(name)
        self.faults.append(f"{self.prefix}{self.names.get(name, name)} {clause}.")

    def caution(self, name: str, sentence: str) -> None:
        """Adds a warning that shows no value, not even one of a config provider."""
        self.warnings.append(f"{self.prefix}{self.names.get(name, name)} {sentence}")

    def caution_clear_text(self, name: str, url: str) -> None:
        """Warns if ``url``, the value of the option ``name``, has no TLS. For URLs that are sent credentials."""
        parts = urlsplit(url)
        if parts.scheme.lower() == "http" and not is_loopback(parts.hostname or ""):
            self.caution(
                name, "begins with http://, so the credentials cross the network in clear text; write an https:// URL."
            )

    def warn(self, name: str, sentence: str) -> None:
        self.warnings.append(self._about(name, sentence, "is adjusted or has no effect"))

    def _about(self, name: str, sentence: str, outcome: str) -> str:
        named = f"{self.prefix}{self.names.get(name, name)}"
        hidden = [self.placeholders[each] for each in sorted({name, *self.concerned} & self.placeholders.keys())]
        if not hidden:
            return f"{named} {sentence}"
        return f"{named} {outcome}, with the value that stands for {' and '.join(hidden)} and is not shown here."


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, where a secret without TLS crosses no network."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"
