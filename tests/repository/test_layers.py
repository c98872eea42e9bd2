"""The layers of docs/ARCHITECTURE.md are the layers that ``lint-imports`` checks."""

import re
import tomllib
from pathlib import Path

from tests.repository.architecture import quoted, table
from tests.repository.files import PACKAGE, ROOT


def layers_of_the_import_rules() -> tuple[list[set[str]], list[set[str]]]:
    """The package's layers from the top, then those inside its packages with the package in front."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    outer: list[set[str]] = []
    inner: list[set[str]] = []
    for contract in (each for each in contracts if each["type"] == "layers"):
        (container,) = contract["containers"]
        folder = Path(*container.split(".")[1:])
        for layer in contract["layers"]:
            names = {str(folder / name) for name in re.split(r" [|:] ", layer)}
            if folder == Path():
                outer.append(names)
            elif packages := {name for name in names if (PACKAGE / name).is_dir()}:
                inner.append(packages)
    return outer, inner


def test_the_page_has_the_layers_of_the_import_rules():
    rows = [
        {package.removesuffix("/").removesuffix(".py") for package in quoted(row[0])}
        for row in table("## Packages and layers")
    ]
    outer, inner = layers_of_the_import_rules()
    assert rows == outer + inner
