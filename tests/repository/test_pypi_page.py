"""PyPI's page: README with absolute links, from the address that the build was told."""

import email
import io
import re
import zipfile

import pytest

from spark_kafka_sink import __version__

ADDRESS = "https://code.example/team/sink"
PROJECT_URL = f"{ADDRESS}/"
TAG = f"v{__version__}"
RELATIVE = re.compile(r"\]\((?!https?:|#)")


@pytest.fixture
def metadata_of(built):
    """The metadata of the wheel that is built with an address."""

    def read(address: str) -> email.message.Message:
        (content,) = (content for name, content in built(address).items() if name.endswith(".whl"))
        with zipfile.ZipFile(io.BytesIO(content)) as files:
            (name,) = (name for name in files.namelist() if name.endswith("METADATA"))
            return email.message_from_bytes(files.read(name))

    return read


@pytest.mark.parametrize("address", ["", PROJECT_URL])
def test_no_link_or_image_is_relative(address, metadata_of):
    metadata = metadata_of(address)
    page = metadata.get_payload()
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "# spark-kafka-sink" in page
    assert RELATIVE.findall(page) == []
    assert ("docs/img" in page) == bool(address)


def test_the_projects_address_makes_links_to_the_files_of_this_version(metadata_of):
    metadata = metadata_of(PROJECT_URL)
    assert f"Source, {ADDRESS}" in metadata.get_all("Project-URL")
    assert f"Changelog, {ADDRESS}/blob/{TAG}/CHANGELOG.md" in metadata.get_all("Project-URL")
    assert f"({ADDRESS}/blob/{TAG}/docs/migrate.md)" in metadata.get_payload()
    assert f"({ADDRESS}/raw/{TAG}/docs/img/" in metadata.get_payload()
    assert f'pip install "git+{ADDRESS}"' in metadata.get_payload()


def test_without_an_address_none_is_invented(metadata_of):
    metadata = metadata_of("")
    assert metadata.get_all("Project-URL") is None
    assert 'pip install "git+<address of this repository>"' in metadata.get_payload()
