"""Writes the tables of options and metrics into the documentation.

``python -m spark_kafka_sink.spark.document README.md docs/options.md docs/metrics.md docs/operations.md
docs/exactly-once.md`` replaces each block of these pages that begins with ``<!-- options:NAME -->``, a name of
``_TABLES``, and ends with ``<!-- options:end -->``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from spark_kafka_sink.common import markdown
from spark_kafka_sink.common.config.old_names import OLD_NAMES
from spark_kafka_sink.common.config.option import Option, OptionKind, Status
from spark_kafka_sink.common.config.table import PRODUCER_OPTIONS
from spark_kafka_sink.common.markdown import table
from spark_kafka_sink.common.metrics import metric_rows
from spark_kafka_sink.exactly_once.errors import ADVICE, Progress
from spark_kafka_sink.exactly_once.values import Repeat
from spark_kafka_sink.schemas.registry.registry_options import REGISTRY_OPTIONS
from spark_kafka_sink.spark.error_page import broker_code_rows, error_class_rows
from spark_kafka_sink.spark.options import SINK_OPTIONS
from spark_kafka_sink.spark.receipts.exporter import EXPORTER_METRICS, METRICS

_COMMON: Final = (
    "topic", "timestampColumn", "deliveryGuarantee", "transactionalIdPrefix", "txnAppId", "txnVersion", "neverRepeated",
    "topicCreation", "valueFormat", "receiptsTopic", "receiptsPath", "deadLetterTopic", "saslTokenProvider",
    "unknownOptions",
)  # fmt: skip
"""The sink's options that README shows."""

_REFUSED_AND_IGNORED = {
    Status.NO_EFFECT: "Checked, then ignored.",
    Status.JVM_ONLY: "Java classes and their settings. The error names the alternative.",
    Status.NOT_YET: "No released broker supports them.",
}


def filled(page: str) -> str:
    """``page`` with every block replaced by its table."""
    return markdown.filled(page, _TABLES)


def sink_options() -> str:
    """The sink's own options."""
    return _option_table(SINK_OPTIONS)


def common_options() -> str:
    """The sink's options that most jobs look up first: what each does, and its default."""
    by_name = {option.name: option for option in SINK_OPTIONS}
    rows = ((f"`{name}`", by_name[name].doc, _default(by_name[name])) for name in _COMMON)
    return table(("option", "what it does", "default"), rows)


def registry_options() -> str:
    """The options of a schema registry."""
    return _option_table(REGISTRY_OPTIONS)


def producer_options() -> str:
    """Kafka's producer options, a section per ``Status``."""
    sections = [_option_table(option for option in PRODUCER_OPTIONS if option.status is Status.SUPPORTED)]
    for status, text in _REFUSED_AND_IGNORED.items():
        rows = ((f"`{option.name}`", _refusal(option)) for option in PRODUCER_OPTIONS if option.status is status)
        title = status.value[0].upper() + status.value[1:]
        sections += [f"### {title}", text, table(("option", "what it is"), rows)]
    return "\n\n".join(sections)


def old_names() -> str:
    """Kafka 0.8's names of producer options."""
    return table(("old name", "option"), ((f"`{old}`", f"`{name}`") for old, name in OLD_NAMES.items()))


def metrics() -> str:
    """The producer's metrics."""
    return table(*metric_rows())


def exported() -> str:
    """The metrics of ``spark-kafka-sink exporter``."""
    rows = [
        (f"`{each.full_name}`", ", ".join(labels), each.doc)
        for metrics, query in ((METRICS, ("query",)), (EXPORTER_METRICS, ()))
        for each in metrics
        for labels in [(*query, *each.labels)]
    ]
    return table(("metric", "labels", "what it is"), rows)


def broker_codes() -> str:
    """The errors of brokers."""
    return table(*broker_code_rows())


def error_classes() -> str:
    """The sink's exceptions."""
    return table(*error_class_rows())


def advice() -> str:
    """What to do about an exactly-once write that failed."""
    placeholders = {
        "commit": "spark-kafka-sink transactions commit --prefix NAME",
        "list": "spark-kafka-sink transactions list --prefix NAME",
        "timeout": "kafka.transaction.timeout.ms",
    }
    rows = [
        (f"{repeat.value}: {progress.value}", ADVICE[repeat, progress].format_map(placeholders))
        for repeat in Repeat
        for progress in Progress
    ]
    return table(("the error says that the write is", "what to do"), rows)


def _option_table(options: Iterable[Option]) -> str:
    head = ("option", "default", "valid values", "what it does")
    rows = ((f"`{option.name}`", _default(option), _valid(option), option.doc) for option in options)
    return table(head, rows)


def _default(option: Option) -> str:
    if option.default in (None, ""):
        return ""
    return f"`{str(option.default).lower() if option.kind is OptionKind.BOOLEAN else option.default}`"


def _valid(option: Option) -> str:
    return option.allowed.removeprefix("one of ").removeprefix("a whole number ").removeprefix("of ")


def _refusal(option: Option) -> str:
    return f"{option.doc} Instead: {option.instead}." if option.instead else option.doc


_TABLES: Final = {
    "common": common_options,
    "sink": sink_options,
    "kafka": producer_options,
    "registry": registry_options,
    "old": old_names,
    "metrics": metrics,
    "exported": exported,
    "codes": broker_codes,
    "errors": error_classes,
    "advice": advice,
}


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        path.write_text(filled(path.read_text()))
