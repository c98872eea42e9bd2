"""The one sentence that matters out of what PySpark raises."""

from __future__ import annotations

import re

# A Python traceback: indented lines, then the error, whose text goes on until Spark's own begins.
_RAISED = re.compile(
    r"Traceback \(most recent call last\):\n(?: [^\n]*\n|\n)+"
    r"(?P<package>(?:[a-z]\w*\.)*)(?P<kind>\w+)(?:: (?P<text>.*?))?(?=\n SQLSTATE: |\n\tat |\n=== |\n\n|\Z)",
    re.DOTALL,
)
_JVM_STACK = re.compile(r"\n\tat |\n\nJVM stacktrace")


def reason(error: BaseException) -> str:
    """What went wrong: the Python error inside, when one was raised in a Python process of Spark, else Spark's text.

    Errors of this package come without the name of their class.
    """
    text = str(error)
    raised = list(_RAISED.finditer(text))
    if not raised:
        return _JVM_STACK.split(text, maxsplit=1)[0].strip()
    last = raised[-1]
    said = (last["text"] or "").strip()
    return said if said and last["package"].startswith("spark_kafka_sink.") else f"{last['kind']}: {said}".strip(": ")
