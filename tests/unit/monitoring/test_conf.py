"""The dashboard and the alert rules in conf/ ask for metrics that the exporter serves, by labels that they have."""

import json
import re
from pathlib import Path

import pytest
import yaml

from spark_kafka_sink.tools.exporter import EXPORTER_METRICS, METRICS, PREFIX, QUERY_LABELS

ROOT = Path(__file__).parents[3]
DASHBOARD = json.loads((ROOT / "conf/grafana-dashboard.json").read_text())
RULES = yaml.safe_load((ROOT / "conf/prometheus-alerts.yml").read_text())["groups"][0]["rules"]

DEAD_LETTERS = f"{PREFIX}dead_letters_total"
LABELS = {metric.full_name: {*QUERY_LABELS, *metric.labels} for metric in METRICS} | {
    metric.full_name: set() for metric in EXPORTER_METRICS
}
DASHBOARD_QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
QUERIES = [*DASHBOARD_QUERIES, *(rule["expr"] for rule in RULES)]


def names(text):
    return set(re.findall(rf"{PREFIX}\w+", text))


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_names_metrics_of_the_exporter_and_their_labels(query):
    used = names(query)
    assert used
    assert used - LABELS.keys() == set()
    grouped = {label for group in re.findall(r"by \(([^)]*)\)", query) for label in group.split(", ")}
    selected = {label for group in re.findall(r"\{([^}]*)\}", query) for label in re.findall(r"(\w+)=", group)}
    for name in used:
        assert (grouped | selected) - LABELS[name] == set()


@pytest.mark.parametrize("query", QUERIES)
def test_counters_are_read_by_their_growth_and_gauges_by_their_value(query):
    growing = set(re.findall(rf"(?:rate|increase)\(({PREFIX}\w+)", query))
    assert growing | {DEAD_LETTERS} >= {name for name in names(query) if name.endswith("_total")}
    assert all(name.endswith("_total") for name in growing)
    assert query.count("(") == query.count(")")


@pytest.mark.parametrize("query", [query for query in QUERIES if DEAD_LETTERS in query])
def test_the_first_dead_letters_of_a_query_are_seen(query):
    """They begin a series: to rate() and increase() they are no growth."""
    assert re.search(rf"(?<!rate\()(?<!increase\(){DEAD_LETTERS}", query)


def test_an_exporter_that_does_not_run_is_an_alert():
    (rule,) = [rule for rule in RULES if rule["alert"] == "ExporterIsBehind"]
    assert "absent_over_time" in rule["expr"]


def test_the_dashboard_shows_every_metric():
    assert LABELS.keys() - names(" ".join(DASHBOARD_QUERIES)) == set()


def test_every_alert_is_explained():
    table = re.findall(r"^\| `([A-Z]\w+)` \| .* \| .* \|$", (ROOT / "docs/operations.md").read_text(), re.MULTILINE)
    assert {rule["alert"] for rule in RULES} - {*table} == set()
    assert all(rule["annotations"]["summary"] and rule["labels"]["severity"] for rule in RULES)


def test_incident_a_query_whose_source_is_idle_was_a_critical_alert():
    """Receipts tell it from a query that hangs no more than from one that has ended."""
    (rule,) = [rule for rule in RULES if rule["alert"] == "QueryHasStoppedWriting"]
    assert rule["labels"]["severity"] == "info"
    assert "no new rows" in rule["annotations"]["summary"]
