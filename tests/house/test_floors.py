"""The floors of docs/ARCHITECTURE.md are the layers that ``lint-imports`` checks."""

import re
import tomllib

from tests.house.architecture import quoted, table
from tests.house.repository import ROOT


def test_the_floors_are_the_layers():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    page = [
        {room.removesuffix("/").removesuffix(".py") for room in quoted(row[0])} for row in table("## Rooms and floors")
    ]
    assert page == [set(re.split(r" [|:] ", layer)) for layer in layers]
