"""examples/README.md lists each example; an example is short, and says to its readers what it shows."""

import json

import pytest

from tests.repository.files import ROOT, source_files

FILES = sorted(
    path
    for path in source_files()
    if path.parts[0] == "examples" and path.parts[1] != "demo" and path.name not in ("README.md", "__init__.py")
)
PAGE = (ROOT / "examples/README.md").read_text()
SCREEN = 75


@pytest.mark.parametrize("path", FILES, ids=str)
def test_the_table_has_each_file(path):
    assert f"({path.relative_to('examples')})" in PAGE


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix != ".ipynb"], ids=str)
def test_an_example_is_a_screen(path):
    assert len((ROOT / path).read_text().splitlines()) <= SCREEN


def test_the_notebook_has_outputs_and_no_error():
    cells = json.loads((ROOT / "examples/notebook.ipynb").read_text())["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    assert len(outputs) >= 4
    assert [output for output in outputs if output["output_type"] == "error"] == []
