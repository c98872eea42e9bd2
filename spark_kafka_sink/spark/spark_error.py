"""The reason of a PySpark error, without tracebacks."""

from __future__ import annotations

import re

# A Python traceback: indented lines, then the error, whose text ends where Spark's begins.
_RAISED = re.compile(
    r"Traceback \(most recent call last\):\n(?: [^\n]*\n|\n)+"
    r"(?P<package>(?:[a-z]\w*\.)*)(?P<kind>\w+)(?:: (?P<text>.*?))?(?=\n SQLSTATE: |\n\tat |\n=== |\n\n|\Z)",
    re.DOTALL,
)
_JVM_STACK = re.compile(r"\n\tat |\n\nJVM stacktrace")


def reason(error: BaseException) -> str:
    """The error of Spark's Python process, if there is one, else Spark's text; without class name if it is ours."""
    text = str(error)
    raised = list(_RAISED.finditer(text))
    if not raised:
        return _JVM_STACK.split(text, maxsplit=1)[0].strip()
    last = raised[-1]
    said = (last["text"] or "").strip()
    return said if said and last["package"].startswith("spark_kafka_sink.") else f"{last['kind']}: {said}".strip(": ")
