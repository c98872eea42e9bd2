"""``python -m tests.histories``: workloads on three brokers, faults for as long as is said, and a verdict on what every
actor did and saw."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import SystemRandom

from rich.console import Console
from rich.text import Text

from spark_kafka_sink.testing.java import java_environment
from spark_kafka_sink.testing.local_kafka import DEFAULT_VERSION
from tests.faults.chaos.running import progress, rounds
from tests.faults.chaos.troubles import Trouble
from tests.histories.changes import PINNED, ChangeError, copy_of_sink, libfaketime, older_revision
from tests.histories.checker import checked
from tests.histories.events import read_history
from tests.histories.evidence import lacking
from tests.histories.figures import figures_of
from tests.histories.findings import Checked
from tests.histories.index import History
from tests.histories.soak import Settings, Soak
from tests.histories.tables import column_of, tables
from tests.histories.troubles import TROUBLES, Victim, troubles_for
from tests.histories.workloads import WORKLOADS, python_of

_SHOWN = 50
_VERSIONS = ("3.9.1", "4.1.1", DEFAULT_VERSION)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.histories", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20, help="begin no round after that (default: %(default)g)")
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(1_000_000), help="of an earlier run")
    parser.add_argument("--upgrade", action="store_true", help=f"brokers go from Kafka {' to '.join(_VERSIONS)}")
    parser.add_argument(
        "--older",
        default=older_revision(),
        metavar="REVISION",
        help="commit or tag with the sink that drivers run now and then (default: the last tag, else commit "
        f"{PINNED[:8]})",
    )
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, help="only these")
    parser.add_argument("--troubles", nargs="+", choices=TROUBLES, metavar="NAME", help="only these")
    parser.add_argument("--check", type=Path, metavar="FILE", help="only check the history of an earlier run")
    parser.add_argument(
        "--tables", nargs="+", type=Path, metavar="FILE", help="only print tables of the histories of earlier runs"
    )
    arguments = parser.parse_args()
    console = Console()

    def say(text: str) -> None:
        console.print(Text(text), soft_wrap=True)

    if arguments.check is not None:
        events = read_history([arguments.check])
        say(str(figures_of(events)))
        raise SystemExit(_tell(say, checked(History(events)), lacking(events)))
    if arguments.tables is not None:
        say(tables([column_of(str(file), read_history([file])) for file in arguments.tables]))
        return
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # the schema registry's requests
    os.environ.update({**java_environment(), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"})
    folder = Path(tempfile.mkdtemp(prefix="histories-"))
    say(f"seed {arguments.seed}, logs in {folder}")
    try:
        settings, troubles = _settings(arguments, folder, say)
        soak = Soak(folder, say, settings)
        with progress(console, soak), soak:
            chosen = rounds(arguments.seed, arguments.minutes, troubles=troubles)
            judgement = soak.judge(soak.run(chosen))
    except KeyboardInterrupt:
        say(f"interrupted, without a verdict; the parts of the history are in {folder / 'history'}")
        raise SystemExit(130) from None
    except AssertionError as error:
        say(f"FAILED before the first round: {error}\nlogs in {folder}")
        raise SystemExit(1) from None
    say(f"seed {arguments.seed}: {soak.rounds} rounds\n{judgement.figures}")
    say("what workloads failed with, and were started again:")
    for text, count in judgement.failures.most_common():
        say(f"{count:5} {text}")
    _tell(say, judgement.said, judgement.lacks)
    say(f"history: {judgement.file}")
    raise SystemExit(not judgement.holds)


def _settings(
    arguments: argparse.Namespace, folder: Path, say: Callable[[str], None]
) -> tuple[Settings, dict[str, Trouble[Victim]]]:
    """What runs, and what may go wrong. Raises ``ChangeError`` for something that is not to be had."""
    named = arguments.workloads or list(WORKLOADS)
    lacking = [name for name in named if python_of(WORKLOADS[name]) is None]
    for name in lacking:
        say(f"without the workload {name}: make .cache/spark-{WORKLOADS[name].spark}/.ready makes its environment")
    workloads = tuple(WORKLOADS[name] for name in named if name not in lacking)
    older = None if arguments.older is None else copy_of_sink(arguments.older, folder / "older-sink")
    if older is None and "older sink" in (arguments.troubles or TROUBLES):
        say(
            f"without the fault older sink: this clone has neither a tag before this commit nor commit {PINNED[:8]}; "
            "--older REVISION names a sink to run"
        )
    troubles = troubles_for(workloads, upgrades=arguments.upgrade, older_sink=older is not None)
    if arguments.troubles:
        if impossible := [name for name in arguments.troubles if name not in troubles]:
            raise ChangeError(f"This run cannot do what --troubles names: {', '.join(impossible)}.")
        troubles = {name: troubles[name] for name in arguments.troubles}
    if "clocks are off" in troubles:
        libfaketime()
    versions = _VERSIONS if arguments.upgrade else (DEFAULT_VERSION,)
    return Settings(workloads, versions, older), troubles


def _tell(say: Callable[[str], None], said: Checked, lack: str) -> bool:
    """The verdict, and how often the checker has looked away; whether the history breaks a promise, or proves
    nothing."""
    for finding in said.findings[:_SHOWN]:
        say(f"FOUND {finding}")
    say("exceptions that the documentation makes, and for which the checker kept silent:")
    for line in said.excused() or ["     0"]:
        say(line)
    if said.findings:
        say(f"{len(said.findings)} findings")
    if lack:
        say(f"NO VERDICT: {lack}")
    if not said.findings and not lack:
        say("no finding: the history keeps every promise")
    return bool(said.findings or lack)


if __name__ == "__main__":
    main()
