"""The one sentence that matters out of what PySpark raises."""

from __future__ import annotations

import re

# The last line of a Python traceback, and the lines that belong to it until Spark's own text goes on.
_RAISED = re.compile(
    r"^Traceback \(most recent call last\):\n(?:^ .*\n|^\n)+"
    r"(?:[a-z]\w*\.)*(?P<kind>[A-Z]\w*)(?:: (?P<text>.*?))?(?=\n SQLSTATE: |\n\tat |\n=== |\n\n|\Z)",
    re.DOTALL | re.MULTILINE,
)
_JVM_STACK = re.compile(r"\n\tat |\n\nJVM stacktrace")
_OUR_ERRORS = "spark_kafka_sink."


def reason(error: BaseException) -> str:
    """What went wrong: the Python error inside, when one was raised in a Python process of Spark, else Spark's text.

    Errors of this package come without the name of their class.
    """
    text = str(error)
    raised = list(_RAISED.finditer(text))
    if not raised:
        return _JVM_STACK.split(text, maxsplit=1)[0].strip()
    last = raised[-1]
    ours = text[last.start() : last.end()].rpartition("\n")[2].startswith(_OUR_ERRORS)
    return last["text"] if ours and last["text"] else f"{last['kind']}: {last['text'] or ''}".strip(": ")
