"""The commands, their options and the texts of ``--help``, without its layout: that differs between Pythons."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from spark_kafka_sink.tools.cli.main import parser


def command_line() -> list[str]:
    return list(_lines(parser()))


def _lines(command: argparse.ArgumentParser) -> Iterator[str]:
    yield f"{command.prog}: {_one_line(command.description)} {_one_line(command.epilog)}".rstrip()
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction):
            for shown in action._choices_actions:
                yield f"  {shown.dest}: {_one_line(shown.help)}"
            for each in action.choices.values():
                yield from _lines(each)
        else:
            names = ", ".join(action.option_strings) or action.dest
            yield f"  {names} {action.metavar or ''} default {action.default!r}: {_one_line(action.help)}"


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())
