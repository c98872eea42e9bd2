"""Completes cyclonedx-py's SBOM with what a lock file says in comments and markers: who needs a package, and where.

``python sbom.py SBOM LOCK`` changes the file SBOM.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

_HEAD = re.compile(r"(?P<name>[^=\s]+)==(?P<version>[^\s;]+)(?: ; (?P<marker>.*?))?(?: \\)?\n")
_NEEDED_BY = re.compile(r"^    # (?:via |  )(\S+)", re.MULTILINE)


def completed(sbom: dict[str, Any], lock: str) -> dict[str, Any]:
    root = sbom["metadata"]["component"]
    root["purl"] = root["bom-ref"] = f"pkg:pypi/{root['name']}@{root['version']}"
    names = {root["purl"]: root["name"]}
    markers: dict[str, str] = {}
    needed_by: dict[str, list[str]] = {}
    for entry in re.split(r"^(?=[^\s#])", lock, flags=re.MULTILINE)[1:]:
        head = _HEAD.match(entry)
        assert head is not None, entry
        purl = f"pkg:pypi/{head['name']}@{head['version']}"
        names[purl] = head["name"]
        markers[purl] = head["marker"]
        needed_by[purl] = _NEEDED_BY.findall(entry)
    for component in sbom["components"]:
        purl = component["bom-ref"] = component["purl"]
        del component["description"]  # the lines of the lock file, with the hashes once more
        if markers[purl]:
            component["description"] = f"Installed where {markers[purl]}"
    sbom["dependencies"] = [
        {"ref": purl, "dependsOn": [each for each, needing in needed_by.items() if name in needing]}
        for purl, name in names.items()
    ]
    return sbom


if __name__ == "__main__":
    path = Path(sys.argv[1])
    sbom = completed(json.loads(path.read_text()), Path(sys.argv[2]).read_text())
    path.write_text(json.dumps(sbom, indent=2) + "\n")
