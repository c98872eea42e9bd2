"""The generated blocks of the documentation are those of the code, and so is the list of public names."""

import argparse
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

import spark_kafka_sink
import spark_kafka_sink.testing
from spark_kafka_sink.tools.cli.main import parser
from tests.repository.files import ROOT

generate = SimpleNamespace(**runpy.run_path(str(ROOT / "docs/generate.py")))

PAGES = sorted(
    path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md") if "<!-- options:" in path.read_text()
)


def test_every_table_is_on_a_page():
    on_pages = {name for page in PAGES for name in re.findall("<!-- options:([a-z]+) -->", (ROOT / page).read_text())}
    assert set(generate.TABLES) | {"end"} == on_pages


def test_the_pages_are_fresh():
    stale = [path.name for path, text, fresh in generate.pages() if fresh != text]
    assert stale == [], "run: make docs"


def test_every_public_name_is_documented():
    shown = re.findall(r"^<!-- api: [\w.]+\.(\w+)", (ROOT / "docs/api.md").read_text(), re.MULTILINE)
    assert set(spark_kafka_sink.__all__) <= set(shown)


def test_every_code_of_a_broker_has_a_cause_and_a_remedy():
    assert [code.name for code, text in generate.broker_codes() if not text] == [], "write it into docs/errors.md"


def test_every_error_has_a_cause_and_a_remedy():
    assert [row for row in generate.error_class_rows() if not all(row)] == [], "write it into docs/errors.md"


def test_a_stale_block_is_replaced_and_the_rest_left():
    page = "a\n<!-- options:sink -->\nold\n<!-- options:end -->\nb\n"
    fresh = generate.filled(page)
    assert fresh.startswith("a\n<!-- options:sink -->\n\n| option |")
    assert fresh.endswith("\n\n<!-- options:end -->\nb\n")
    assert "old" not in fresh
    assert generate.filled(fresh) == fresh


@pytest.mark.parametrize("page", PAGES)
def test_a_placeholder_in_a_table_is_not_an_html_tag(page):
    """Browsers drop unknown tags: ``<topic>-value`` would be shown as ``-value``."""
    rows = [line for line in (ROOT / page).read_text().splitlines() if line.startswith("| ")]
    assert [row for row in rows if re.search(r"<\w", "".join(row.split("`")[::2]))] == []


def test_no_text_points_to_a_file_that_an_installed_wheel_lacks():
    texts = "\n".join(texts_of(parser()))
    assert "page Options of the documentation" in texts
    assert re.findall(r"\b(?:docs|conf|jobs|examples)/\S*|\S+\.md\b", texts) == []


def test_the_list_of_public_names_has_each_kind_of_name_once():
    listed = subprocess.run([sys.executable, ROOT / "docs/public_names.py"], check=True, capture_output=True, text=True)
    names = listed.stdout.splitlines()
    assert names == sorted(set(names))
    assert {
        "name KafkaProducer", "name KafkaProducer.send", "name write_kafka", "name TestBroker.create_topic",
        "name KafkaTimeoutError", "name ReplayMismatchError", "option sink topic (default ; a string)",
        "command check --bootstrap-server HOST:PORT", "metric record-send-rate", "metric spark_kafka_sink_rows_total",
        "extra protobuf",
    } <= set(names)  # fmt: skip
    assert {name.split(maxsplit=2)[1] for name in names if name.startswith("option")} == {"sink", "kafka", "registry"}


def texts_of(command: argparse.ArgumentParser) -> Iterator[str]:
    """The texts of ``--help``, and those of the subcommands."""
    yield from (command.description or "", command.epilog or "")
    for action in command._actions:
        yield action.help or ""
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from texts_of(each)


@pytest.mark.parametrize("module", [spark_kafka_sink, spark_kafka_sink.testing])
def test_incident_dir_did_not_show_the_public_names(module):
    assert set(module.__all__) <= set(dir(module))
