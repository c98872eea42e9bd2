"""``python -m tests.soak``: workloads on three brokers, faults for as long as is said, and a verdict on what every
actor did and saw."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from random import SystemRandom

from spark_kafka_sink.testing.java import java_environment
from spark_kafka_sink.testing.local_kafka import DEFAULT_VERSION
from tests.soak.plan import rounds, troubles_for
from tests.soak.soak import Judgement, Settings, Soak, judged
from tests.soak.workloads import WORKLOADS

_SHOWN = 50
_VERSIONS = ("3.9.1", "4.1.1", DEFAULT_VERSION)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20, help="begin no round after that (default: %(default)g)")
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(1_000_000), help="of an earlier run")
    parser.add_argument("--upgrade", action="store_true", help=f"brokers go from Kafka {' to '.join(_VERSIONS)}")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=[*WORKLOADS], help="only these")
    parser.add_argument("--check", type=Path, metavar="FOLDER", help="only judge the history that a run has left there")
    arguments = parser.parse_args()
    if arguments.check is not None:
        raise SystemExit(_tell(judged(arguments.check)))
    os.environ.update({**java_environment(), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"})
    workloads = [WORKLOADS[name] for name in arguments.workloads]
    chosen = troubles_for([workload.has for workload in workloads], upgrades=arguments.upgrade)
    settings = Settings(workloads, _VERSIONS if arguments.upgrade else (DEFAULT_VERSION,))
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    _say(f"seed {arguments.seed}, logs and history in {folder}")
    try:
        with Soak(folder, _say, settings) as soak:
            soak.run(rounds(arguments.seed, arguments.minutes, chosen))
    except KeyboardInterrupt:
        _say("interrupted, without a verdict")
        raise SystemExit(130) from None
    except AssertionError as error:
        _say(f"FAILED before the first round: {error}")
        raise SystemExit(1) from None
    _say("what workloads failed with, and were started again:")
    for text, count in soak.failures().most_common():
        _say(f"{count:5} {text}")
    failed = _tell(judged(soak.history))
    _say(f"seed {arguments.seed}; --check {soak.history} judges the history again")
    raise SystemExit(failed)


def _tell(judgement: Judgement) -> bool:
    """The verdict, and how often the checker has looked away; whether the history breaks a promise, or proves
    nothing."""
    findings = judgement.said.findings
    for line in judgement.counts:
        _say(line)
    for finding in findings[:_SHOWN]:
        _say(f"FOUND {finding}")
    _say("exceptions that the documentation makes, and for which the checker kept silent:")
    for line in judgement.said.excused() or ["     0"]:
        _say(line)
    if findings:
        _say(f"{len(findings)} findings")
    if judgement.lacks:
        _say(f"NO VERDICT: {judgement.lacks}")
    if judgement.holds:
        _say("no finding: the history keeps every promise")
    return not judgement.holds


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
