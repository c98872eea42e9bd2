"""What README and docs show to copy runs on a real Spark and writes what the page says."""

import itertools
import json
import re

import pytest

from tests.repository.python_blocks import PythonBlock, python_blocks
from tests.spark.topics import Topic

# test_readme.py has the quickstart's, and the program of README.
BLOCKS = [
    block
    for block in python_blocks()
    if block.how == "spark" and not block.where.startswith("quickstart") and "TestBroker" not in block.text
]
SHOWN_SERVERS = r"(?:localhost|broker):9092"
SHOWN_TOPICS = r'"(orders(?:-\w+)?|customers|events|lines)"'
QUERY_S = 60
ROWS = {"orders-copy": 5, "orders-events": 20, "customers": 20, "lines": 3}

_numbers = itertools.count(1)


class Page:
    """Runs blocks on a Kafka and topics of their own; ``topics``: those that the last block names, as the page does."""

    def __init__(self, spark, servers: str, folder) -> None:
        self._spark, self._servers, self._folder = spark, servers, folder
        self.topics: dict[str, Topic] = {}

    def run(self, block: PythonBlock) -> None:
        number = next(_numbers)
        for shown in re.findall(SHOWN_TOPICS, block.text):
            self.topics[shown] = Topic(self._servers, f"page-{number}-{shown}")
        text = re.sub(SHOWN_TOPICS, rf'"page-{number}-\1"', re.sub(SHOWN_SERVERS, self._servers, block.text))
        text = re.sub(r'"(?:s3://bucket/)?checkpoints?(?:/\w+)?"', repr(str(self._folder / "checkpoint")), text)
        text = text.replace('"landing"', repr(str(self._landing())))
        names = self._names()
        exec(compile(text, block.where, "exec"), names)
        self._finish(names.get("query"))

    def _names(self) -> dict[str, object]:
        spark = self._spark
        orders = spark.range(20).selectExpr(
            "concat('c', id % 4) AS customer", "id AS ordered_at", "cast(id AS STRING) AS value"
        )
        records = spark.range(5).selectExpr(
            "cast('k' AS BINARY) AS key", "cast(cast(id AS STRING) AS BINARY) AS value",
            "array(named_struct('key', 'h', 'value', cast('1' AS BINARY))) AS headers",
            "timestamp_millis(1700000000000) AS timestamp", "99 AS partition", "'elsewhere' AS topic",
        )  # fmt: skip
        return {
            "spark": spark, "orders": orders, "deleted": orders, "records": records,
            "stream": spark.readStream.text(str(self._landing())), "df": _Frames(spark, self._landing()),
        }  # fmt: skip

    def _landing(self):
        landing = self._folder / "landing"
        landing.mkdir(exist_ok=True)
        (landing / "one").write_text("a\nb\n")
        (landing / "two").write_text("c\n")
        return landing

    def _finish(self, query) -> None:
        """``query``: one that ends by itself."""
        if query is not None:
            assert query.awaitTermination(QUERY_S)
        for endless in self._spark.streams.active:
            endless.processAllAvailable()
            endless.stop()


class _Frames:
    """``df`` of a page that shows both ways of writing."""

    def __init__(self, spark, landing) -> None:
        self.write = spark.range(3).selectExpr("cast(id AS STRING) AS value").write
        self.writeStream = spark.readStream.text(str(landing)).writeStream


@pytest.fixture
def page(spark, local_kafka, tmp_path) -> Page:
    return Page(spark, local_kafka.bootstrap_servers, tmp_path)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.where)
def test_a_block_of_a_page_writes_what_it_shows(block, page):
    page.run(block)
    for shown, topic in page.topics.items():
        assert topic.count() == ROWS.get(shown, topic.count()) > 0, shown
    for part, check in CHECKS.items():
        if part in block.text:
            check(page)


def the_tombstones_have_no_value(page):
    assert {record.value for record in page.topics["customers"].records()} == {None}


def the_copy_has_headers_and_times_and_not_the_partitions(page):
    records = page.topics["orders-copy"].records()
    assert {(record.timestamp, record.headers) for record in records} == {(1_700_000_000_000, (("h", b"1"),))}


def rows_of_a_key_are_in_order(page):
    by_key: dict[bytes, list[int]] = {}
    for record in page.topics["orders"].records():
        by_key.setdefault(record.key, []).append(json.loads(record.value)["ordered_at"])
    assert len(by_key) == 4
    assert all(times == sorted(times) for times in by_key.values())


# What stands in a block → what is true of its records.
CHECKS = {
    '"customers"': the_tombstones_have_no_value,
    '"orders-copy"': the_copy_has_headers_and_times_and_not_the_partitions,
    "sortWithinPartitions": rows_of_a_key_are_in_order,
}


@pytest.mark.parametrize("part", CHECKS)
def test_each_check_has_its_block(part):
    assert sum(part in block.text for block in BLOCKS) == 1
