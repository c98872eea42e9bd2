"""docs/command-line.md has the texts of --help."""

import argparse

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
    assert "`--in-process` needs no Java" in PAGE
    assert "[options](options.md)" in PAGE
    assert "(default: 9092)" in PAGE
