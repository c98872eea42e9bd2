"""Writes the generated blocks of the pages: options, metrics, errors, API versions, commands, TestBroker, Python API.

``python docs/generate.py`` replaces each block that begins with ``<!-- options:NAME -->``, a name of ``TABLES``, and
ends with ``<!-- options:end -->``. The command line has the texts and not the layout of ``--help``, because that
differs between Pythons. In the tables of errors.md the last columns are written by hand, in the page; a new row has
empty cells there, which a test refuses. A block ``<!-- api: PATH -->`` to ``<!-- api end -->`` has the signature and
docstring of a name: the first paragraph, or all if the marker says ``whole``; and a table of the members that the
marker lists, or of all if it says ``members``. Several such markers and one end make a table of these names.
"""

from __future__ import annotations

import argparse
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink import errors
from spark_kafka_sink.common.config.option import Option, OptionKind, Status
from spark_kafka_sink.common.config.producer_config import PRODUCER_OPTIONS
from spark_kafka_sink.common.config.rules import OLD_NAMES
from spark_kafka_sink.common.task_figures import FIGURES, TaskFigures
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.exactly_once import errors as exactly_once_errors
from spark_kafka_sink.exactly_once.errors import ADVICE, Progress
from spark_kafka_sink.exactly_once.values import WriteKind
from spark_kafka_sink.network.api_versions import SUPPORTED_VERSIONS, camel_case
from spark_kafka_sink.network.error_table import TRANSACTIONAL_PRODUCE, Action, action, known_codes
from spark_kafka_sink.producer.metrics import METRICS as PRODUCER_METRICS
from spark_kafka_sink.schemas.encoding import encoder
from spark_kafka_sink.schemas.formats import format_options
from spark_kafka_sink.schemas.registry.glue import GLUE_OPTIONS
from spark_kafka_sink.schemas.registry.registry_options import REGISTRY_OPTIONS
from spark_kafka_sink.spark import schema
from spark_kafka_sink.spark.options import SINK_OPTIONS
from spark_kafka_sink.testing.broker import emulation
from spark_kafka_sink.tools.cli.command_line import VERBOSE
from spark_kafka_sink.tools.cli.main import parser
from spark_kafka_sink.tools.exporter import EXPORTER_METRICS, METRICS

DOCS: Final = Path(__file__).parent
REGISTRY_TLS: Final = "schema.registry.ssl."
_BLOCK: Final = re.compile(r"(?P<begin><!-- options:(?P<name>\w+) -->\n).*?(?P<end><!-- options:end -->)", re.DOTALL)
_API_NAME: Final = re.compile(r"<!-- api: (?P<path>[\w.]+)(?P<members>[\w ]*) -->\n")
_API: Final = re.compile(r"(?P<begin>(?:<!-- api: [\w. ]+ -->\n)+).*?(?P<end><!-- api end -->)", re.DOTALL)
_CODE: Final = re.compile(r"`[^`]+`|(?<![\w-])--[a-z][\w-]*")
_PAGE: Final = re.compile(r"\bpage (?P<title>[A-Z][\w-]*) of the documentation\b")
_PAIR: Final = re.compile("-(rate|total|avg|max)`$")
_OF_A_PAIR: Final = re.compile(" per second|^Longest ")
_EVERY_COMMAND_HAS: Final = {"-h", *VERBOSE}
_LONG: Final = 8
"""Words of a text that a page does not repeat."""

_REFUSED_AND_IGNORED = {
    Status.NO_EFFECT: ("Checked, then ignored.", "here"),
    Status.JVM_ONLY: ("Java classes and their settings.", "instead"),
    Status.NOT_YET: ("", "instead"),
}

_DONE: Final[Mapping[Action, str]] = MappingProxyType(
    {
        Action.SUCCEED: "succeeds",
        Action.RETRY: "retries",
        Action.RETRY_SOON: "retries",
        Action.REFRESH_RETRY: "retries",
        Action.SPLIT: "splits the batch",
        Action.BUMP_EPOCH: "retries in order",
        Action.ABORT: "fails",
        Action.FAIL: "fails",
        Action.FENCED: "fails",
    }
)


def filled(page: str) -> str:
    """``page`` with each of its blocks replaced by its table."""

    def fresh(block: re.Match[str]) -> str:
        return f"{block['begin']}\n{TABLES[block['name']]()}\n\n{block['end']}"

    def reference(block: re.Match[str]) -> str:
        names = [(name["path"], name["members"].split()) for name in _API_NAME.finditer(block["begin"])]
        text = api_entry(*names[0], shown) if len(names) == 1 else api_table(path for path, _ in names)
        return f"{block['begin']}\n{text}\n\n{block['end']}"

    shown: set[tuple[str, str]] = set()
    return _API.sub(reference, _BLOCK.sub(fresh, page))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table. Bars in cells, and angle brackets outside of backticks, are escaped."""
    first, *body = ("| " + " | ".join(map(_escaped, line)) + " |" for line in (head, *rows))
    return "\n".join((first, f"|{'---|' * len(head)}", *body))


def _escaped(cell: str) -> str:
    """Bars would end the cell; outside of backticks, ``<name>`` would be an HTML tag."""
    texts = cell.replace("|", "\\|").split("`")
    return "`".join(text if number % 2 else text.replace("<", "&lt;") for number, text in enumerate(texts))


def sink_options() -> str:
    """The sink's own options."""
    return _option_table(SINK_OPTIONS, "what it does")


def registry_options() -> str:
    """The options of a schema registry. Those of TLS are Kafka's, which the page says."""
    options = (replace(each, doc="") if each.name.startswith(REGISTRY_TLS) else each for each in REGISTRY_OPTIONS)
    return _option_table(options, "what it does")


def glue_options() -> str:
    """The options of AWS Glue."""
    return _option_table(GLUE_OPTIONS, "what it does")


def producer_options() -> str:
    """Kafka's producer options, a section per ``Status``."""
    supported = (option for option in PRODUCER_OPTIONS if option.status is Status.SUPPORTED)
    sections = [_option_table(supported, "different here")]
    for status, (text, heading) in _REFUSED_AND_IGNORED.items():
        names: dict[str, list[str]] = {}
        for option in PRODUCER_OPTIONS:
            if option.status is status:
                names.setdefault(_refusal(option), []).append(f"`{option.name}`")
        rows = ((", ".join(alike), refusal) for refusal, alike in names.items())
        title = status.value[0].upper() + status.value[1:]
        sections += [f"### {title}", *filter(None, [text]), table(("option", heading), rows)]
    return "\n\n".join(sections)


def old_names() -> str:
    """Kafka 0.8's names of producer options."""
    return table(("old name", "option"), ((f"`{old}`", f"`{name}`") for old, name in OLD_NAMES.items()))


def metrics() -> str:
    """The producer's metrics; a rate and its total share a row, as do an average and its maximum."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for metric in PRODUCER_METRICS:
        name, groups = f"`{metric.name}`", ", ".join(f"`{group}`" for group in metric.groups)
        plain = _capitalized(_OF_A_PAIR.sub("", metric.doc).replace("Bytes of the largest", "Bytes of a"))
        rows.setdefault((_PAIR.sub("", name), groups, plain), []).append(name)
    return table(
        ("metric", "groups", "what it is"), ((", ".join(names), *cells) for (_, *cells), names in rows.items())
    )


def exported() -> str:
    """The metrics of ``spark-kafka-sink exporter``."""
    rows = [(f"`{each.full_name}`", ", ".join(each.labels), each.doc) for each in (*METRICS, *EXPORTER_METRICS)]
    return table(("metric", "further labels", "what it is"), rows)


def figures() -> str:
    """What a receipt has of its whole task. The parts of the task's time are explained beside the driver's line."""
    rows = {name: row for name, row in FIGURES.items() if name in TaskFigures.__dataclass_fields__}
    return table(
        ("field of `figures`", "what it is"),
        ((f"`{name}`", f"Time *{row.line}*." if row.part else row.doc) for name, row in rows.items()),
    )


def parts_of_time() -> str:
    """The parts of a task's time that the driver's line has."""
    rows = ((row.line, row.doc) for row in FIGURES.values() if row.part)
    return table(("part", "what the task's thread does"), rows)


def broker_code_table() -> str:
    """Each code of a Produce response, what the sink does, its cause and remedy."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for code, cause_and_remedy in sorted(broker_codes()):
        plain, transactional = _DONE[action("produce", code)], _DONE[action(TRANSACTIONAL_PRODUCE, code)]
        done = plain if plain == transactional else f"{plain}; exactly-once {transactional}"
        rows.setdefault((done, *(cause_and_remedy or ("", ""))), []).append(f"`{code.name.upper()}`")
    return table(
        ("code", "the sink", "cause", "what to do"), ((", ".join(codes), *cells) for cells, codes in rows.items())
    )


def broker_codes() -> Iterator[tuple[ErrorCode, tuple[str, ...]]]:
    """Each code, with cause and remedy; with nothing if the page lacks one of them."""
    written = _written_by_hand("codes")
    for code in known_codes():
        cause_and_remedy = tuple(written.get(code.name.upper(), ("",))[-2:])
        yield code, cause_and_remedy if len(cause_and_remedy) == 2 and all(cause_and_remedy) else ()


def _written_by_hand(block: str) -> dict[str, list[str]]:
    """The cells of each name in the first column of a block of ``errors.md``."""
    (text,) = (each[0] for each in _BLOCK.finditer((DOCS / "errors.md").read_text()) if each["name"] == block)
    rows = (re.split(r" (?<!\\)\| ", line.strip("| ")) for line in text.splitlines() if line.startswith("| `"))
    return {name: cells for names, *cells in rows for name in re.findall(r"`(\w+)`", names)}


def error_classes() -> list[type[KafkaError]]:
    """The error classes that a user may see, without their base class."""
    found = [
        value
        for module in (errors, schema, format_options, encoder, exactly_once_errors)
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, KafkaError) and value.__module__ == module.__name__
    ]
    return [each for each in found if each is not KafkaError]


def error_class_table() -> str:
    """The sink's exceptions."""
    return table(("error", "cause", "what to do"), error_class_rows())


def error_class_rows() -> list[tuple[str, ...]]:
    """Each class, its cause and its remedy; empty where the page lacks them."""
    written = _written_by_hand("errors")
    return [(f"`{each.__name__}`", *written.get(each.__name__, ["", ""])) for each in error_classes()]


def advice_table() -> str:
    """What the next run of a failed exactly-once write does."""
    rows = [
        (
            progress.value,
            ADVICE[WriteKind.MICRO_BATCH, progress]
            .format(timeout="kafka.transaction.timeout.ms")
            .partition(": it ")[2],
        )
        for progress in Progress
    ]
    return table(("the error says that the write is", "the next run"), rows)


def _option_table(options: Iterable[Option], doc: str) -> str:
    """A row for each option; those of a family that are alike share one."""
    head = ("option", "default", "valid values", doc)
    rows: dict[tuple[str, ...], list[str]] = {}
    for option in options:
        cells = (_family(option.name), _default(option), _valid(option), option.doc)
        rows.setdefault(cells, []).append(f"`{option.name}`")
    return table(head, ((", ".join(names), *cells) for (_, *cells), names in rows.items()))


def _family(name: str) -> str:
    """Alike options of one family share a row: a name without ``key`` or ``value`` in front, or its first words."""
    both = re.sub(r"^(key|value)(?=[A-Z.])", "", name)
    return both if both != name else ".".join(name.split(".")[: 3 if name.startswith(REGISTRY_TLS) else 2])


def _default(option: Option) -> str:
    if option.default in (None, ""):
        return ""
    return f"`{str(option.default).lower() if option.kind is OptionKind.BOOLEAN else option.default}`"


def _valid(option: Option) -> str:
    """Empty for any text."""
    if option.allowed == "a string":
        return ""
    return option.allowed.removeprefix("one of ").removeprefix("a whole number ").removeprefix("of ")


def _capitalized(text: str) -> str:
    """An option's name keeps its spelling."""
    return text if "." in text.split(maxsplit=1)[0] else text[0].upper() + text[1:]


def _refusal(option: Option) -> str:
    instead = f"{_capitalized(option.instead)}." if option.instead else ""
    return " ".join(filter(None, (instead, option.doc)))


def api_versions() -> str:
    """The versions of each API that the client speaks."""
    rows = []
    for api, spoken in SUPPORTED_VERSIONS.items():
        versions = f"{spoken.lowest} to {spoken.highest}" if spoken.lowest < spoken.highest else f"{spoken.lowest}"
        releases = " to ".join(dict.fromkeys(spoken.since))
        left_out = f"left out: {spoken.unsent.replace(': ', ' – ', 1)}" if spoken.unsent else ""
        rows.append((camel_case(api), versions, releases, "; ".join(filter(None, (spoken.without, left_out)))))
    return table(("API", "versions", "since Kafka", "what older versions lack"), rows)


def test_broker(head: Sequence[str], entries: Iterable[emulation.EmulationNote]) -> str:
    """What TestBroker does of a kind of thing."""
    rows = ((", ".join(f"`{name}`" for name in each.names), each.status.value, each.note) for each in entries)
    return table(head, rows)


def api_entry(path: str, members: Sequence[str], shown: set[tuple[str, str]]) -> str:
    """The signature of a class or function, its docstring, and a table of the members that are asked for.

    ``shown``: members that tables above have; of those that are equal, only the names follow.
    """
    found = pkgutil.resolve_name(path)
    paragraphs = None if "whole" in members else 1
    texts = [
        f"### {path.rpartition('.')[2]}",
        f"```\n{_signature(path, found, True)}\n```",
        _docstring(found, paragraphs),
    ]
    names = _documented_members(found) if "members" in members else [name for name in members if name != "whole"]
    rows = [
        (f"`{_signature(name, getattr(found, name), False)}`", _docstring(getattr(found, name), 1)) for name in names
    ]
    new = [row for row in rows if row not in shown]
    if again := ", ".join(f"`{name}`" for name, row in zip(names, rows, strict=True) if row in shown):
        texts.append(f"As above: {again}.")
    shown.update(rows)
    return "\n\n".join([*texts, *([table(("member", "what it does"), new)] if new else [])])


def api_table(paths: Iterable[str]) -> str:
    """A row for each name: its signature, except for an error's, and the first paragraph of its docstring."""
    rows = []
    for path in paths:
        found = pkgutil.resolve_name(path)
        is_error = isinstance(found, type) and issubclass(found, Exception)
        shown = path.rpartition(".")[2] if is_error else _signature(path, found, True)
        rows.append((f"`{shown}`", _docstring(found, 1)))
    return table(("name", "what it is"), rows)


def _documented_members(cls: type) -> list[str]:
    """Public ones with a docstring, those of base classes included, in the order of their definitions."""
    names = dict.fromkeys(name for base in reversed(cls.__mro__[:-1]) for name in vars(base))
    return [name for name in names if not name.startswith("_") and inspect.getdoc(getattr(cls, name))]


def _signature(path: str, found: object, typed: bool) -> str:
    """``name(argument: type = default) -> type``, untyped ``name(argument=default) -> type``; a property's name."""
    name = path.rpartition(".")[2]
    if not callable(found):
        return name
    signature = inspect.signature(found)
    parameters = [
        each.replace(annotation=_Unquoted.of(each.annotation) if typed else inspect.Parameter.empty)
        for each in signature.parameters.values()
        if each.name not in ("self", "cls") and each.annotation not in ("None", "Never")  # which is refused
    ]
    result = signature.replace(parameters=parameters, return_annotation=_Unquoted.of(signature.return_annotation))
    return name + str(result).removesuffix(" -> None").replace("mappingproxy({})", "{}")


class _Unquoted(str):
    """An annotation that a signature shows without quotes."""

    __slots__ = ()
    __repr__ = str.__str__

    @classmethod
    def of(cls, annotation: Any) -> Any:
        text = getattr(annotation, "__forward_arg__", annotation)
        return cls(text) if isinstance(text, str) else annotation


def _docstring(found: object, paragraphs: int | None = None) -> str:
    """The docstring as Markdown; its first paragraphs, or all."""
    texts = (inspect.getdoc(found) or "").replace("``", "`").split("\n\n")[:paragraphs]
    return "\n\n".join(text if paragraphs is None else " ".join(text.split()) for text in texts)


def commands() -> str:
    """The options of the program, then a section per command."""
    top = parser()
    sections, explained = [_flags(top, set())], dict[str, str]()
    for subparsers in top._actions:
        if isinstance(subparsers, argparse._SubParsersAction):
            names = [each.dest for each in subparsers._choices_actions]
            lines = [(f"[{each.dest}](#{each.dest})", each.help or "") for each in subparsers._choices_actions]
            sections.append(table(("command", "what it does"), lines))
            sections.extend(_command(name, subparsers.choices[name], explained) for name in names)
    return "\n\n".join(sections)


def _command(name: str, command: argparse.ArgumentParser, explained: dict[str, str]) -> str:
    """``explained``: the command whose section has a text that several options share. Examples are in ``--help``."""
    options = _flags(command, _EVERY_COMMAND_HAS, name, explained)
    texts = [f"## {name}", *_paragraphs(command.description or ""), options]
    more = re.sub(r"(?m)^examples:\n( .*\n?)+", "", command.epilog or "").strip()
    return "\n\n".join([*texts, *([_code(more)] if more else [])])


def _paragraphs(description: str) -> Iterator[str]:
    """Sentences are wrapped by the page; what is indented, such as a list, stays as it is."""
    for paragraph in description.split("\n\n"):
        if paragraph.startswith(" "):
            yield _code(paragraph)
        else:
            yield _marked(" ".join(paragraph.split()))


def _marked(text: str) -> str:
    """Flags as code, unless they are within code; names of pages as links."""
    text = _CODE.sub(lambda code: f"`{code[0].strip('`')}`", text)
    return _PAGE.sub(lambda page: f"page [{page['title']}]({page['title'].lower()}.md)", text)


def _code(text: str) -> str:
    return f"```\n{text.strip(chr(10))}\n```"


def _flags(
    command: argparse.ArgumentParser, left_out: set[str], name: str = "", explained: dict[str, str] | None = None
) -> str:
    """The options of a command. A text that an earlier command's section has is a link to it."""
    rows: dict[str, list[str]] = {}
    for argument in command._actions:
        if not isinstance(argument, argparse._SubParsersAction) and not left_out.intersection(argument.option_strings):
            text = _help(command, argument)
            first = name if explained is None or len(text.split()) < _LONG else explained.setdefault(text, name)
            shown = _marked(text) if first == name else f"as for [{first}](#{first})"
            rows.setdefault(shown, []).append(f"`{_shown(argument)}`")
    return table(("option", "what it does"), ((", ".join(flags), text) for text, flags in rows.items()))


def _shown(action: argparse.Action) -> str:
    """Flags and value as ``--help`` shows them."""
    value = "" if action.nargs == 0 else str(action.metavar or _choices(action) or action.dest.upper())
    value = f"[{value}]" if action.nargs == "?" else value
    return " ".join(filter(None, (", ".join(action.option_strings), value)))


def _choices(action: argparse.Action) -> str:
    return "" if action.choices is None else f"{{{','.join(map(str, action.choices))}}}"


def _help(command: argparse.ArgumentParser, action: argparse.Action) -> str:
    required = "required: " if action.required and action.option_strings else ""
    return required + (action.help or "") % {**vars(action), "prog": command.prog}


TABLES: Final[Mapping[str, Callable[[], str]]] = {
    "sink": sink_options,
    "kafka": producer_options,
    "registry": registry_options,
    "glue": glue_options,
    "old": old_names,
    "metrics": metrics,
    "exported": exported,
    "figures": figures,
    "time": parts_of_time,
    "codes": broker_code_table,
    "errors": error_class_table,
    "advice": advice_table,
    "versions": api_versions,
    "commands": commands,
    "apis": lambda: test_broker(("API", "TestBroker", "what is missing, or what to use instead"), emulation.APIS),
    "topics": lambda: test_broker(("topic setting", "TestBroker", "what is missing"), emulation.TOPIC_CONFIGS),
    "brokers": lambda: test_broker(("broker setting", "TestBroker", "remark"), emulation.BROKER_CONFIGS),
    "parts": lambda: table(("part", "what is different"), emulation.PARTS),
}


def pages() -> Iterator[tuple[Path, str, str]]:
    """Each page, its text, and its text with fresh blocks."""
    for path in sorted(DOCS.rglob("*.md")):
        text = path.read_text()
        yield path, text, filled(text)


if __name__ == "__main__":
    for path, text, fresh in pages():
        if fresh != text:
            path.write_text(fresh)
