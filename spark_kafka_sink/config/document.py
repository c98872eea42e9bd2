"""The option table as Markdown, for the documentation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spark_kafka_sink.config.option import Kind, Option, Status
from spark_kafka_sink.config.table import PRODUCER_OPTIONS


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; bars inside cells are escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def option_rows(options: Iterable[Option]) -> tuple[Sequence[str], list[list[str]]]:
    """Head and rows of a table of options that may be given."""
    head = ("option", "default", "valid values", "what it does")
    return head, [[f"`{o.name}`", _default(o), _valid(o), o.doc] for o in options]


def producer_options() -> str:
    """All options of Kafka's producer, a section for each thing this package does with them."""
    sections = [markdown_table(*option_rows(o for o in PRODUCER_OPTIONS if o.status is Status.SUPPORTED))]
    for status, text in _OTHERS.items():
        options = [option for option in PRODUCER_OPTIONS if option.status is status]
        sections += [f"### {status.value.capitalize()}", text]
        sections.append(markdown_table(("option", "what it is"), ([f"`{o.name}`", _refusal(o)] for o in options)))
    return "\n\n".join(sections)


_OTHERS = {
    Status.NO_EFFECT: "Checked like the others, then left aside.",
    Status.JVM_ONLY: "Java classes and what belongs to them. Each is refused with what to do instead.",
    Status.NOT_YET: "This version speaks PLAINTEXT only and writes at least once.",
}


def _default(option: Option) -> str:
    if option.default is None:
        return ""
    return f"`{str(option.default).lower() if option.kind is Kind.BOOLEAN else option.default}`"


def _valid(option: Option) -> str:
    return option.allowed.removeprefix("one of ").removeprefix("a whole number ").removeprefix("of ")


def _refusal(option: Option) -> str:
    return f"{option.doc} Instead: {option.instead}." if option.instead else option.doc
