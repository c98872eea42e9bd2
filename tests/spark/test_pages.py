"""What README and docs show to copy runs on a real Spark and writes what the page says."""

import inspect
import itertools
import json
import re

import pytest

from spark_kafka_sink.testing import Listener, LocalKafka
from tests.house.python_blocks import PythonBlock, python_blocks
from tests.spark.topics import Topic

# test_readme.py has the two that write numbers.
BLOCKS = [block for block in python_blocks() if block.how == "spark" and '"numbers"' not in block.text]
SHOWN_SERVERS = r"(?:localhost|broker):9092"
SHOWN_TOPICS = r'"(orders(?:-\w+)?|customers|events|lines)"'
QUERY_S = 60
ROWS = {"orders-copy": 5, "orders-events": 20, "customers": 20, "lines": 3}

_numbers = itertools.count(1)


def run_my_job(spark, kafka: dict[str, str] | str, topic: str) -> None:
    options = {"kafka.bootstrap.servers": kafka} if isinstance(kafka, str) else kafka
    spark.range(3).selectExpr("cast(id AS STRING) AS value").write.format("pykafka").options(**options).option(
        "topic", topic
    ).mode("append").save()


class Page:
    """Runs blocks on a Kafka and topics of their own; ``topics``: those that the last block names, as the page does."""

    def __init__(self, spark, servers: str, folder, request) -> None:
        self._spark, self._servers, self._folder, self._request = spark, servers, folder, request
        self.topics: dict[str, Topic] = {}

    def run(self, block: PythonBlock) -> None:
        number = next(_numbers)
        for shown in re.findall(SHOWN_TOPICS, block.text):
            self.topics[shown] = Topic(self._servers, f"page-{number}-{shown}")
        text = re.sub(SHOWN_TOPICS, rf'"page-{number}-\1"', re.sub(SHOWN_SERVERS, self._servers, block.text))
        text = re.sub(r'"(?:s3://bucket/)?checkpoints?(?:/\w+)?"', repr(str(self._folder / "checkpoint")), text)
        text = text.replace('"landing"', repr(str(self._landing())))
        names = self._names(f"page-{number}-orders")
        exec(compile(text, block.where, "exec"), names)
        for each in [value for name, value in names.items() if name.startswith("test_")]:
            each(**{name: self._request.getfixturevalue(name) for name in inspect.signature(each).parameters})
        self._finish(names.get("query"))

    def _names(self, topic: str) -> dict[str, object]:
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
            "spark": spark, "orders": orders, "deleted": orders, "records": records, "Listener": Listener,
            "LocalKafka": LocalKafka, "run_my_job": lambda spark, kafka: run_my_job(spark, kafka, topic),
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
def page(spark, local_kafka, tmp_path, request) -> Page:
    return Page(spark, local_kafka.bootstrap_servers, tmp_path, request)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.where)
def test_a_block_of_a_page_writes_what_it_shows(block, page):
    page.run(block)
    for shown, topic in page.topics.items():
        if "def test_" not in block.text and "LocalKafka(" not in block.text:  # these wrote to a Kafka of their own
            assert topic.count() == ROWS.get(shown, topic.count()) > 0, shown


def test_the_tombstones_have_no_value(page):
    page.run(next(block for block in BLOCKS if '"customers"' in block.text))
    assert {record.value for record in page.topics["customers"].records()} == {None}


def test_the_copy_has_headers_and_times_and_not_the_partitions(page):
    page.run(next(block for block in BLOCKS if '"orders-copy"' in block.text))
    records = page.topics["orders-copy"].records()
    assert {(record.timestamp, record.headers) for record in records} == {(1_700_000_000_000, (("h", b"1"),))}


def test_order_per_key(page):
    page.run(next(block for block in BLOCKS if "sortWithinPartitions" in block.text))
    by_key: dict[bytes, list[int]] = {}
    for record in page.topics["orders"].records():
        by_key.setdefault(record.key, []).append(json.loads(record.value)["ordered_at"])
    assert len(by_key) == 4
    assert all(times == sorted(times) for times in by_key.values())
