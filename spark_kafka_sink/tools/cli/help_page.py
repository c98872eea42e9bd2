"""The page of the command line, made from the texts of ``--help``.

``python -m spark_kafka_sink.tools.cli.help_page docs/command-line.md`` writes it between the page's markers. It has the
texts and not the layout of ``--help``, because that differs between Pythons.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from spark_kafka_sink.common import markdown
from spark_kafka_sink.tools.cli.command_line import VERBOSE
from spark_kafka_sink.tools.cli.main import parser

_CODE: Final = re.compile(r"`[^`]+`|(?<![\w-])--[a-z][\w-]*")
_PAGE: Final = re.compile(r"\bpage (?P<title>[A-Z][\w-]*) of the documentation\b")
_EVERY_COMMAND_HAS: Final = {"-h", *VERBOSE}


def filled(page: str) -> str:
    """``page`` with its block of commands written anew."""
    return markdown.filled(page, {"commands": commands})


def commands() -> str:
    """The options of the program, then a section per command."""
    top = parser()
    sections = [_options(top, set())]
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            names = [each.dest for each in action._choices_actions]
            lines = [(f"[{each.dest}](#{each.dest})", each.help or "") for each in action._choices_actions]
            sections.append(markdown.table(("command", "what it does"), lines))
            sections.extend(_command(name, action.choices[name]) for name in names)
    return "\n\n".join(sections)


def _command(name: str, command: argparse.ArgumentParser) -> str:
    texts = [f"## {name}", *_paragraphs(command.description or ""), _options(command, _EVERY_COMMAND_HAS)]
    return "\n\n".join([*texts, *([_code(command.epilog)] if command.epilog else [])])


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


def _options(command: argparse.ArgumentParser, left_out: set[str]) -> str:
    rows = [
        (f"`{_shown(action)}`", _marked(_help(command, action)))
        for action in command._actions
        if not isinstance(action, argparse._SubParsersAction) and not left_out.intersection(action.option_strings)
    ]
    return markdown.table(("option", "what it does"), rows)


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


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        path.write_text(filled(path.read_text()))
