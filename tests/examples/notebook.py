"""Runs a notebook in a kernel of this environment: ``python -m tests.examples.notebook examples/notebook.ipynb`` writes
its outputs anew. What Spark logs is left out, because it differs from run to run.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from spark_kafka_sink.testing.java import java_environment

_DEADLINE_S = 280


def executed(path: Path, environment: dict[str, str]) -> nbformat.NotebookNode:
    """The notebook with the outputs of a run."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=_DEADLINE_S, record_timing=False)
    client.execute(env=environment)
    notebook.metadata.pop("language_info", None)
    for cell in code_cells(notebook):
        cell.outputs = _without_logs(cell.outputs)
    return notebook


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _without_logs(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Leaves out standard error, and joins the parts into which it has cut standard output."""
    kept: list[nbformat.NotebookNode] = []
    for output in outputs:
        if output.get("name") == "stderr":
            continue
        if kept and output.get("name") == kept[-1].get("name") == "stdout":
            kept[-1].text += output.text
        else:
            kept.append(output)
    return kept


if __name__ == "__main__":
    for name in sys.argv[1:]:
        nbformat.write(executed(Path(name), java_environment() | {"PYSPARK_PYTHON": sys.executable}), name)
