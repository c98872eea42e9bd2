"""The layers of docs/ARCHITECTURE.md are the layers that ``lint-imports`` checks."""

import re
import tomllib

from tests.repository.architecture import quoted, table
from tests.repository.files import ROOT


def test_the_page_has_the_layers_of_the_import_rules():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    page = [
        {package.removesuffix("/").removesuffix(".py") for package in quoted(row[0])}
        for row in table("## Packages and layers")
    ]
    assert page == [set(re.split(r" [|:] ", layer)) for layer in layers]
