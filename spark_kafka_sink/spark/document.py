"""Writes the tables of options and metrics into the documentation.

``python -m spark_kafka_sink.spark.document README.md docs/options.md docs/metrics.md`` fills what stands between the
markers of a page: ``<!-- options:sink -->`` (the sink's own), ``<!-- options:kafka -->`` (Kafka's) or
``<!-- options:metrics -->``, and ``<!-- options:end -->``.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from spark_kafka_sink.config.document import markdown_table, option_rows, producer_options
from spark_kafka_sink.metrics import metric_rows
from spark_kafka_sink.spark.options import SINK_OPTIONS

_BLOCK = re.compile(r"(?P<begin><!-- options:(?P<name>\w+) -->\n).*?(?P<end><!-- options:end -->)", re.DOTALL)


def sink_options() -> str:
    """The sink's own options as a Markdown table."""
    return markdown_table(*option_rows(SINK_OPTIONS))


def metrics() -> str:
    """The producer's metrics as a Markdown table."""
    return markdown_table(*metric_rows())


_TABLES = {"sink": sink_options, "kafka": producer_options, "metrics": metrics}


def filled(page: str) -> str:
    """``page`` with every marked block as the tables say now."""
    return _BLOCK.sub(lambda block: f"{block['begin']}\n{_TABLES[block['name']]()}\n\n{block['end']}", page)


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        path.write_text(filled(path.read_text()))
