"""What no file here may say."""

import re

import pytest

from tests.repository.files import ROOT, source_files

FORBIDDEN = {
    "a path of somebody's machine": r"/(?:work|tmp|home|Users)/\w",
    "an address of a package index or a mirror of one": (
        r"--(?:extra-)?index-url|--find-links|https?://[^\s\"'<>]*(?:/simple\b|pythonhosted|/maven2?\b|artifactory|nexus)"
    ),
    "how it was made": r"\b(?:prototypes?|A\.?I\.?|LLMs?|GPT|chatbot|copilot|TODO|FIXME|XXX)\b",
}

# A sentence says who does it.
PRONOUNS = (
    r"\b(?:[Ww]hoever|[Nn]obody|[Ss]omebody|comes to the same|left aside|turned by hand|for the sake of|to the digit"
    r"|losing twin|given alone)\b"
)

# This file has to name what it looks for; Kafka's licence and locked requirements are not our words.
NOT_OUR_WORDS = {"LICENSE", "tests/repository/test_texts.py"}


@pytest.mark.parametrize(("what", "pattern"), FORBIDDEN.items())
def test_no_file_holds(what, pattern):
    found = [
        f"{path}:{number}: {line.strip()[:120]}"
        for path in source_files()
        if str(path) not in NOT_OUR_WORDS
        for number, line in enumerate((ROOT / path).read_text(errors="replace").splitlines(), 1)
        if re.search(pattern, line)
    ]
    assert not found, f"{what}:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("a path of somebody's machine", "cp /tmp/x /work/main"),
        ("an address of a package index or a mirror of one", "pip install --index-url somewhere"),
        ("how it was made", "as in the prototype"),
    ],
)
def test_the_patterns_find_what_they_are_for(what, line):
    assert re.search(FORBIDDEN[what], line)


def test_sentences_name_their_subjects():
    found = [
        f"{path}:{number}: {line.strip()[:120]}"
        for path in source_files()
        if path.parts[0] != "tests" and str(path) not in NOT_OUR_WORDS
        for number, line in enumerate((ROOT / path).read_text(errors="replace").splitlines(), 1)
        if re.search(PRONOUNS, re.sub(r"`[^`]*`", "", line))
    ]
    assert not found, "\n".join(["", *found])
