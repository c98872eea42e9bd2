"""A short run of each target, and whether the bounds and the rounds find what they are for. `make fuzz` runs longer."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fuzz.__main__ import Findings, Fuzzing
from tests.fuzz.bounds import ExcessError, bounded
from tests.fuzz.mutations import with_other_values
from tests.fuzz.rounds import attempt, one_round
from tests.fuzz.targets import TARGETS, Read, Target
from tests.repository.files import ROOT
from tests.waiting import DEADLINE_S

EXAMPLES = 40


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_raises_only_its_errors_within_its_bounds(name: str) -> None:
    target = TARGETS[name]
    crash = one_round(target, 0, EXAMPLES).crash
    assert crash is None, f"{crash.data!r}\n{crash.text}"


@pytest.mark.parametrize("name", TARGETS)
def test_each_function_of_a_target_reads_a_seed(name: str) -> None:
    """Otherwise it would reject the inputs before they reach what is to be tried."""
    target = TARGETS[name]
    for seed in target.seeds:
        assert attempt(target, seed) is None
    unreached = [read for read in target.reads if not any(accepts(target, read, seed) for seed in target.seeds)]
    assert unreached == []


def accepts(target: Target, read: Read, seed: bytes) -> bool:
    try:
        read(seed)
    except target.errors:
        return False
    return True


def planted(read, errors=()) -> Target:
    return Target("planted", (read,), lambda: [b'{"a": [1, 2]}'], errors)


def fails(data: bytes) -> None:
    if b"\xff" in data:
        raise KeyError(len(data))


def test_a_round_finds_an_error_that_is_not_allowed_and_makes_its_input_small() -> None:
    crash = one_round(planted(fails), 0, 300).crash
    assert crash is not None
    assert crash.place == "KeyError in tests/fuzz/test_fuzz.py:fails"
    assert len(crash.data) < 100
    assert one_round(planted(fails, (KeyError,)), 0, 300).crash is None
    assert one_round(planted(fails), 0, 300, {crash.place}).crash is None


def test_a_secret_in_the_cause_of_an_allowed_error_is_a_crash() -> None:
    def read(data: bytes) -> None:
        try:
            raise ValueError("pa" + "55")
        except ValueError as error:
            raise KeyError("hidden") from error

    assert attempt(planted(read, (KeyError,)), b"") is None
    assert attempt(replace(planted(read, (KeyError,)), secret="pa55"), b"") is not None


def test_a_round_is_the_same_each_time() -> None:
    assert one_round(planted(fails), 7, 300) == one_round(planted(fails), 7, 300)


def spin() -> None:
    while True:
        pass


def spin_behind_a_handler() -> None:
    while True:
        try:
            spin()
        except Exception:
            continue


@pytest.mark.parametrize("run", [spin, spin_behind_a_handler])
def test_a_run_without_end_is_stopped_by_its_steps(run) -> None:
    with pytest.raises(ExcessError, match="steps"):
        bounded(run, 10)


def test_a_length_that_is_only_claimed_is_found_by_its_memory() -> None:
    with pytest.raises(ExcessError, match="bytes of memory"):
        bounded(lambda: len(bytes(200 << 20)), 10)
    bounded(lambda: len(bytes(1 << 20)), 10)


def test_an_expression_that_backtracks_is_stopped_by_its_cpu(monkeypatch) -> None:
    monkeypatch.setattr("tests.fuzz.bounds.CPU_S", 0.2)
    with pytest.raises(ExcessError, match="CPU"):
        bounded(lambda: re.match(r"(a+)+b", "a" * 40), 10)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ([], '{"a": [1, 2]}'),
        ([(0, "replace", None)], "null"),
        ([(1, "remove", None)], "{}"),
        ([(1, "rename", "b")], '{"b": [1, 2]}'),
        ([(3, "replace", 2**64), (2, "remove", 0)], f'{{"a": [{2**64}]}}'),
        ([(0, "remove", None)], ""),
    ],
)
def test_values_of_json_are_changed_by_their_number(changes, text) -> None:
    assert with_other_values(b'{"a": [1, 2]}', changes) == text.encode()


def test_each_input_that_ends_the_process_is_a_crash_of_its_own(tmp_path) -> None:
    inputs = iter([b"a", b"b", b"a"])

    class Dying(Fuzzing):
        def _follow(self, found: Findings, name: str, arguments: list[str]) -> int:
            data = next(inputs, None)
            if data is None:
                raise KeyboardInterrupt
            Path(arguments[-1]).write_bytes(data)
            return -11

    fuzzing = Dying(tmp_path, 0, lambda: None)
    with pytest.raises(KeyboardInterrupt):
        fuzzing.run("jwt", DEADLINE_S)
    kept = fuzzing.found["jwt"].places.values()
    assert [path.read_bytes() for path in kept] == [b"a", b"b"]


def test_a_kept_input_is_read_once_more(tmp_path) -> None:
    kept = tmp_path / "jwt-0"
    kept.write_bytes(b"a.b.c")
    command = [sys.executable, "-m", "tests.fuzz", "--replay", kept]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stdout) == (0, "no crash\n"), done.stderr
