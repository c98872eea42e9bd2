"""What `make docs` adds: README is the first page, files outside of docs/ are links to the project."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
_ADDRESS = "<address of this repository>"
_LINK = re.compile(r"(?<!!)\[(?P<text>[^\[\]]*)\]\((?!https?:|#)(?P<path>[^)\s#]+)[^)\s]*\)")


# A section that readers look for by name is a page of its own, too: page, section, where it stands.
_SECTIONS = {"troubleshooting.md": ("Errors", "operations.md"), "glossary.md": ("Glossary", "ARCHITECTURE.md")}


def on_files(files: Files, config: Any) -> Files:
    readme = (ROOT / "README.md").read_text().replace("](docs/", "](")
    files.append(File.generated(config, "index.md", content=readme))
    for name, (heading, source) in _SECTIONS.items():
        text = (ROOT / "docs" / source).read_text()
        section = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
        title = name.removesuffix(".md").capitalize()
        files.append(File.generated(config, name, content=f"# {title}\n{section}"))
    return files


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """A link to a file that is no page: to the project's address if PROJECT_URL has it, else only its text."""
    address = os.environ.get("PROJECT_URL", "").rstrip("/")
    if address:
        markdown = markdown.replace(_ADDRESS, address)
    folder = ROOT if page.file.src_uri == "index.md" else (ROOT / "docs" / page.file.src_uri).parent

    def link(found: re.Match[str]) -> str:
        target = (folder / found["path"]).resolve()
        if target.is_relative_to(ROOT / "docs") or not target.exists():
            return found[0]
        return f"[{found['text']}]({address}/blob/main/{target.relative_to(ROOT)})" if address else found["text"]

    return _LINK.sub(link, markdown)
