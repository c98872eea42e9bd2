"""docs/exactly-once-model.md names every safeguard and limit, and its example is what the model finds."""

from __future__ import annotations

import re
from pathlib import Path

from tests.model.engine import explore
from tests.model.protocol import question
from tests.model.scenario import SAFEGUARDS
from tests.model.test_safeguards import LIMITS, without

PAGE = Path(__file__).parents[2].joinpath("docs", "exactly-once-model.md").read_text()


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
