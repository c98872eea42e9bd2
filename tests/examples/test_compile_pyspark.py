"""Python processes import from the zips that the script has changed as before, but from bytecode."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pyspark
import pytest

from tests.examples.conftest import EXAMPLES

pytestmark = pytest.mark.timeout(900)

SCRIPT = EXAMPLES / "deploy/compile_pyspark.py"
BROKEN = "def fail():\n    raise KeyError  # this line\n"
SOURCES = {
    "pyspark/__init__.py": "",
    "pyspark/daemon.py": BROKEN,
    "pyspark/tests/test_all.py": "",
    "pyspark/errors/error-conditions.json": "{}",
}


def make_home(home: Path) -> Path:
    lib = home / "python/lib"
    lib.mkdir(parents=True)
    for name, sources in {"pyspark.zip": SOURCES, "py4j-0.10-src.zip": {"py4j/__init__.py": ""}}.items():
        with ZipFile(lib / name, "w") as archive:
            for path, source in sources.items():
                archive.writestr(path, source)
    return lib


def run(*command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"} | variables
    return subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, timeout=800, check=False
    )


def names(path: Path) -> list[str]:
    with ZipFile(path) as archive:
        return archive.namelist()


def test_the_modules_come_from_bytecode_and_tracebacks_show_their_sources(tmp_path):
    lib = make_home(tmp_path)
    original = (lib / "pyspark.zip").read_bytes()
    assert "py4j-0.10-src.zip: each import of PySpark takes " in run(SCRIPT, SPARK_HOME=str(tmp_path)).stdout
    added = ["pyspark/__init__.pyc", "pyspark/daemon.pyc"]
    assert sorted(names(lib / "pyspark.zip")) == sorted([*SOURCES, *added])
    assert (lib / "pyspark.zip.orig").read_bytes() == original

    program = "import traceback, pyspark.daemon as daemon\nprint(daemon.__file__)\n"
    program += "try: daemon.fail()\nexcept KeyError: print(traceback.format_exc())"
    printed = run("-c", program, PYTHONPATH=str(lib / "pyspark.zip")).stdout
    assert printed.startswith(f"{lib}/pyspark.zip/pyspark/daemon.pyc\n")
    assert f'"{lib}/pyspark.zip/pyspark/daemon.py", line 2' in printed
    assert "raise KeyError  # this line" in printed


def test_a_second_run_changes_nothing_and_another_python_replaces_the_bytecode(tmp_path):
    lib = make_home(tmp_path)
    original = (lib / "pyspark.zip").read_bytes()
    run(SCRIPT, tmp_path)
    compiled = (lib / "pyspark.zip").read_bytes()
    assert "has the bytecode of this Python already" in run(SCRIPT, tmp_path).stdout
    assert (lib / "pyspark.zip").read_bytes() == compiled
    with ZipFile(lib / "pyspark.zip", "w") as archive:
        archive.writestr("pyspark/daemon.py", BROKEN)
        archive.writestr("pyspark/__init__.py", "")
        archive.writestr("pyspark/__init__.pyc", b"bytecode of another Python")
    imported = run("-c", "import pyspark; print(pyspark.__file__)", PYTHONPATH=str(lib / "pyspark.zip"))
    assert imported.stdout == f"{lib}/pyspark.zip/pyspark/__init__.py\n"
    assert "pyspark.zip: each import" in run(SCRIPT, tmp_path).stdout
    assert "pyspark/daemon.pyc" in names(lib / "pyspark.zip")
    assert (lib / "pyspark.zip.orig").read_bytes() == original


def test_what_it_cannot_change_is_one_sentence(tmp_path):
    assert run(SCRIPT, tmp_path).stderr == (
        f"{tmp_path} is not a SPARK_HOME: its python/lib lacks pyspark.zip or py4j-*-src.zip.\n"
    )
    lib = make_home(tmp_path)
    (lib / "pyspark.zip.new").mkdir()  # root may write to any folder
    refused = run(SCRIPT, tmp_path)
    assert refused.stderr.startswith(f"The zips in {lib} stay without bytecode, because they cannot be replaced: ")
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1


JOB = """
import pyspark
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
def files(_):
    import py4j.protocol, pyspark.worker
    return [pyspark.worker.__file__, py4j.protocol.__file__]
print(*spark.sparkContext.parallelize([0], 1).flatMap(files).collect(), sep="\\n")
"""


@pytest.mark.jvm
def test_sparks_workers_import_bytecode(tmp_path):
    """In a copy of the installed PySpark that shares all but the zips."""
    installed, home = Path(pyspark.__file__).parent, tmp_path / "home"
    lib = home / "python/lib"
    lib.mkdir(parents=True)
    for each in installed.iterdir():
        if each.name != "python":
            (home / each.name).symlink_to(each)
    for each in (installed / "python/lib").glob("*.zip"):
        with ZipFile(each) as old, ZipFile(lib / each.name, "w") as new:
            for name in old.namelist():
                if not name.endswith(".pyc"):
                    new.writestr(name, old.read(name))
    assert "each import of PySpark takes" in run(SCRIPT, home).stdout
    done = run("-c", JOB, SPARK_HOME=str(home), PYSPARK_PYTHON=sys.executable)
    (py4j,) = lib.glob("py4j-*-src.zip")
    files = [f"{lib}/pyspark.zip/pyspark/worker.pyc", f"{py4j}/py4j/protocol.pyc"]
    assert done.stdout.split() == files, done.stderr
