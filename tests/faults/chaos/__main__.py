"""``python -m tests.faults.chaos``: trouble for a query on three real brokers, for as long as is said."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from random import SystemRandom

from rich.console import Console
from rich.text import Text

from spark_kafka_sink.testing.java import java_environment
from tests.faults.chaos.plan import one_of_each
from tests.faults.chaos.run import Chaos
from tests.faults.chaos.running import progress, rounds


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30, help="begin no round after that (default: %(default)g)")
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(1_000_000), help="of an earlier run")
    parser.add_argument("--first", type=int, default=1, metavar="ROUND", help="begin with this round of the seed")
    parser.add_argument("--each", action="store_true", help="every trouble once, however long it takes")
    arguments = parser.parse_args()
    os.environ.update({**java_environment(), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"})
    console = Console()
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    console.print(f"seed {arguments.seed}, logs in {folder}")
    seed = arguments.seed
    chosen = one_of_each(seed) if arguments.each else rounds(seed, arguments.minutes, arguments.first)

    def say(text: str) -> None:
        console.print(Text(text), soft_wrap=True)

    chaos = Chaos(folder, say)
    try:
        with chaos:
            with progress(console, chaos):
                chaos.run(chosen)
            say(chaos.report())
    except (AssertionError, KeyboardInterrupt) as error:
        say(f"{chaos.report()}\nFAILED: {error}\nseed {arguments.seed}, round {chaos.rounds}, logs in {folder}")
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
