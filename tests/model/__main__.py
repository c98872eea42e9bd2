"""Explore by hand: `python -m tests.model [NAME …] [--without SAFEGUARD …]`, by default every large exploration."""

from __future__ import annotations

import argparse
import dataclasses
import resource
import sys
import time

from tests.model.bounds import LARGE, SMALL
from tests.model.engine import explore
from tests.model.protocol import question
from tests.model.scenario import SAFEGUARDS

EXPLORATIONS = SMALL | LARGE


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(EXPLORATIONS)}")
    parser.add_argument("--without", nargs="+", choices=SAFEGUARDS, default=[], help="take these safeguards out")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - EXPLORATIONS.keys():
        parser.error(f"no exploration is called {', '.join(sorted(unknown))}; see --help")
    broken = 0
    for name in arguments.names or LARGE:
        scenario = dataclasses.replace(EXPLORATIONS[name], without=frozenset(arguments.without))
        began = time.process_time()
        answer = explore(question(scenario))
        sys.stdout.write(f"{name}: {answer} {time.process_time() - began:.0f} s\n")
        sys.stdout.flush()
        broken += answer.verdict is not None
    gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024**3 if sys.platform == "darwin" else 1024**2)
    sys.stdout.write(f"at most {gigabytes:.1f} GiB of memory\n")
    raise SystemExit(bool(broken))


if __name__ == "__main__":
    main()
