"""Results as Markdown: one table of all targets, and one table for each part."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks.measures import MEASURES, Verdict, geometric_mean, median, verdict
from benchmarks.model import Part, Result
from benchmarks.parts import BY_NAME, HEADLINE, HEADLINE_RATIO, PARTS

_RELATIONS = {
    "at least ×": ("≥ {:.3g} ×", "{:.2f} ×"),
    "at most ×": ("≤ {:.3g} ×", "{:.2f} ×"),
    "at most +": ("≤ + {:.3g}", "{:+.3g}"),
    "at most": ("≤ {:.3g}", "{:.3g}"),
}


_BLOCK = re.compile(r"(?P<begin><!-- benchmarks -->\n).*(?P<end><!-- benchmarks end -->)", re.DOTALL)
_EMPTY = "<!-- benchmarks -->\n<!-- benchmarks end -->\n"


def fill(page: Path, results: Mapping[str, Result]) -> None:
    """Writes the results between the page's markers; a page that is not there becomes nothing but them."""
    text = page.read_text() if page.exists() else _EMPTY
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(filled(text, results))


def filled(text: str, results: Mapping[str, Result]) -> str:
    sections = [summary(PARTS, results)]
    for part in PARTS:
        if part.name in results:
            result = results[part.name]
            made = "{at}, commit {commit}, load {load}".format(at=result.at, **result.environment)
            sections.append(f"### {part.name}\n\n{part.what} ({made}).\n\n{details(part, result)}")
    for described in [result.environment for result in results.values()][-1:]:
        facts = ", ".join(f"{name} {value}" for name, value in described.items() if name not in ("commit", "load"))
        sections.append(f"### Where\n\n{facts}.")
    block = "\n\n".join(sections)
    return _BLOCK.sub(lambda found: f"{found['begin']}\n{block}\n\n{found['end']}", text)


def table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = list(headings)
    lines = [heads, ["---", *("---:" for _ in heads[1:])], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def summary(parts: Iterable[Part], results: Mapping[str, Result]) -> str:
    """Every figure that was wanted, and what it came to."""
    rows: list[list[str]] = []
    for part in parts:
        if part.name in results:
            judged = (verdict(results[part.name].runs, target) for target in part.targets)
            rows.extend([f"{part.name}: {part.what}", *_cells(each)] for each in judged if each is not None)
    mean = geometric_mean((BY_NAME[name] for name in HEADLINE), results)
    if mean is not None:
        wanted, got = f"≥ {HEADLINE_RATIO} ×", f"{mean:.2f} ×"
        said = "rows/s of pykafka, by that of JVM sink"
        rows.append([f"geometric mean of {', '.join(HEADLINE)}", said, wanted, got, "", _mark(mean >= HEADLINE_RATIO)])
    return table(("part", "figure", "wanted", "median", "rounds", ""), rows)


def details(part: Part, result: Result) -> str:
    """Medians of every side of one part."""
    measures = [name for name in MEASURES if any(name in run.measures for run in result.runs)]
    rows = []
    for side in part.sides:
        figures = [median(result.runs, side.name, name) for name in measures]
        shown = ["" if f is None else MEASURES[m].shown.format(f) for m, f in zip(measures, figures, strict=True)]
        rows.append([side.name, _options(side.options), *shown])
    return table(("", "options", *(MEASURES[name].heading for name in measures)), rows)


def _cells(judged: Verdict) -> list[str]:
    target = judged.target
    wanted, got = _RELATIONS[target.relation]
    figure = f"{MEASURES[target.measure].heading} of {target.side}"
    if target.against is not None:
        figure += f", {'over' if target.relation == 'at most +' else 'by'} that of {target.against}"
    span = f"{got.format(judged.low)} – {got.format(judged.high)}" if judged.low != judged.high else ""
    return [figure, wanted.format(target.bound), got.format(judged.figure), span, _mark(judged.reached)]


def _mark(reached: bool) -> str:
    return "✓" if reached else "✗"


def _options(options: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items())
