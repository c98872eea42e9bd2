"""What the documentation says of results is what `make bench` found, and goals are judged by rounds."""

import pytest

from benchmarks.command import PUBLISHED
from benchmarks.measures import verdict
from benchmarks.model import Result, Run, Session, Target
from benchmarks.page import filled
from benchmarks.parts import BY_NAME, FLOOR, OURS, THEIRS
from benchmarks.results import load

ENVIRONMENT = {"commit": "abc", "load": "1.0", "machine": "m"}


def result(part: str, *rounds: dict[str, float]) -> Result:
    """Of rounds that say each side's figure."""
    runs = [
        Run(side, number, 1, {"rows_per_s": figure})
        for number, figures in enumerate(rounds, 1)
        for side, figure in figures.items()
    ]
    session = Session("2026-11-22 10:00", len(rounds), 60, ENVIRONMENT)
    return Result(part, (session,), tuple(runs))


@pytest.mark.parametrize("page", PUBLISHED.pages, ids=lambda page: page.name)
def test_the_pages_say_what_the_published_results_say(page):
    text = page.read_text()
    assert "<!-- benchmarks: " in text
    assert filled(text, load(PUBLISHED.results)) == text


def test_every_published_result_is_of_a_part_and_its_sides():
    for name, published in load(PUBLISHED.results).items():
        assert {run.side for run in published.runs} == {side.name for side in BY_NAME[name].sides}, name
        assert {run.round for run in published.runs} == set(range(1, published.rounds + 1)), name


def test_a_goal_is_judged_by_the_median_of_ratios_of_one_round():
    # Medians of the sides alone would say 20 / 10.
    runs = result("default", {OURS: 30, THEIRS: 10}, {OURS: 20, THEIRS: 20}, {OURS: 10, THEIRS: 5}).runs
    judged = verdict(runs, Target(OURS, "rows_per_s", "at least ×", 2.0, THEIRS))
    assert judged is not None
    assert (judged.figure, judged.low, judged.high, judged.reached) == (2.0, 1.0, 3.0, True)


def test_the_floor_of_a_row_has_the_broker_of_its_own_batches():
    ours = {"cpu_us": 10, "spark_us": 4, "workers_us": 3, "broker_us": 3}
    nothing = {"cpu_us": 6, "spark_us": 3, "workers_us": 1, "broker_us": 2}
    runs = [Run(OURS, 1, 1, ours), Run(FLOOR, 1, 1, nothing), Run(OURS, 2, 1, ours)]
    judged = verdict(runs, Target(OURS, "cpu_us", "floor ÷", 0.8, FLOOR))
    assert judged is not None
    assert (judged.figure, judged.low, judged.high, judged.reached) == (0.7, 0.7, 0.7, False)


def test_a_ratio_is_judged_by_another_one_of_the_same_round():
    over_tls = [{f"{OURS}, TLS": 12, f"{THEIRS}, TLS": 10, OURS: ours, THEIRS: 10} for ours in (12, 15, 10)]
    (target,) = BY_NAME["tls"].targets
    judged = verdict(result("tls", *over_tls).runs, target)
    assert judged is not None
    assert (judged.figure, judged.low, judged.high) == pytest.approx((1.0, 0.8, 1.2))
    assert verdict(result("tls", {f"{OURS}, TLS": 12, f"{THEIRS}, TLS": 10}).runs, target) is None
