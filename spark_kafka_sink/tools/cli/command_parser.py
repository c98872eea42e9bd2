"""``CommandParser``: argparse that suggests what a mistyped word means (its own does from 3.14 on)."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from spark_kafka_sink.common.config.option import did_you_mean

SHELLS: Final = ("bash", "zsh")

_NEGATIVE_NUMBER: Final = re.compile(r"-\.?[0-9]")


class CommandParser(argparse.ArgumentParser):
    """A parser, and those of its subcommands."""

    def parse_known_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Names an unknown flag first: argparse would only say which required arguments it misses."""
        words = list(sys.argv[1:] if args is None else args)
        flags = [flag for action in self._actions for flag in action.option_strings]
        for word in self._flags_among(words):
            name = word.partition("=")[0]
            if not any(flag.startswith(name) or (flag == name[:2] and name[1] != "-") for flag in flags):
                self.error(f"unknown option {name}{did_you_mean(name, flags)}")
        return super().parse_known_args(words, namespace)

    def _flags_among(self, words: Sequence[str]) -> Iterable[str]:
        """The flags of this parser; those behind a subcommand are its own parser's."""
        if self._subparsers is not None:
            words = list(takewhile(_is_flag, words))
        return (word for word in takewhile(lambda word: word != "--", words) if _is_flag(word))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            names = [str(choice) for choice in action.choices]
            advice = did_you_mean(str(value), names) or f"; choose from {', '.join(names)}"
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}{advice}")


def _is_flag(word: str) -> bool:
    """Whether argparse takes the word for an option; words with blanks and negative numbers are values."""
    return len(word) > 1 and word[0] == "-" and " " not in word and not _NEGATIVE_NUMBER.match(word)


class PrintCompletion(argparse.Action):
    """Prints the script that completes commands, flags, choices and files in a shell, by ``shtab``."""

    def __call__(
        self, parser: argparse.ArgumentParser, _: argparse.Namespace, shell: Any, __: str | None = None
    ) -> None:
        try:
            import shtab
        except ImportError:
            parser.exit(1, "error: --print-completion needs shtab: pip install 'spark-kafka-sink[completion]'\n")
        _describe(parser, shtab.FILE)
        print(shtab.complete(parser, shell))
        parser.exit(0)


def _describe(parser: argparse.ArgumentParser, files: object) -> None:
    """Tells shtab which values are files; commands get their one line of help as description."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for line in action._choices_actions:
                command = action.choices[line.dest]
                command.description = line.help
                _describe(command, files)
        elif action.type is Path:
            action.complete = files  # type: ignore[attr-defined]
