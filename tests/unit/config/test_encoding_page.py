"""The examples of docs/encoding.md: those without Spark run, the others have options that the sink accepts."""

import ast
import re
import warnings

import pytest

from spark_kafka_sink.spark.options import SinkOptions
from tests.repository.python_blocks import python_blocks

BLOCKS = [block.text for block in python_blocks() if block.where.startswith("encoding.md") and block.how == "registry"]
OF_SPARK = [block for block in BLOCKS if "pykafka" in block]
OTHERS = [block for block in BLOCKS if "pykafka" not in block]


def options_of(block):
    calls = [node for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Call)]
    named = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "option"]
    return {ast.literal_eval(call.args[0]).lower(): ast.literal_eval(call.args[1]) for call in named}


@pytest.mark.parametrize("block", OF_SPARK, ids=range(len(OF_SPARK)))
def test_the_options_of_a_write_are_accepted_without_a_warning(block, monkeypatch):
    for name in re.findall(r"\$\{env:(\w+)\}", block):
        monkeypatch.setenv(name, "x")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        formats = SinkOptions.parse(options_of(block)).formats
    assert formats is not None
    assert formats.registry is not None


def test_the_example_without_spark_runs():
    (block,) = OTHERS
    exec(block, {})
