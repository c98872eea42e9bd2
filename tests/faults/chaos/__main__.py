"""``python -m tests.faults.chaos``: trouble for a query on three real brokers, for as long as is said."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import SystemRandom

from rich.console import Console
from rich.live import Live
from rich.text import Text

from spark_kafka_sink.testing.java import java_environment
from spark_kafka_sink.tools.demo.report import repeated
from tests.faults.chaos.plan import Round, one_of_each, random_round
from tests.faults.chaos.run import Chaos

_LINE_EVERY_S = 15.0


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
    rounds = iter(one_of_each(arguments.seed)) if arguments.each else _rounds(arguments)

    def say(text: str) -> None:
        console.print(Text(text), soft_wrap=True)

    chaos = Chaos(folder, say)
    try:
        with chaos:
            with _progress(console, chaos):
                chaos.run(rounds)
            say(chaos.report())
    except (AssertionError, KeyboardInterrupt) as error:
        say(f"{chaos.report()}\nFAILED: {error}\nseed {arguments.seed}, round {chaos.rounds}, logs in {folder}")
        raise SystemExit(1) from None


def _rounds(arguments: argparse.Namespace) -> Iterator[Round]:
    until = time.monotonic() + 60 * arguments.minutes
    number = arguments.first
    while time.monotonic() < until:
        yield random_round(arguments.seed, number)
        number += 1


@contextmanager
def _progress(console: Console, chaos: Chaos) -> Iterator[None]:
    """A live line on a terminal, else a line every 15 s."""

    def line() -> Text:
        return Text(f"{chaos.elapsed_s / 60:5.1f} min | {chaos.status()}")

    if not console.is_terminal:
        with repeated(lambda: console.print(line(), soft_wrap=True), _LINE_EVERY_S):
            yield
        return
    with Live(console=console, refresh_per_second=4) as shown, repeated(lambda: shown.update(line()), 0.25):
        yield


if __name__ == "__main__":
    main()
