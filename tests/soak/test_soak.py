"""The short form of ``python -m tests.soak``, and that it finds what is planted into the product."""

from __future__ import annotations

import logging
import sys
from unittest.mock import Mock

import pytest

from tests.soak.brokers import SoakKafka
from tests.soak.events import read_history
from tests.soak.findings import Kind
from tests.soak.plan import rounds, troubles_for
from tests.soak.soak import Settings, Soak, judged
from tests.soak.workloads import WORKLOADS

SEED = 1
MINUTES = 2
# By workload: the fault that is in the product, and what the checker must find it as.
PLANTED = {
    "control": ("lost", Kind.LOST),
    "transfers": ("doubled", Kind.DOUBLED),
    "letters": ("reordered", Kind.OUT_OF_ORDER),
    "nightly": ("told wrongly", Kind.FAILED_BUT_VISIBLE),
}

_log = logging.getLogger(__name__)


@pytest.fixture
def judgement(tmp_path, monkeypatch):
    """Runs a soak of two minutes; the verdict on its history."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")

    def run(settings):
        chosen = troubles_for([workload.has for workload in settings.workloads], upgrades=False)
        with Soak(tmp_path, _log.info, settings) as soak:
            soak.run(rounds(SEED, MINUTES, chosen))
        judgement = judged(soak.history)
        _log.info("\n".join(judgement.counts))
        return judgement

    return run


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_history_of_two_minutes_keeps_every_promise(judgement):
    told = judgement(Settings())
    assert told.holds, "\n".join([told.lacks, *map(str, told.said.findings)])


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_minutes_are_enough_to_find_a_fault_of_each_class_in_the_product(judgement):
    workloads = [WORKLOADS[name] for name in PLANTED]
    told = judgement(Settings(workloads, planted={name: fault for name, (fault, _) in PLANTED.items()}))
    found = {(finding.kind, finding.about.split("/")[0].split()[-1]) for finding in told.said.findings}
    assert {(kind, name) for name, (_, kind) in PLANTED.items()} <= found


def test_a_history_ends_with_what_the_run_failed_with(tmp_path):
    """A workload stalls, a transaction stays open, and one of two errors is one that brokers cannot cause."""
    soak = Soak(tmp_path, _log.info)
    failures = ["StreamingQueryException: … KeyError: 7 …", "StreamingQueryException: … PlanningError: no broker …"]
    drivers = Mock(
        folder=tmp_path, **{"finish.side_effect": AssertionError("stalls"), "failures.return_value": failures}
    )
    soak.victims = {"letters": Mock(drivers=drivers, **{"workload.is_query": False})}
    soak._kafka = Mock()
    soak._source = Mock(**{"await_nothing_open.side_effect": AssertionError("transactions stay open")})
    soak.run([])
    (event,) = read_history(soak.history)
    assert event["trouble"] == f"stalls\ntransactions stay open\nletters: {failures[0]}"
    assert not judged(soak.history).holds


@pytest.mark.jvm
@pytest.mark.slow
def test_brokers_are_upgraded_one_after_the_other():
    with SoakKafka(["3.9.1", "4.1.1"]) as kafka:
        assert not kafka.knows_transaction_versions
        done = [kafka.upgrade() for _ in range(5)]
        assert done[3:] == ["the features of 4.1.1", ""]
        kafka.set_transaction_version(2)
