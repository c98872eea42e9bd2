"""Ctrl-C by real signals, at random moments of calls whose program catches it and goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from spark_kafka_sink.testing import TestBroker
from tests.faults.support.interrupted_program import TOPIC

ROOT = Path(__file__).parents[2]
PRODUCERS = 40
DEADLINE_S = 600


@pytest.mark.skipif(
    sys.version_info[:2] == (3, 14),
    reason="CPython 3.14 leaves a lock locked if an interrupt strikes as a with block begins (gh-148874)",
)
def test_forty_producers_go_on_after_ctrl_c_and_keep_the_rows_of_every_other_call() -> None:
    with TestBroker() as broker:
        broker.create_topic(TOPIC, partitions=2)
        program = ["-m", "tests.faults.support.interrupted_program", broker.bootstrap_servers, str(PRODUCERS), "1"]
        ran = subprocess.run(
            [sys.executable, *program], cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )
        assert ran.returncode == 0, ran.stderr
        log = Counter(int((record.value or b"").split()[0]) for record in broker.topic(TOPIC).records())
    told = json.loads(ran.stdout)
    assert told["interrupts"] > PRODUCERS, "hardly a call was interrupted"
    assert not set(told["returned"]) - log.keys(), "lost"
    assert not [row for row, times in log.items() if times > 1], "twice"
    assert log.keys() <= {*told["returned"], *told["interrupted"]}
