"""docs/command-line.md has the texts of --help."""

import argparse
import re
from collections.abc import Iterator
from email.message import Message

from spark_kafka_sink.tools.cli import main
from spark_kafka_sink.tools.cli.help_page import filled
from spark_kafka_sink.tools.cli.main import parser
from tests.repository.files import ROOT

PAGE = (ROOT / "docs/command-line.md").read_text()


def test_the_page_is_fresh():
    assert filled(PAGE) == PAGE, "run: python -m spark_kafka_sink.tools.cli.help_page docs/command-line.md"


def test_the_page_has_every_command_and_flag():
    (commands,) = (action for action in parser()._actions if isinstance(action, argparse._SubParsersAction))
    for name, command in commands.choices.items():
        section = PAGE.split(f"\n## {name}\n", 1)[1].split("\n## ", 1)[0]
        flags = {flag for action in command._actions for flag in action.option_strings} - {"-h", "--help", "-v"}
        missing = [flag for flag in flags - {"--verbose"} if flag not in section]
        assert not missing, f"{name}: {missing}"


def test_a_flag_is_code_and_a_page_is_a_link():
    assert "With `--in-process`, it runs a test broker" in PAGE
    assert "those of `check --exactly-once`, so" in PAGE
    assert "page [Options](options.md)" in PAGE
    assert "(default: 9092)" in PAGE


def test_no_text_points_to_a_file_that_an_installed_wheel_lacks():
    texts = "\n".join(texts_of(parser()))
    assert "page Options of the documentation" in texts
    assert re.findall(r"\b(?:docs|conf|jobs|examples)/\S*|\S+\.md\b", texts) == []


def test_help_has_the_address_of_the_documentation_if_the_package_was_built_with_one(monkeypatch):
    built = Message()
    built["Project-URL"] = "Source, https://code.example/sink"
    built["Project-URL"] = "Documentation, https://code.example/sink/docs"
    monkeypatch.setattr(main, "metadata", lambda _: built)
    assert parser().format_help().endswith("\n\ndocumentation: https://code.example/sink/docs\n")


def texts_of(command: argparse.ArgumentParser) -> Iterator[str]:
    """The texts of ``--help``, and those of the subcommands."""
    yield from (command.description or "", command.epilog or "")
    for action in command._actions:
        yield action.help or ""
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from texts_of(each)
