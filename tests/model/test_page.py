"""docs/exactly-once-model.md has the bounds of each exploration, and its example is what the model finds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.model.bounds import LARGE, SMALL
from tests.model.engine import explore
from tests.model.page import BUDGETS, bounds_of
from tests.model.protocol import question
from tests.model.scenario import SAFEGUARDS, Scenario
from tests.model.test_safeguards import LIMITS, without
from tests.model.world import Left

PAGE = Path(__file__).parents[2].joinpath("docs", "exactly-once-model.md").read_text()
ROWS = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([0-9,]+) \| ([0-9]+) \|$", PAGE, re.MULTILINE)


def test_the_page_has_the_bounds_of_each_large_exploration():
    assert [(name, bounds) for name, bounds, _, _ in ROWS] == [(name, bounds_of(each)) for name, each in LARGE.items()]


def test_the_page_has_the_sum_of_its_states():
    total = sum(int(states.replace(",", "")) for _, _, states, _ in ROWS)
    assert f"{total:,} states in all" in PAGE


def test_the_page_has_the_number_of_the_small_ones():
    assert f"{len(SMALL)} explorations of up to" in PAGE


@pytest.mark.parametrize("budget", Left._fields)
def test_each_budget_of_a_scenario_has_words(budget):
    assert bounds_of(Scenario(**{budget: 2})).endswith(f", 2 {BUDGETS[budget][1]}")


def test_the_page_names_each_safeguard():
    table = PAGE.partition("## Safeguards")[2].partition("No safeguard helps")[0]
    named = {name for row in re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE) for name in row.split(", ")}
    assert named - {"safeguard"} == SAFEGUARDS.keys()


def test_the_page_has_each_limit():
    limits = PAGE.partition("No safeguard helps against:")[2].partition("## Bounds")[0]
    assert len(re.findall(r"^- ", limits, re.MULTILINE)) == len(LIMITS)


def test_the_example_is_what_the_model_finds():
    example = PAGE.partition("```\nBROKEN")[2].partition("```")[0].splitlines()
    found = str(explore(question(without("a zombie attempt", "ask the marker"))))
    found = [re.sub(r" \(\d.*deep\)$", "", line) for line in found.removeprefix("BROKEN").splitlines()]
    assert [line for line in example if line.strip() != "…"] == [line for line in found if line in example]
    assert example[0] == found[0]
