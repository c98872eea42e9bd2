"""Python that the pages show compiles, and what needs no Spark runs."""

import pytest

from spark_kafka_sink import KafkaProducer
from tests.repository.files import ROOT
from tests.repository.python_blocks import PythonBlock, python_blocks

BLOCKS = list(python_blocks())


def test_every_block_is_found():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    assert len(BLOCKS) == sum(page.read_text().count("```python\n") for page in pages)
    assert {block.how for block in BLOCKS if not block.how.startswith("no, ")} == {"", "spark", "pytest", "registry"}


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.where)
def test_a_block_compiles(block: PythonBlock):
    text = block.text if not block.text.startswith(".") else f"(write\n{block.text})"
    compile(text, block.where, "exec")


@pytest.mark.parametrize("block", [each for each in BLOCKS if not each.how], ids=lambda block: block.where)
def test_a_block_that_needs_no_spark_runs(block: PythonBlock, kafka_test_broker):
    kafka_test_broker.create_topic("orders", partitions=2)
    kafka_test_broker.create_topic("flights", partitions=2)
    with KafkaProducer({"bootstrap.servers": kafka_test_broker.bootstrap_servers}) as producer:
        producer.send_columns("flights", value=["AA 1"]).wait(10_000)
        text = block.text.replace("localhost:9092", kafka_test_broker.bootstrap_servers)
        exec(compile(text, block.where, "exec"), {"producer": producer})
