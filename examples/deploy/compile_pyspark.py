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
    package = installed.submodule_search_locations if installed else None
    home = Path(next(filter(None, [*arguments, os.environ.get("SPARK_HOME"), *(package or [])]), ""))
    zips = [*home.glob("python/lib/pyspark.zip"), *home.glob("python/lib/py4j-*-src.zip")]
    if len(zips) != 2:
        sys.exit(f"{home} is not a SPARK_HOME: its python/lib lacks pyspark.zip or py4j-*-src.zip.")
    before = import_cpu_s(zips)
    try:
        changed = [each.name for each in zips if add_bytecode(each)]
    except OSError as error:
        sys.exit(f"The zips in {zips[0].parent} stay without bytecode, because they cannot be replaced: {error}")
    if changed:
        after = import_cpu_s(zips)
        print(f"{' and '.join(changed)}: each import of PySpark takes {after:.2f} s of CPU instead of {before:.2f} s.")
    else:
        print(f"{zips[0].parent} has the bytecode of this Python already: an import takes {before:.2f} s of CPU.")


def import_cpu_s(zips: list[Path]) -> float:
    """The CPU of a process that imports what a Python worker of Spark does."""
    start = os.times()
    paths = os.pathsep.join(map(str, zips))
    subprocess.run([sys.executable, "-c", "import pyspark.daemon"], env=os.environ | {"PYTHONPATH": paths}, check=True)
    end = os.times()
    return end.children_user + end.children_system - start.children_user - start.children_system


def add_bytecode(path: Path) -> bool:
    """Replaces the zip by one that has a .pyc beside each .py, except PySpark's own tests, which are most of the zip.
    False: the zip has the bytecode of this Python already.
    """
    with ZipFile(path) as old:
        bytecode = [name for name in old.namelist() if name.endswith(".pyc")]
        if bytecode and old.read(bytecode[0]).startswith(MAGIC_NUMBER):
            return False
        sources = {name: old.read(name) for name in old.namelist() if name not in bytecode}
    unfinished = path.with_name(f"{path.name}.new")
    with ZipFile(unfinished, "w", ZIP_DEFLATED) as new:
        for name, source in sources.items():
            new.writestr(name, source)
            if name.endswith(".py") and "/tests/" not in name:
                code = marshal.dumps(compile(source, f"{path}/{name}", "exec", dont_inherit=True))
                new.writestr(f"{name}c", MAGIC_NUMBER + UNCHECKED_HASH + source_hash(source) + code)
    if not bytecode:
        shutil.copy2(path, f"{path}.orig")
    shutil.copymode(path, unfinished)
    unfinished.replace(path)
    return True


if __name__ == "__main__":
    main(sys.argv[1:])
