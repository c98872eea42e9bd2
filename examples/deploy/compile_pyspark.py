"""Adds bytecode to the zips from which Spark's Python processes import PySpark. Without it, each compiles PySpark anew.

    $PYSPARK_PYTHON compile_pyspark.py [SPARK_HOME]

SPARK_HOME is that of the environment by default, or else the installed PySpark. Run it while no Spark runs from there,
with a Python of the workers' minor version, because any other ignores the bytecode and compiles as before.
The sources stay in the zips, for tracebacks. The zips as they were are kept beside them with the suffix .orig.
"""

import marshal
import os
import shutil
import subprocess
import sys
from importlib.util import MAGIC_NUMBER, find_spec, source_hash
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

UNCHECKED_HASH = (0b01).to_bytes(4, "little")
"""PEP 552: the bytecode is valid whatever the time and the hash of its source are."""


def main(arguments: list[str]) -> None:
    installed = find_spec("pyspark")
    folders = [*arguments, os.environ.get("SPARK_HOME"), *(installed.submodule_search_locations if installed else [])]
    home = Path(next(filter(None, folders), ""))
    zips = [*home.glob("python/lib/pyspark.zip"), *home.glob("python/lib/py4j-*-src.zip")]
    if len(zips) != 2:
        sys.exit(f"{home} is not a SPARK_HOME: its python/lib lacks pyspark.zip or py4j-*-src.zip.")
    before = import_cpu_s(zips)
    try:
        for each in zips:
            add_bytecode(each)
    except OSError as error:
        sys.exit(f"{each} stays as it was, because its folder cannot be written to: {error}")
    print(f"{home}: importing PySpark's worker takes {import_cpu_s(zips):.2f} s of CPU (before: {before:.2f} s).")


def import_cpu_s(zips: list[Path]) -> float:
    start = os.times()
    paths = os.pathsep.join(map(str, zips))
    subprocess.run([sys.executable, "-c", "import pyspark.daemon"], env=os.environ | {"PYTHONPATH": paths}, check=True)
    end = os.times()
    return end.children_user + end.children_system - start.children_user - start.children_system


def add_bytecode(path: Path) -> None:
    """Replaces the zip by one that has a .pyc beside each .py; the tests of PySpark, most of the zip, go without."""
    unfinished = path.with_name(f"{path.name}.new")
    with ZipFile(path) as old, ZipFile(unfinished, "w", ZIP_DEFLATED) as new:
        sources = [each for each in old.infolist() if not each.filename.endswith(".pyc")]
        for source in sources:
            content = old.read(source)
            new.writestr(source, content, ZIP_DEFLATED)
            if source.filename.endswith(".py") and "/tests/" not in source.filename:
                code = marshal.dumps(compile(content, f"{path}/{source.filename}", "exec", dont_inherit=True))
                new.writestr(f"{source.filename}c", MAGIC_NUMBER + UNCHECKED_HASH + source_hash(content) + code)
        is_original = len(sources) == len(old.namelist())
    if is_original:
        shutil.copy2(path, f"{path}.orig")
    shutil.copymode(path, unfinished)
    unfinished.replace(path)


if __name__ == "__main__":
    main(sys.argv[1:])
