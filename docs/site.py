"""What `make docs` adds from outside of docs/: README and its neighbours, examples/, and the files that pages link."""

from __future__ import annotations

import os
import re
from pathlib import Path
from posixpath import relpath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
_ADDRESS = "<address of this repository>"
_LINK = re.compile(r"\[(?P<text>[^\[\]]*)\]\((?!https?:|#)(?P<path>[^)\s#]+)(?P<anchor>[^)\s]*)\)")

# Pages that are made from files outside of docs/.
_PAGES = {
    "index.md": ROOT / "README.md",
    "examples/README.md": ROOT / "examples/README.md",
    "changes.md": ROOT / "CHANGELOG.md",
    "contributing.md": ROOT / "CONTRIBUTING.md",
    "security-policy.md": ROOT / "SECURITY.md",
}
_URIS = {path: name for name, path in _PAGES.items()}
# A file of these folders that a page links is part of the site, under the same path.
_COPIED = ("examples", "jobs", "conf")


def on_files(files: Files, config: Any) -> Files:
    for name, path in _PAGES.items():
        files.append(File.generated(config, name, content=path.read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links lead to pages and copies; to other files at the project's address if PROJECT_URL has it, else nowhere."""
    address = os.environ.get("PROJECT_URL", "").rstrip("/")
    if address:
        markdown = markdown.replace(_ADDRESS, address)
    name = page.file.src_uri
    folder = _PAGES.get(name, ROOT / "docs" / name).parent

    def link(found: re.Match[str]) -> str:
        target = (folder / found["path"]).resolve()
        if not target.exists():
            return found[0]
        path = target.relative_to(ROOT)
        if target in _URIS:
            uri = _URIS[target]
        elif path.parts[0] == "docs":
            uri = path.relative_to("docs").as_posix()
        elif path.parts[0] in _COPIED and target.is_file():
            uri = path.as_posix()
            if uri not in files:
                files.append(File.generated(config, uri, abs_src_path=str(target)))
        else:
            return f"[{found['text']}]({address}/blob/main/{path})" if address else found["text"]
        return f"[{found['text']}]({relpath(uri, Path(name).parent)}{found['anchor']})"

    return _LINK.sub(link, markdown)
