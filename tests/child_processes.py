"""What the processes that tests start have in common."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_TESTS: Final = Path(__file__).parent
PYTHON_PATH: Final = os.pathsep.join((str(_TESTS / "without_hypothesis"), str(_TESTS.parent)))
"""Their PYTHONPATH: this repository, without Hypothesis."""
