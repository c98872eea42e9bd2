"""Hostile bytes for everything that reads bytes from outside: only the named errors, within bounds.

A minute in all, with the same inputs each time. ``make fuzz`` sets FUZZ_MINUTES and tries others for so long. The last
input of each target is kept then, because C code may end or hang the process.
"""

from __future__ import annotations

import base64
import logging
import os
import time
from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from spark_kafka_sink.errors import SaslAuthenticationError
from tests.fuzz import brokers, records, schemas, security
from tests.fuzz.bounds import ExcessError, bounded
from tests.fuzz.inputs import each_cut_and_flip
from tests.repository.files import ROOT

TARGETS = {target.name: target for target in (*brokers.TARGETS, *records.TARGETS, *security.TARGETS, *schemas.TARGETS)}
MINUTES = float(os.environ.get("FUZZ_MINUTES", "0"))
FOLDER = ROOT / ".cache/fuzz"
ROUND = settings(
    max_examples=200 if MINUTES else 60, derandomize=not MINUTES, deadline=None, database=None,
    phases=(Phase.generate, Phase.shrink), suppress_health_check=list(HealthCheck),
)  # fmt: skip


@pytest.fixture
def seconds(request: pytest.FixtureRequest) -> float:
    """The share of one test in FUZZ_MINUTES."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return 60 * MINUTES * workers / len(request.session.items)


@pytest.mark.timeout(0 if MINUTES else 600)  # Hypothesis may make an input smaller for five minutes
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TARGETS)
def test_a_target_raises_only_its_errors_within_its_bounds(name: str, seconds: float) -> None:
    target = TARGETS[name]
    if MINUTES:
        logging.disable()  # a line for each input
        FOLDER.mkdir(parents=True, exist_ok=True)

    @ROUND
    @given(target.inputs)
    def reads(data: bytes) -> None:
        if MINUTES:
            (FOLDER / name).write_bytes(data)
        target.check(data)

    until = time.monotonic() + seconds
    reads()
    while time.monotonic() < until:
        reads()


@pytest.mark.parametrize("name", TARGETS)
def test_each_function_of_a_target_reads_a_seed(name: str) -> None:
    """Otherwise it would reject the inputs before they reach what is to be tried."""
    target = TARGETS[name]
    for seed in target.seeds:
        target.check(seed)
    outcomes = [target.outcomes(seed) for seed in target.seeds]
    assert all(None in of_one_function for of_one_function in zip(*outcomes, strict=True))


@pytest.mark.parametrize(("name", "kinds"), [("codecs", range(5)), ("handshakes", [0])])
def test_no_cut_and_no_flipped_bit_of_a_short_seed_raises_another_error(name: str, kinds: Sequence[int]) -> None:
    target = TARGETS[name]
    for seed in (each for each in target.seeds if each[0] in kinds and len(each) < 200):
        for data in each_cut_and_flip(seed):
            target.outcomes(data)


def test_no_cut_and_no_flipped_bit_of_the_servers_scram_messages_is_accepted() -> None:
    first, final = brokers.scram_messages()
    brokers.log_in(first, final)
    cases = [(changed, final) for changed in each_cut_and_flip(first)]
    # The last character of Base64 has bits that mean nothing.
    cases += [(first, changed) for changed in each_cut_and_flip(final) if not same_signature(changed, final)]
    for case in cases:
        with pytest.raises(SaslAuthenticationError):
            brokers.log_in(*case)


def same_signature(changed: bytes, final: bytes) -> bool:
    with suppress(ValueError):
        return changed[:2] == final[:2] and base64.b64decode(changed[2:], validate=True) == base64.b64decode(final[2:])
    return False


# -- what finds a defect --


def spin_behind_a_handler() -> None:
    while True:
        try:
            while True:
                pass
        except Exception:
            continue


def test_a_run_without_end_is_stopped_by_its_steps() -> None:
    with pytest.raises(ExcessError, match="steps"):
        bounded(spin_behind_a_handler, 10)


def test_a_length_that_is_only_claimed_is_found_by_its_memory() -> None:
    with pytest.raises(ExcessError, match="bytes of memory"):
        bounded(lambda: len(bytes(200 << 20)), 10)
    bounded(lambda: len(bytes(1 << 20)), 10)
