"""The public names with their signatures."""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Iterator

import spark_kafka_sink
import spark_kafka_sink.testing
from tests.repository.files import ROOT

_SHOWN = re.compile(r"^<!-- api: ([\w.]+)", re.MULTILINE)
_FORWARD_REF = re.compile(r"ForwardRef\('([^']*)'[^)]*\)")


def public_names() -> list[str]:
    """Every name of the two public modules and of docs/api.md; classes with what they offer."""
    paths = {f"{module.__name__}.{name}" for module in (spark_kafka_sink, spark_kafka_sink.testing)
             for name in module.__all__}  # fmt: skip
    paths.update(_SHOWN.findall((ROOT / "docs/api.md").read_text()))
    return [line for path in sorted(paths) for line in _lines(path)]


def _lines(path: str) -> Iterator[str]:
    found = pkgutil.resolve_name(path)
    yield f"{path}{_signature(found)}"
    if inspect.isclass(found):
        for member in sorted(vars(found)):
            if not member.startswith("_"):
                yield f"    {member}{_signature(getattr(found, member))}"


def _signature(found: object) -> str:
    try:
        text = str(inspect.signature(found))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""
    # Before Python 3.14, the annotations of a NamedTuple.
    return _FORWARD_REF.sub(r"\1", text)
