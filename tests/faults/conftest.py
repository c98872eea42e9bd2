"""What all tests of trouble share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def collect_only_what_tests_leave() -> Iterator[None]:
    """Each test looks for leaks after a collection; it need not go through all that was imported."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
