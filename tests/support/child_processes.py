"""What the processes that tests start have in common."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent
PYTHON_PATH: Final = os.pathsep.join((str(_HERE / "without_hypothesis"), str(_HERE.parents[1])))
"""Their PYTHONPATH: this repository, without Hypothesis."""
