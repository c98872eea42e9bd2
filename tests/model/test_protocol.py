"""The protocol at small bounds: every history that can happen keeps every promise."""

from functools import cache

import pytest

from tests.model.bounds import LARGE, SMALL
from tests.model.engine import Answer, explore
from tests.model.protocol import RULES, question
from tests.model.scenario import Scenario

MOST = 200_000  # states: a few seconds
# What the protocol prevents, so that it happens in test_safeguards alone.
PREVENTED = {"rows arrive late"}


@cache
def answer_to(name: str) -> Answer:
    return explore(question(SMALL[name]), MOST)


@pytest.mark.parametrize("name", SMALL)
def test_no_history_breaks_a_promise(name):
    answer = answer_to(name)
    assert answer.verdict is None, answer


@pytest.mark.parametrize("name", SMALL)
def test_some_history_comes_to_spark_s_commit(name):
    assert answer_to(name).fired["Spark commits the batch"]


@pytest.mark.parametrize("rule", [rule.name for rule in RULES])
def test_each_rule_takes_part_in_some_history(rule):
    assert any(answer_to(name).fired[rule] for name in SMALL) is (rule not in PREVENTED)


def test_small_and_large_explorations_have_names_of_their_own():
    assert not SMALL.keys() & LARGE.keys()


def test_an_unknown_safeguard_is_refused():
    with pytest.raises(ValueError, match="no such safeguard: fences"):
        Scenario(without=frozenset({"fences"}))
