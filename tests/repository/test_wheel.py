"""What pip installs, what PyPI's page says, and what an import costs."""

from __future__ import annotations

import email
import io
import re
import subprocess
import sys
import zipfile

import pytest

from spark_kafka_sink import __version__
from tests.repository.conftest import ADDRESS, PROJECT_URL, Built
from tests.repository.files import PACKAGE, ROOT

RELATIVE = re.compile(r"\]\((?!https?:|#)")


def wheel_in(built: dict[str, bytes]) -> zipfile.ZipFile:
    (content,) = (content for name, content in built.items() if name.endswith(".whl"))
    return zipfile.ZipFile(io.BytesIO(content))


@pytest.fixture(scope="module")
def wheel(built: Built) -> zipfile.ZipFile:
    return wheel_in(built())


def page_of(built: Built, address: str) -> email.message.Message:
    """PyPI's page: the metadata of a wheel that is built with this address, and README with absolute links."""
    wheel = wheel_in(built(address))
    (name,) = (name for name in wheel.namelist() if name.endswith("METADATA"))
    return email.message_from_bytes(wheel.read(name))


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


@pytest.mark.parametrize("address", ["", PROJECT_URL])
def test_no_link_or_image_is_relative(address, built):
    metadata = page_of(built, address)
    page = metadata.get_payload()
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "# spark-kafka-sink" in page
    assert RELATIVE.findall(page) == []
    assert ("docs/img" in page) == bool(address)


def test_the_projects_address_makes_links_to_the_files_of_this_version(built):
    metadata = page_of(built, PROJECT_URL)
    assert f"Source, {ADDRESS}" in metadata.get_all("Project-URL")
    assert f"Changelog, {ADDRESS}/blob/v{__version__}/CHANGELOG.md" in metadata.get_all("Project-URL")
    assert f"({ADDRESS}/blob/v{__version__}/docs/migrate.md)" in metadata.get_payload()
    assert f"({ADDRESS}/raw/v{__version__}/docs/img/" in metadata.get_payload()
    assert f'pip install "git+{ADDRESS}"' in metadata.get_payload()


def test_without_an_address_none_is_invented(built):
    metadata = page_of(built, "")
    assert metadata.get_all("Project-URL") is None
    assert 'pip install "git+<address of this repository>"' in metadata.get_payload()


CODEC_LIBRARIES = {"cramjam", "lz4", "zstandard"}
OF_TASKS = {"spark_kafka_sink.producer.core", "spark_kafka_sink.schemas.encoding"}
OF_LOGINS = {"cryptography", "asn1crypto"}


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
        ("spark_kafka_sink.spark.sink_write", {"numpy", "pyarrow", "kio", *CODEC_LIBRARIES, *OF_LOGINS}),
        ("spark_kafka_sink.spark.exactly_once", {*OF_TASKS, *CODEC_LIBRARIES, *OF_LOGINS}),
        ("spark_kafka_sink.producer.producer", {"pyspark", "rich", "confluent_kafka", *CODEC_LIBRARIES, *OF_LOGINS}),
        ("spark_kafka_sink.testing.pytest_plugin", {"pyspark", "numpy", "pyarrow", "kio"}),
        ("spark_kafka_sink.tools.cli.main", {"pyspark", "rich", "confluent_kafka"}),
    ],
)
def test_importing_does_not_drag_in(module, unwanted):
    of_pyspark = set() if "pyspark" in unwanted else imported("pyspark")  # 4.0 imports numpy itself
    assert not (unwanted - of_pyspark) & imported(module)


def imported(module: str) -> set[str]:
    program = f"import {module}, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("mechanism", "jaas"),
    [
        ("PLAIN", "org.apache.kafka.common.security.plain.PlainLoginModule required username=u password=p;"),
        ("SCRAM-SHA-512", "org.apache.kafka.common.security.scram.ScramLoginModule required username=u password=p;"),
        ("OAUTHBEARER", "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"),
        ("GSSAPI", "com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true;"),
    ],
)
def test_parsing_the_options_of_a_mechanism_imports_no_library_of_its_login(mechanism, jaas):
    options = {
        "bootstrap.servers": "b:1", "security.protocol": "SASL_SSL", "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas, "sasl.kerberos.service.name": "kafka",
    }  # fmt: skip
    if mechanism == "OAUTHBEARER":
        options["sasl.token.provider"] = "azure"
    code = (
        "import sys; from spark_kafka_sink.common.config import ProducerConfig\n"
        f"ProducerConfig.parse({options!r})\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True, cwd=ROOT)
    unwanted = {*OF_LOGINS, "gssapi", "botocore", "azure", "kio", "pyarrow"}
    assert not unwanted.intersection(done.stdout.split())
