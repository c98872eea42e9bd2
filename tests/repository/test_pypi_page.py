"""PyPI's page: README with absolute links, from the address that the build was told."""

import email
import os
import re
import subprocess
import sys
import zipfile

import pytest

from tests.repository.files import ROOT

RELATIVE = re.compile(r"\]\((?!https?:|#)")


def built(folder, address: str) -> email.message.Message:
    environment = {**os.environ, "PROJECT_URL": address}
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
    subprocess.run(command, cwd=ROOT, check=True, env=environment)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        (name,) = (name for name in files.namelist() if name.endswith("METADATA"))
        return email.message_from_bytes(files.read(name))


@pytest.mark.parametrize("address", ["", "https://code.example/team/sink"])
def test_no_link_or_image_is_relative(address, tmp_path):
    metadata = built(tmp_path, address)
    page = metadata.get_payload()
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "# spark-kafka-sink" in page
    assert RELATIVE.findall(page) == []
    assert ("docs/img" in page) == bool(address)


def test_the_projects_address_makes_its_links(tmp_path):
    metadata = built(tmp_path, "https://code.example/team/sink/")
    assert "Source, https://code.example/team/sink" in metadata.get_all("Project-URL")
    assert "(https://code.example/team/sink/blob/main/docs/migrate.md)" in metadata.get_payload()
    assert 'pip install "git+https://code.example/team/sink"' in metadata.get_payload()


def test_without_an_address_none_is_invented(tmp_path):
    metadata = built(tmp_path, "")
    assert metadata.get_all("Project-URL") is None
    assert 'pip install "git+<address of this repository>"' in metadata.get_payload()
