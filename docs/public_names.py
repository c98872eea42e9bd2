"""Prints the public names, sorted: Python names, errors, options, commands with their flags, metrics, extras.

``python docs/public_names.py [COMMIT]`` reads the pages and the source of a commit, by default the last one, and
imports nothing, so it reads earlier releases, too.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = "spark_kafka_sink"
COMMIT = (*sys.argv, "HEAD")[1]


def read(path: str) -> str:
    """A file of the commit; "" if there is none of this name."""
    command = ["git", "-C", f"{ROOT}", "show", f"{COMMIT}:{path}"]
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout


def source(module: str) -> str:
    path = module.replace(".", "/")
    return read(f"{path}.py") or read(f"{path}/__init__.py")


def members(module: str, name: str) -> Iterator[str]:
    """The public members of a class of the package, those of its bases included; none for anything else."""
    for node in ast.walk(ast.parse(source(module))):
        if isinstance(node, ast.ImportFrom) and any(each.name == name for each in node.names):
            if node.module and node.module.startswith(PACKAGE):
                yield from members(node.module, name)
        elif isinstance(node, ast.ClassDef) and node.name == name:
            for each in node.body:
                member = getattr(each, "name", getattr(getattr(each, "target", None), "id", "_"))
                if not member.startswith("_"):
                    yield member
            for base in node.bases:
                yield from members(module, ast.unparse(base))


def python_names() -> Iterator[str]:
    """What the public modules export, docs/api.md shows or errors.py defines, and the members of classes."""
    found = re.findall(r"(?m)^(?:::: |<!-- api: )([\w.]+)\.(\w+)", read("docs/api.md"))
    for module in (f"{PACKAGE}.errors", f"{PACKAGE}.exactly_once.errors"):
        found += [(module, name) for name in re.findall(r"(?m)^class ([A-Z]\w+Error)\b", source(module))]
    for module in (PACKAGE, f"{PACKAGE}.spark", f"{PACKAGE}.testing"):
        exported = re.search(r"__all__ = (\[.*?\])", source(module), re.DOTALL)
        found += [(module, name) for name in ast.literal_eval(exported[1])] if exported else []
    for module, name in found:
        if not module.rpartition(".")[2][0].isupper():  # the methods that docs/api.md shows are members
            yield from (f"name {name}", *(f"name {name}.{member}" for member in members(module, name)))


def rows(page: str) -> Iterator[tuple[str, str, list[str]]]:
    """Each row of the page's generated tables, or each name of a row: block, heading, cells."""
    block = heading = ""
    for line in read(f"docs/{page}.md").splitlines():
        if found := re.match(r"<!-- options:(\w+) -->", line):
            block, heading = found[1], ""
        elif line.startswith("#"):
            heading = line.strip("# ").lower()
        elif line.startswith("| `"):
            name, *cells = [cell.strip().strip("`") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            yield from ((block, heading, [each, *cells]) for each in name.split("`, `"))


def names() -> Iterator[str]:
    yield from python_names()
    for block, heading, (name, *cells) in rows("options"):
        if block in ("sink", "kafka", "registry"):
            default = f" (default {cells[0]}; {cells[1] or 'a string'})" if len(cells) > 2 else ""
            yield " ".join(f"option {block} {heading} {name}{default}".split())
    yield from (" ".join(f"command {heading} {flags}".split()) for _, heading, (flags, *_) in rows("command-line"))
    yield from (f"metric {name}" for _, _, (name, *_) in rows("metrics"))
    yield from (f"metric {name}" for _, _, (name, *_) in rows("operations") if name.startswith(f"{PACKAGE}_"))
    yield from (f"extra {name}" for name in tomllib.loads(read("pyproject.toml"))["project"]["optional-dependencies"])


if __name__ == "__main__":
    sys.stdout.writelines(f"{name}\n" for name in sorted(set(names())))
