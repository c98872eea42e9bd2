"""What pip installs, and what importing it costs."""

import io
import subprocess
import sys
import zipfile

import pytest

from tests.repository.files import PACKAGE, ROOT


@pytest.fixture(scope="module")
def wheel(built) -> zipfile.ZipFile:
    (content,) = (content for name, content in built().items() if name.endswith(".whl"))
    return zipfile.ZipFile(io.BytesIO(content))


def test_the_wheel_has_every_module_its_types_and_the_format_s_name(wheel):
    modules = {str(path.relative_to(ROOT)) for path in PACKAGE.rglob("*.py")}
    assert modules | {"spark_kafka_sink/py.typed", "pyspark_pykafka/__init__.py"} <= set(wheel.namelist())


def test_the_wheel_has_nothing_else(wheel):
    tops = {name.split("/")[0] for name in wheel.namelist()}
    (info,) = (top for top in tops if top.endswith(".dist-info"))
    assert tops - {info} == {"spark_kafka_sink", "pyspark_pykafka"}
    assert f"{info}/licenses/LICENSE" in wheel.namelist()


def test_the_wheel_brings_the_command_and_no_plugin_for_every_pytest(wheel):
    (name,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    entry_points = wheel.read(name).decode()
    assert "spark-kafka-sink = spark_kafka_sink.tools.cli.main:main" in entry_points
    assert "pytest11" not in entry_points


CODEC_LIBRARIES = {"cramjam", "lz4", "zstandard"}


@pytest.mark.parametrize(
    ("module", "used"), [("spark_kafka_sink", "selftest"), ("spark_kafka_sink.spark", "write_kafka")]
)
def test_incident_without_pyspark_the_public_names_could_not_even_be_imported(module, used, tmp_path):
    """Completion, pydoc and ``import *`` look up every name. Those that need pyspark say so when they are used."""
    (tmp_path / "pyspark.py").write_text("raise ModuleNotFoundError('hidden', name='pyspark')")
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from {module} import *; import {module} as package\n"
        "assert all(hasattr(package, name) for name in package.__all__)\n"
        f"try: {used}('any argument')\nexcept ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == f'{used} needs PySpark: pip install "pyspark>=3.5"\n'


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("spark_kafka_sink", {"pyspark", "numpy", "pyarrow", "kio"}),
        ("spark_kafka_sink.common.config", {"pyspark", "numpy", "pyarrow", "kio", *CODEC_LIBRARIES}),
        ("spark_kafka_sink.spark.writers", {"numpy", "pyarrow", "kio", *CODEC_LIBRARIES}),
        ("spark_kafka_sink.producer", {"pyspark", "rich", "confluent_kafka", *CODEC_LIBRARIES}),
        ("spark_kafka_sink.testing.pytest_plugin", {"pyspark", "numpy", "pyarrow", "kio"}),
        ("spark_kafka_sink.tools.cli.main", {"pyspark", "rich", "confluent_kafka"}),
    ],
)
def test_importing_does_not_drag_in(module, unwanted):
    program = f"import {module}, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert not unwanted.intersection(done.stdout.split())
