"""The option tables in the documentation are the ones the code uses."""

import re
from pathlib import Path

import pytest

from spark_kafka_sink.common.config.table import PRODUCER_OPTIONS
from spark_kafka_sink.common.metrics import METRICS
from spark_kafka_sink.schemas.registry.registry_options import REGISTRY_OPTIONS
from spark_kafka_sink.spark.document import TABLES, broker_codes, error_class_rows, filled
from spark_kafka_sink.spark.options import SINK_OPTIONS

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md") if "<!-- options:" in path.read_text()
)
REFRESH = "run: python -m spark_kafka_sink.spark.document docs/*.md"


def test_every_table_is_on_a_page():
    on_pages = {name for page in PAGES for name in re.findall("<!-- options:([a-z]+) -->", (ROOT / page).read_text())}
    assert set(TABLES) <= on_pages


@pytest.mark.parametrize("page", PAGES)
def test_the_page_is_fresh(page):
    text = (ROOT / page).read_text()
    assert filled(text) == text, REFRESH


def test_every_option_is_documented():
    text = (ROOT / "docs/options.md").read_text()
    names = [option.name for option in (*SINK_OPTIONS, *PRODUCER_OPTIONS, *REGISTRY_OPTIONS)]
    assert [name for name in names if f"| `{name}` |" not in text] == []


def test_every_metric_is_documented():
    text = (ROOT / "docs/metrics.md").read_text()
    assert [metric.name for metric in METRICS if f"| `{metric.name}` |" not in text] == []


def test_every_code_of_a_broker_has_a_cause_and_a_remedy():
    assert [code.name for code, text in broker_codes() if not text] == []


def test_every_error_has_a_cause_and_a_remedy():
    assert [row for row in error_class_rows() if not all(row)] == []


def test_a_stale_block_is_replaced_and_the_rest_left():
    page = "a\n<!-- options:sink -->\nold\n<!-- options:end -->\nb\n"
    fresh = filled(page)
    assert fresh.startswith("a\n<!-- options:sink -->\n\n| option |")
    assert fresh.endswith("\n\n<!-- options:end -->\nb\n")
    assert "old" not in fresh
    assert filled(fresh) == fresh


@pytest.mark.parametrize("page", PAGES)
def test_a_placeholder_in_a_table_is_not_an_html_tag(page):
    """Browsers drop unknown tags: ``<topic>-value`` would be shown as ``-value``."""
    rows = [line for line in (ROOT / page).read_text().splitlines() if line.startswith("| ")]
    assert [row for row in rows if re.search(r"<\w", "".join(row.split("`")[::2]))] == []


def test_names_in_backticks_keep_their_brackets():
    assert "`producer-<transactional.id>`" in (ROOT / "docs/options.md").read_text()
