"""A query's checkpoint: its location in one spelling, and the query's id.

Planning names the transactions before any task runs, but Spark passes the query's id to tasks only. Spark writes the id
into the checkpoint when the query is first started, before it plans the first micro-batch, so planning reads it there.
"""

from __future__ import annotations

import json
import os
import re
from hashlib import sha256
from typing import Final
from uuid import UUID

_SCHEME: Final = re.compile(r"(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]*):(?://(?P<authority>[^/]*))?(?P<path>.*)", re.DOTALL)
_SAME: Final = {"s3a": "s3", "s3n": "s3", "abfss": "abfs", "wasbs": "wasb"}
_LOCAL: Final = "file"
_METADATA: Final = "metadata"


def name_of(location: str, query: str | None) -> str:
    """The default of transactionalIdPrefix, made from the query's id, or else from the location."""
    return f"spark-{query or sha256(resolve(location).encode()).hexdigest()[:16]}"


def query_id(location: str) -> str | None:
    """The id of the query that has its checkpoint here, which a moved or copied checkpoint keeps (Spark:
    ``StreamMetadata``). None if the location is not in the driver's file system, or has no checkpoint there."""
    path = resolve(location)
    if not path.startswith("/"):
        return None
    try:
        with open(f"{path}/{_METADATA}", encoding="utf-8") as file:
            return str(UUID(json.load(file)["id"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def resolve(location: str) -> str:
    """The location as Spark understands it: an absolute path if it is local, else a URI without a trailing slash.

    A location without a scheme is taken for a local path, though Spark's ``fs.defaultFS`` may be another file system. A
    relative path is in the working directory, which the driver's processes share.
    """
    match = _SCHEME.fullmatch(location)
    scheme = _LOCAL if match is None else match["scheme"].lower()
    path = location if match is None else match["path"]
    if scheme == _LOCAL:
        return _normal(os.path.abspath(path))
    assert match is not None
    return f"{_SAME.get(scheme, scheme)}://{match['authority'] or ''}{_normal(path)}".rstrip("/")


def _normal(path: str) -> str:
    """The path without ``.``, ``..`` and repeated slashes (Hadoop: ``Path.normalizePath``)."""
    return os.path.normpath(re.sub("/+", "/", path)) if path else ""
