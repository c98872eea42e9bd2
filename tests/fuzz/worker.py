"""A process of its own that fuzzes one target, because C code may crash or hang a process.

``python -m tests.fuzz.worker TARGET SEED SECONDS FILE``. FILE has the input that is being read. A line of JSON on
stdout is the end of a round.
"""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import time
import warnings
from base64 import b64encode
from contextlib import redirect_stdout

from tests.fuzz.rounds import attempt, one_round
from tests.fuzz.targets import TARGETS

_EXAMPLES = 200


def main() -> None:
    name, number, seconds, file = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
    until = time.monotonic() + seconds
    target = TARGETS[name]
    logging.disable()  # of each broken response
    warnings.simplefilter("ignore")
    descriptor = os.open(file, os.O_CREAT | os.O_WRONLY, 0o644)

    def note(data: bytes) -> None:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, data, 0)

    known: set[str] = set()
    for each in target.seeds:  # imports what the target needs
        note(each)
        attempt(target, each)
    while time.monotonic() < until:
        with redirect_stdout(io.StringIO()):  # Hypothesis may write, too
            done = one_round(target, number, _EXAMPLES, known, note)
        line = {"seed": number, "runs": done.runs}
        if done.crash is not None:
            known.add(done.crash.place)
            data = b64encode(done.crash.data).decode()
            line |= {"data": data, "place": done.crash.place, "text": done.crash.text}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
        number += 1


if __name__ == "__main__":
    main()
