"""Readers find every page: from README, and in the site's navigation. Links say titles, and lead to files."""

import re

import pytest

from tests.repository.files import ROOT

LINK = re.compile(r"(?<!!)\[(?P<text>[^\[\]]*)\]\((?P<to>[^)\s#]*)(?:#[^)\s]*)?\)")
PAGES = sorted(path.name for path in (ROOT / "docs").glob("*.md"))
WITH_LINKS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "examples/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
MADE_BY_THE_SITE = {"index.md", "glossary.md", "changes.md", "contributing.md", "security-policy.md"}


@pytest.mark.parametrize("page", PAGES)
def test_readme_links_every_page(page):
    linked = {found["to"] for found in LINK.finditer((ROOT / "README.md").read_text())}
    assert f"docs/{page}" in linked


def test_the_navigation_has_every_page():
    navigation = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n", 1)[1].split("\nnot_in_nav:", 1)[0]
    assert set(re.findall(r": ([\w-]+\.md)$", navigation, re.MULTILINE)) == {*PAGES, *MADE_BY_THE_SITE}


@pytest.mark.parametrize("page", WITH_LINKS, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_link_leads_to_a_file(page):
    links = [found["to"] for found in LINK.finditer(page.read_text())]
    missing = [to for to in links if to and not re.match(r"https?:|mailto:", to) and not (page.parent / to).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES)
def test_a_link_to_a_page_says_its_title(page):
    links = LINK.finditer((ROOT / "docs" / page).read_text())
    assert [found[0] for found in links if re.fullmatch(r"(?:docs/)?[\w-]+\.md", found["text"])] == []


def test_readme_takes_two_screens():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 125
