"""PyPI's page from README.md: links, images and git's address are made from PROJECT_URL when the package is built.

Links lead to the files at the tag of this version.
Without it the project has no address: links to files become their text, images go.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_IMAGE = re.compile(r"!\[(?P<text>[^\]]*)\]\((?!https?:)(?P<path>[^)\s]+)\)")
_ADDRESS = "<address of this repository>"
_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?!https?:|#)(?P<path>[^)\s]+)\)")


class PageHook(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        address = os.environ.get("PROJECT_URL", "").rstrip("/")
        tag = f"v{metadata['version']}"
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": page(text, address, tag)}
        metadata["urls"] = urls(address, tag)


def page(readme: str, address: str, tag: str) -> str:
    if not address:
        return _LINK.sub(r"\g<text>", _IMAGE.sub("", readme))
    readme = readme.replace(_ADDRESS, address)
    readme = _IMAGE.sub(rf"![\g<text>]({address}/raw/{tag}/\g<path>)", readme)
    return _LINK.sub(rf"[\g<text>]({address}/blob/{tag}/\g<path>)", readme)


def urls(address: str, tag: str) -> dict[str, str]:
    if not address:
        return {}
    changes = f"{address}/blob/{tag}/CHANGELOG.md"
    return {"Source": address, "Documentation": f"{address}/tree/{tag}/docs", "Changelog": changes}
