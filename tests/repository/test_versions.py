"""docs/versions.md names the versions that its commands run."""

import re
import subprocess
import tomllib

import pytest

from spark_kafka_sink.testing.broker.apis.table import RELEASES
from tests.repository.files import ROOT

PAGE = (ROOT / "docs/versions.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()


def row_of(command: str) -> str:
    (row,) = (line for line in PAGE.splitlines() if line.endswith(f"| `{command}` |"))
    return row


def variable(name: str) -> list[str]:
    return re.search(rf"^{name} := (.*)$", MAKEFILE, re.MULTILINE)[1].split()


@pytest.mark.parametrize("spark", variable("SPARK"))
def test_the_page_has_each_spark_that_make_test_spark_runs(spark):
    locked = re.search(r"^pyspark==(\S+)", (ROOT / f"requirements/spark-{spark}.txt").read_text(), re.MULTILINE)[1]
    assert row_of(f"make test-spark SPARK={spark}").startswith(f"| {locked} |")


def test_the_page_has_the_brokers_that_make_test_brokers_runs():
    assert row_of("make test-brokers").startswith(f"| {', '.join(variable('KAFKA'))} |")


def test_the_oldest_supported_broker_is_the_oldest_that_testbroker_imitates():
    oldest = next(iter(RELEASES))
    assert f"| before {oldest} | not supported |" in PAGE
    readme = (ROOT / "README.md").read_text()
    assert f"The oldest supported versions are Python 3.11, Kafka {oldest} and Spark 3.5." in readme


def test_incident_make_help_did_not_list_a_target_with_digits():
    described = set(re.findall(r"^([\w.-]+):.*## ", MAKEFILE, re.MULTILINE))
    shown = subprocess.run(["make", "help"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert "test-spark-3.5" in described
    assert described == {line.split()[1] for line in shown.splitlines() if line.startswith("  make ")}


CLASSIFIERS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]


def test_the_classifiers_have_the_pythons_of_the_page():
    table = PAGE.split("| Spark | Python |", 1)[1].split("\n\n", 1)[0]
    pythons = {python for line in table.splitlines() for python in re.findall(r"\b3\.1\d\b", line.split("|")[2])}
    assert {"3.11", "3.14"} <= pythons
    prefix = "Programming Language :: Python :: "
    assert {name.removeprefix(prefix) for name in CLASSIFIERS if name.startswith(prefix)} == {*pythons, "3 :: Only"}
