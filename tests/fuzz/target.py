"""A target: functions that read the same kind of bytes from outside, and the errors that they may raise."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from hypothesis import strategies as st

from tests.fuzz.bounds import bounded
from tests.fuzz.inputs import inputs

T = TypeVar("T")


@dataclass(frozen=True)
class Target:
    """Each of ``reads`` raises nothing but ``errors``, whose traces lack ``secret``.

    ``make_seeds``: what they read without an error. ``tokens``: words of the format. ``is_text``: they take a string.
    """

    name: str
    reads: tuple[Callable[[Any], object], ...]
    make_seeds: Callable[[], Sequence[bytes | str]]
    errors: tuple[type[Exception], ...] = ()
    tokens: tuple[bytes, ...] = ()
    is_json: bool = False
    is_text: bool = False
    secret: str = ""

    @cached_property
    def seeds(self) -> Sequence[bytes]:
        return [seed if isinstance(seed, bytes) else seed.encode() for seed in self.make_seeds()]

    @cached_property
    def inputs(self) -> st.SearchStrategy[bytes]:
        return inputs(self.seeds, self.tokens, is_json=self.is_json)

    def check(self, data: bytes) -> None:
        """Calls each function within bounds. Raises what none of them may raise."""
        bounded(lambda: self.outcomes(data), len(data))

    def outcomes(self, data: bytes) -> list[Exception | None]:
        """What each function raises of ``errors``."""
        outcomes: list[Exception | None] = []
        for read in self.reads:
            try:
                read(data.decode(errors="replace") if self.is_text else data)
                outcomes.append(None)
            except self.errors as error:
                outcomes.append(error)
        if self.secret:
            shown = "".join(line for error in outcomes if error for line in traceback.format_exception(error))
            assert self.secret not in shown, "an error, or one that caused it, shows the secret"
        return outcomes


def picked(options: Sequence[T], data: bytes, size: int = 1) -> T:
    """The option that the first bytes of an input number."""
    return options[int.from_bytes(data[:size], "big") % len(options)]
