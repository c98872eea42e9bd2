"""What ``dir``, ``help`` and tab completion show of the public modules."""

from __future__ import annotations

import pydoc
import rlcompleter

import pytest

import spark_kafka_sink
import spark_kafka_sink.spark
import spark_kafka_sink.testing

MODULES = (spark_kafka_sink, spark_kafka_sink.spark, spark_kafka_sink.testing)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_dir_has_the_public_names_and_nothing_else(module):
    assert {*dir(module)} - {"__version__"} == {*module.__all__}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_tab_completion_offers_the_public_names_and_nothing_else(module):
    completer = rlcompleter.Completer({"module": module})
    offered = {name.removeprefix("module.").rstrip("()") for name in completer.attr_matches("module.")}
    assert offered == {*module.__all__}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_help_describes_each_public_name(module):
    text = pydoc.plain(pydoc.render_doc(module))
    assert [name for name in module.__all__ if name not in text] == []
    shown = [line.split()[1].split("(")[0] for line in text.splitlines() if line.startswith("    class ")]
    assert [name for name in shown if name not in module.__all__] == []
